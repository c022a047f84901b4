import type { Case, Demand } from "./batch.ts";
import type { Life } from "./life.ts";
import type { Tables } from "./changes.ts";

type Court = { lives: ReadonlyMap<string, Life>; demand: Demand; tables: Tables; happens: (what: string) => void };

/** Slots of queues: each is kept until its message and its callbacks without a delay are finished; not longer. */
export class Places {
  /** The message whose slot a message holds. */
  readonly #roots = new Map<string, string>();
  /** Those that hold a slot and are not finished. */
  readonly #holders = new Map<string, Set<string>>();

  judge({ changes, result, calls }: Case, { lives, demand, tables, happens }: Court): void {
    const touched = new Set<string>();
    const hold = (root: string, id: string): void => {
      this.#roots.set(id, root);
      this.#holders.set(root, (this.#holders.get(root) ?? new Set()).add(id));
      touched.add(root);
      if (root !== id) happens("callback keeps the slot");
    };
    const retried = new Set(
      calls.flatMap(({ name }, index) => {
        const reply = result.replies[index];
        return name === "retryDeadLetters" && reply && "answer" in reply
          ? (reply.answer as { messageId: string }[]).map(({ messageId }) => messageId)
          : [];
      }),
    );
    for (const { before, after } of changes.slots) {
      const row = after ?? before;
      if (!row) continue;
      touched.add(row.id);
      if (after && !before) hold(row.id, row.id);
      if (after && !before) demand(lives.get(row.id)?.envelope.queue === after.queue, `a slot is one of the message's queue: ${row.id}`);
      if (after && before && after.queue !== before.queue) {
        demand(after.queue === "" && calls.some(({ name }) => name === "deleteQueue"), `a slot stays in its queue: ${row.id}`);
        happens("queue deleted before its callbacks");
        const state = tables.messages.get(`${row.account}\n${row.id}`)?.state ?? "cancelling";
        demand(state === "cancelling", `a queue is not removed under its messages: ${row.id}`);
      }
    }
    for (const { after } of changes.envelopes) {
      const isDelayed = after !== null && after !== undefined && after.notBefore > after.createdAt;
      if (after?.tells && isDelayed) happens("callback with a delay");
      const root = after?.tells && !isDelayed && !retried.has(after.id) ? this.#roots.get(after.tells.messageId) : undefined;
      if (after && root !== undefined && this.#holders.has(root)) hold(root, after.id);
    }
    for (const { before, after } of changes.messages) {
      const { id } = after ?? before ?? { id: "" };
      const root = this.#roots.get(id);
      if (after) demand(after.slot === (root ?? null), `who holds a slot knows it: ${id} says ${after.slot}, it is ${root}`);
      else if (root !== undefined) this.#holders.get(root)?.delete(id);
      if (root !== undefined) touched.add(root);
    }
    for (const root of touched) {
      const account = lives.get(root)?.envelope.account;
      const holders = this.#holders.get(root)?.size ?? 0;
      const slot = tables.slots.get(`${account}\n${root}`);
      demand((slot?.holders ?? 0) === holders, `a slot is kept by whom it belongs to: ${root} says ${slot?.holders}, there are ${holders}`);
      demand(slot === undefined || slot.holders > 0, `a slot without holders is given back: ${root}`);
      if (holders === 0) this.#holders.delete(root);
    }
  }
}
