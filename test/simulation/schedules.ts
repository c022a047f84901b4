import type { Envelope, Schedule } from "../../src/core/model/message.ts";
import type { Case, Demand } from "./batch.ts";
import type { Tables } from "./changes.ts";

type Court = {
  demand: Demand;
  tables: Tables;
  now: number;
  retried: ReadonlyMap<string, string>;
  happens: (what: string) => void;
  /** Null: it is not known. */
  hasSpent(account: string): boolean | null;
};

/** Schedules fire when their time has come, once, to all they are aimed at. Their crons are "every so many minutes". */
export class Schedules {
  /** Times of the schedules that have fired. */
  readonly #fired = new Set<string>();

  judge({ changes, calls }: Case, { demand, tables, now, retried, happens, hasSpent }: Court): void {
    const born = new Map<string, Envelope[]>();
    for (const { after } of changes.envelopes) {
      if (!after || after.scheduleId === null || retried.has(after.id) || after.tells) continue;
      const name = `${after.account}\n${after.scheduleId}`;
      born.set(name, [...(born.get(name) ?? []), after]);
    }
    const replaced = new Set(
      calls.flatMap(({ name, input }) => {
        const { account, id } = input as { account: string; id?: string };
        return name === "createSchedule" || name === "deleteSchedule" || name === "pauseSchedule" ? `${account}\n${id}` : [];
      }),
    );
    const groupsChange = changes.groups.length > 0;
    for (const { before, after } of changes.schedules) {
      const name = `${(after ?? before)?.account}\n${(after ?? before)?.id}`;
      const made = born.get(name) ?? [];
      born.delete(name);
      if (after && after.dueAt !== null)
        demand(isTick(after, now), `a schedule fires next at a time of its own: ${after.cron}, ${after.dueAt}`);
      if (after) demand(after.paused === (after.dueAt === null), `a schedule has a time unless it is paused: ${after.id}`);
      if (made.length === 0 && (!after || !before || after.lastAt === before.lastAt || replaced.has(name))) continue;
      const dueAt = before?.dueAt ?? Infinity;
      demand(dueAt <= now, `a schedule fires when it is due: ${name}`);
      if (!before) continue;
      const time = `${name} ${before.createdAt} ${dueAt}`;
      demand(!this.#fired.has(time), `a schedule fires once: ${time}`);
      this.#fired.add(time);
      happens(before.letter.group === null ? "schedule to a URL" : "schedule to a group");
      if (now > dueAt + 60_000) happens("schedule late");
      const group = before.letter.group;
      const passesOver = hasSpent(before.account) ?? after?.passedOver !== undefined;
      demand(!passesOver || made.length === 0, `a schedule of an account that has spent its budget passes over: ${name}`);
      demand(
        replaced.has(name) || (after?.passedOver !== undefined) === passesOver,
        `a schedule passes over for a reason, and says so: ${name}`,
      );
      if (passesOver) {
        happens("schedule passed over");
        continue;
      }
      const expected = group === null ? 1 : (tables.groups.get(`${before.account}\n${group}`)?.endpoints.length ?? 0);
      const ids = JSON.stringify(made.map(({ id }) => id));
      if (!groupsChange) demand(made.length === expected, `a schedule publishes to all once: ${made.length} of ${expected} by ${name}`);
      if (replaced.has(name)) continue;
      demand(after?.lastAt === now && JSON.stringify(after.lastMessages) === ids, `a schedule knows what it made: ${ids}`);
    }
    for (const [name] of born) demand(false, `nothing comes from a schedule that has not fired: ${name}`);
  }
}

function isTick({ cron, dueAt, id, createdAt, lastAt }: Schedule, now: number): boolean {
  const minutes = Number(/^\*(?:\/(\d+))? \* \* \* \*$/.exec(cron)?.[1] ?? "1");
  const period = minutes * 60_000;
  const next = (Math.floor(now / period) + 1) * period;
  // One that was replaced while it was due fires all the same, at once.
  return dueAt === next || (createdAt === now && lastAt === null && dueAt === now + 1 && id !== "");
}
