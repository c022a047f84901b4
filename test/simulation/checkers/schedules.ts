import type { ScheduleRun } from "../../../src/engine/core/commands/runScheduleNow.ts";
import type { StoredMessage } from "../../../src/engine/core/model/message.ts";
import type { Schedule } from "../../../src/engine/core/model/schedule.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import type { Tables } from "../storage/changes.ts";

type ScheduleCheckContext = {
  assertHolds: AssertHolds;
  tables: Tables;
  now: number;
  retried: ReadonlyMap<string, string>;
  cover: (what: string) => void;
  /** Reports whether the account has spent its budget. Null: unknown. */
  hasSpent(account: string): boolean | null;
};

/**
 * Checks that schedules fire once when they are due, to all of their endpoints. Their crons have the form
 * "every n minutes".
 */
export class ScheduleChecker {
  /** Due times at which schedules have fired. */
  readonly #fired = new Set<string>();

  check(
    observed: ObservedBatch,
    { assertHolds, tables, now, retried, cover, hasSpent }: ScheduleCheckContext,
  ): void {
    const { changes, calls } = observed;
    const runByHand = this.#checkRunByHand(observed, { assertHolds, tables, cover });
    const created = new Map<string, StoredMessage[]>();
    for (const { after } of changes.storedMessages) {
      if (!after || after.scheduleId === null || retried.has(after.id) || after.reportsOn) continue;
      if (runByHand.has(after.id)) continue;
      const name = `${after.account}\n${after.scheduleId}`;
      created.set(name, [...(created.get(name) ?? []), after]);
    }
    const replaced = new Set(
      calls.flatMap(({ name, input }) => {
        const { account, id } = input as { account: string; id?: string };
        return name === "createSchedule" || name === "deleteSchedule" || name === "pauseSchedule"
          ? `${account}\n${id}`
          : [];
      }),
    );
    const groupsChange = changes.urlGroups.length > 0;
    for (const { before, after } of changes.schedules) {
      const name = `${(after ?? before)?.account}\n${(after ?? before)?.id}`;
      const made = created.get(name) ?? [];
      created.delete(name);
      if (after && after.dueAt !== null)
        assertHolds(isTick(after, now), `the next firing follows the cron: ${after.cron}, ${after.dueAt}`);
      if (after)
        assertHolds(
          after.paused === (after.dueAt === null),
          `a schedule has a due time unless it is paused: ${after.id}`,
        );
      if (made.length === 0 && (!after || !before || after.lastAt === before.lastAt || replaced.has(name)))
        continue;
      const dueAt = before?.dueAt ?? Infinity;
      assertHolds(dueAt <= now, `a schedule fires when it is due: ${name}`);
      if (!before) continue;
      const time = `${name} ${before.createdAt} ${dueAt}`;
      assertHolds(!this.#fired.has(time), `a schedule fires once: ${time}`);
      this.#fired.add(time);
      cover(before.messageInput.group === null ? "schedule to a URL" : "schedule to a group");
      if (now > dueAt + 60_000) cover("schedule late");
      const group = before.messageInput.group;
      const passesOver = hasSpent(before.account) ?? after?.passedOver !== undefined;
      assertHolds(
        !passesOver || made.length === 0,
        `a schedule skips firings if its account has spent its budget: ${name}`,
      );
      assertHolds(
        replaced.has(name) || (after?.passedOver !== undefined) === passesOver,
        `a schedule skips a firing only for a recorded reason: ${name}`,
      );
      if (passesOver) {
        cover("schedule passed over");
        continue;
      }
      const expected =
        group === null ? 1 : (tables.urlGroups.get(`${before.account}\n${group}`)?.endpoints.length ?? 0);
      const ids = JSON.stringify(made.map(({ id }) => id));
      if (!groupsChange)
        assertHolds(
          made.length === expected,
          `a schedule publishes once per endpoint: ${made.length} of ${expected} by ${name}`,
        );
      if (replaced.has(name)) continue;
      assertHolds(
        after?.lastAt === now && JSON.stringify(after.lastMessages) === ids,
        `a schedule records its messages: ${ids}`,
      );
    }
    for (const [name] of created) assertHolds(false, `a message of a schedule comes from a firing: ${name}`);
  }

  /** Checks that a schedule that is run by hand publishes once, and stays as it is. Returns the messages. */
  #checkRunByHand(
    { changes, calls, result }: ObservedBatch,
    { assertHolds, tables, cover }: Pick<ScheduleCheckContext, "assertHolds" | "tables" | "cover">,
  ): Set<string> {
    const published = new Set<string>();
    calls.forEach(({ name, input }, at) => {
      const reply = result.replies[at];
      if (name !== "runSchedule" || !reply || !("answer" in reply)) return;
      const { account, id } = input as { account: string; id: string };
      const { messages } = reply.answer as ScheduleRun;
      const schedule = tables.schedules.get(`${account}\n${id}`);
      for (const { messageId } of messages) {
        const stored = changes.storedMessages.find(({ after }) => after?.id === messageId)?.after;
        assertHolds(
          stored?.account === account && stored.scheduleId === id && !published.has(messageId),
          `a run by hand publishes the messages that it names: ${messageId}`,
        );
        published.add(messageId);
      }
      if (!schedule || changes.schedules.length > 0 || changes.urlGroups.length > 0) {
        assertHolds(calls.length > 1, `a run by hand does not change the schedule: ${id}`);
        return;
      }
      const { group } = schedule.messageInput;
      const endpoints = tables.urlGroups.get(`${account}\n${group}`)?.endpoints.length ?? 0;
      assertHolds(
        messages.length === (group === null ? 1 : endpoints),
        `a run by hand publishes once per endpoint: ${messages.length} by ${id}`,
      );
      cover(group === null ? "schedule run by hand to a URL" : "schedule run by hand to a group");
    });
    return published;
  }
}

function isTick({ cron, dueAt, id, createdAt, lastAt }: Schedule, now: number): boolean {
  const minutes = Number(/^\*(?:\/(\d+))? \* \* \* \*$/.exec(cron)?.[1] ?? "1");
  const period = minutes * 60_000;
  const next = (Math.floor(now / period) + 1) * period;
  // A schedule that was replaced while it was due still fires at once.
  return dueAt === next || (createdAt === now && lastAt === null && dueAt === now + 1 && id !== "");
}
