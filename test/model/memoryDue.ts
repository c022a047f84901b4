import type { DueNeed, Rows } from "../../src/engine/core/decision/command.ts";
import type { AccountId, Millis } from "../../src/engine/core/values/basics.ts";
import type { MessageState } from "../../src/engine/core/model/messageState.ts";
import type { Schedule } from "../../src/engine/core/model/schedule.ts";
import type { Limiter, HostWaitlist } from "../../src/engine/core/model/limiter.ts";
import type { Waiter } from "../../src/engine/core/model/run.ts";
import type { DueTable } from "../../src/engine/core/node/turns.ts";
import { turnLimits } from "../../src/engine/core/node/turns.ts";
import { mergeDue, listTurnEnds } from "../../src/engine/store/sql/dueRows.ts";
import type { DueRows } from "../../src/engine/core/decision/command.ts";
import type { OldestDue } from "../../src/engine/store/layout/storageReads.ts";
import { countFittingPage } from "../../src/engine/store/layout/storageReads.ts";

type Row = { account: AccountId; dueAt: Millis | null };
type FoundRows<R> = { oldest: readonly R[]; ofTurn: readonly R[]; end?: AccountId | undefined };

/** Compares two texts by their code units, like the databases. */
export const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
/** Sorts rows by their due time. `tie` orders rows that are due at the same time. */
export const sortByDue = <R extends { dueAt: Millis | null }>(rows: R[], tie: (a: R, b: R) => number): R[] =>
  rows.sort((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0) || tie(a, b));
const byAccountAndId = (a: Row & { id: string }, b: Row & { id: string }): number =>
  compareText(a.account, b.account) || compareText(a.id, b.id);

/** Returns the earliest due time of each kind of rows. */
export function readOldestDue({ tables }: { tables: DueRowTables }): OldestDue {
  const { messages, hostWaitlists, limiters, schedules, waiters } = tables;
  const earliest = (rows: Iterable<{ dueAt: Millis | null }>): Millis | null => {
    let least: Millis | null = null;
    for (const { dueAt } of rows) if (dueAt !== null && (least === null || dueAt < least)) least = dueAt;
    return least;
  };
  const all = [...messages.values()];
  return {
    messages: earliest(all.filter(({ leasedBy }) => leasedBy === null)),
    leases: earliest(all.filter(({ leasedBy }) => leasedBy !== null)),
    hostWaitlists: earliest(hostWaitlists.values()),
    limiters: earliest(limiters.values()),
    schedules: earliest(schedules.values()),
    waiters: earliest(waiters.values()),
  };
}

type DueRowTables = { readonly [T in DueTable]: ReadonlyMap<string, Rows[T]> };

/** Returns a reader of due rows that works like the databases: see `dueRows.ts`. */
export function createDueReader(tables: DueRowTables): (now: Millis, max: DueNeed) => Promise<DueRows> {
  return async (now, max) => {
    const find = <R extends Row>(
      name: DueTable,
      { rows, limit, tie }: { rows: R[]; limit: number; tie: (a: R, b: R) => number },
    ): FoundRows<R> => {
      const waiting = rows.filter(({ dueAt }) => dueAt !== null);
      const due = sortByDue(waiting.filter(isDue(now)), tie);
      const after = max.turns?.[name];
      return {
        oldest: due.slice(0, limit),
        ...(after === undefined ? { ofTurn: [] } : findTurn(waiting, { due, after, now })),
      };
    };
    const messages = [...tables.messages.values()];
    const byId = (a: MessageState, b: MessageState): number => compareText(a.id, b.id);
    const byHost = (a: HostWaitlist, b: HostWaitlist): number =>
      compareText(a.host, b.host) || compareText(a.account, b.account);
    const lost = sortByDue(
      messages.filter(({ leasedBy }) => leasedBy !== null).filter(isDue(now)),
      byId,
    ).slice(0, max.limit);
    const waiting = find("messages", {
      rows: messages.filter(({ leasedBy }) => leasedBy === null),
      limit: max.limit,
      tie: byId,
    });
    const lines = find<HostWaitlist>("hostWaitlists", {
      rows: [...tables.hostWaitlists.values()],
      limit: max.hostWaitlists,
      tie: byHost,
    });
    const flows = find<Limiter>("limiters", {
      rows: [...tables.limiters.values()],
      limit: max.limiters,
      tie: byAccountAndId,
    });
    const schedules = find<Schedule>("schedules", {
      rows: [...tables.schedules.values()],
      limit: max.schedules,
      tie: byAccountAndId,
    });
    const waiters = find<Waiter>("waiters", {
      rows: [...tables.waiters.values()],
      limit: max.waiters,
      tie: byAccountAndId,
    });
    return {
      messages: mergeDue([lost, waiting.oldest, waiting.ofTurn], ({ id }) => id),
      hostWaitlists: mergeDue([lines.oldest, lines.ofTurn], ({ host }) => host),
      limiters: mergeDue([flows.oldest, flows.ofTurn], ({ id }) => id),
      schedules: limitBySize(schedules),
      waiters: mergeDue([waiters.oldest, waiters.ofTurn], ({ id }) => id),
      turns: listTurnEnds({
        messages: waiting.end,
        hostWaitlists: lines.end,
        limiters: flows.end,
        schedules: schedules.end,
        waiters: waiters.end,
      }),
    };
  };
}

/** Reports whether a row is due at a time. */
export const isDue =
  (now: Millis) =>
  ({ dueAt }: Pick<Row, "dueAt">): boolean =>
    dueAt !== null && dueAt <= now;

function findTurn<R extends Row>(
  waiting: readonly R[],
  { due, after, now }: { due: readonly R[]; after: AccountId; now: Millis },
) {
  const accounts = [...new Set(waiting.map(({ account }) => account))]
    .filter((account) => account > after)
    .sort(compareText);
  const passed = accounts.slice(0, turnLimits.skippedAccounts);
  const hasDue = new Set(waiting.filter(isDue(now)).map(({ account }) => account));
  const met = passed.filter((account) => hasDue.has(account)).slice(0, turnLimits.accounts);
  const isEnd = passed.length < turnLimits.skippedAccounts && met.length < turnLimits.accounts;
  const end = isEnd ? "" : ((met.length < turnLimits.accounts ? passed : met).at(-1) ?? "");
  return {
    ofTurn: met.flatMap((account) => due.filter((row) => row.account === account).slice(0, turnLimits.rows)),
    end,
  };
}

/**
 * Returns as many schedules as may be loaded at once, by the sizes of their bodies. Rows of the turn come
 * first.
 */
function limitBySize({ oldest, ofTurn }: FoundRows<Schedule>): Schedule[] {
  const all = [...new Set([...ofTurn, ...oldest])];
  const some = all.slice(0, countFittingPage(all.map(({ body }) => body.byteLength)));
  return sortByDue(some, byAccountAndId);
}
