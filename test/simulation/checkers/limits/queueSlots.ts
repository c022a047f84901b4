import type { ObservedBatch, AssertHolds } from "../observedBatch.ts";
import { mapRetried } from "../inputsOfBatch.ts";
import type { MessageHistory } from "../messageHistory.ts";
import type { Tables } from "../../storage/changes.ts";

type SlotCheckContext = {
  messageHistories: ReadonlyMap<string, MessageHistory>;
  assertHolds: AssertHolds;
  tables: Tables;
  cover: (what: string) => void;
};

/**
 * Checks queue slots: each is kept until its message and its callbacks without a delay have finished, and no
 * longer.
 */
export class QueueSlotChecker {
  /** The message whose slot each message holds. */
  readonly #roots = new Map<string, string>();
  /** The unfinished messages that hold each slot. */
  readonly #holders = new Map<string, Set<string>>();

  check(observed: ObservedBatch, { messageHistories, assertHolds, tables, cover }: SlotCheckContext): void {
    const { changes, calls } = observed;
    const touched = new Set<string>();
    const hold = (root: string, id: string): void => {
      this.#roots.set(id, root);
      this.#holders.set(root, (this.#holders.get(root) ?? new Set()).add(id));
      touched.add(root);
      if (root !== id) cover("callback keeps the slot");
    };
    const retried = mapRetried(observed, messageHistories);
    for (const { before, after } of changes.queueSlots) {
      const row = after ?? before;
      if (!row) continue;
      touched.add(row.id);
      if (after && !before) hold(row.id, row.id);
      if (after && !before)
        assertHolds(
          messageHistories.get(row.id)?.message.queue === after.queue,
          `a slot belongs to the message's queue: ${row.id}`,
        );
      if (after && before && after.queue !== before.queue) {
        assertHolds(
          after.queue === "" && calls.some(({ name }) => name === "deleteQueue"),
          `a slot stays in its queue: ${row.id}`,
        );
        cover("queue deleted before its callbacks");
        const state = tables.messages.get(`${row.account}\n${row.id}`)?.state ?? "cancelling";
        assertHolds(state === "cancelling", `a queue is not removed while it has messages: ${row.id}`);
      }
    }
    for (const { after } of changes.storedMessages) {
      const isDelayed = after !== null && after !== undefined && after.notBefore > after.createdAt;
      if (after?.reportsOn && isDelayed) cover("callback with a delay");
      const root =
        after?.reportsOn && !isDelayed && !retried.has(after.id)
          ? this.#roots.get(after.reportsOn.messageId)
          : undefined;
      if (after && root !== undefined && this.#holders.has(root)) hold(root, after.id);
    }
    for (const { before, after } of changes.messages) {
      const { id } = after ?? before ?? { id: "" };
      const root = this.#roots.get(id);
      if (after)
        assertHolds(
          after.slot === (root ?? null),
          `a message records its slot: ${id} has ${after.slot} instead of ${root}`,
        );
      else if (root !== undefined) this.#holders.get(root)?.delete(id);
      if (root !== undefined) touched.add(root);
    }
    for (const root of touched) {
      const account = messageHistories.get(root)?.message.account;
      const holders = this.#holders.get(root)?.size ?? 0;
      const slot = tables.queueSlots.get(`${account}\n${root}`);
      assertHolds(
        (slot?.holders ?? 0) === holders,
        `the holders of a slot are counted: ${root} has ${slot?.holders} of ${holders}`,
      );
      assertHolds(slot === undefined || slot.holders > 0, `a slot without holders is released: ${root}`);
      if (holders === 0) this.#holders.delete(root);
    }
  }
}
