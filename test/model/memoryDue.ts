import type { DueNeed, Rows } from "../../src/core/decision/command.ts";
import type { AccountId, Flow, Line, MessageState, Millis, Schedule } from "../../src/core/model/message.ts";
import type { Waiter } from "../../src/core/model/run.ts";
import type { DueTable } from "../../src/core/fairness/turns.ts";
import { turn } from "../../src/core/fairness/turns.ts";
import { merged, turnsAt } from "../../src/store/sql/dueRows.ts";
import type { Due } from "../../src/store/batch/loader.ts";
import { fittingPage } from "../../src/store/queries/storageReads.ts";

type Row = { account: AccountId; dueAt: Millis | null };
type Found<R> = { oldest: readonly R[]; ofTurn: readonly R[]; end?: AccountId | undefined };

/** Compares two texts by their code units, as the databases do. */
export const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
/** Sorts rows by the time at which they are due. `tie`: the order of rows that are due at the same time. */
export const earliest = <R extends { dueAt: Millis | null }>(rows: R[], tie: (a: R, b: R) => number): R[] =>
  rows.sort((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0) || tie(a, b));
const byAccountAndId = (a: Row & { id: string }, b: Row & { id: string }): number => byText(a.account, b.account) || byText(a.id, b.id);

/** Returns what is due, as the databases do: see `dueRows.ts`. */
export function dueIn(tables: { readonly [T in DueTable]: ReadonlyMap<string, Rows[T]> }): (now: Millis, most: DueNeed) => Promise<Due> {
  return async (now, most) => {
    const find = <R extends Row>(name: DueTable, rows: R[], limit: number, tie: (a: R, b: R) => number): Found<R> => {
      const waiting = rows.filter(({ dueAt }) => dueAt !== null);
      const due = earliest(waiting.filter(isDue(now)), tie);
      const after = most.turns?.[name];
      return { oldest: due.slice(0, limit), ...(after === undefined ? { ofTurn: [] } : turnOf(waiting, { due, after, now })) };
    };
    const messages = [...tables.messages.values()];
    const byId = (a: MessageState, b: MessageState): number => byText(a.id, b.id);
    const byHost = (a: Line, b: Line): number => byText(a.host, b.host) || byText(a.account, b.account);
    const lost = earliest(messages.filter(({ leasedBy }) => leasedBy !== null).filter(isDue(now)), byId).slice(0, most.limit);
    const waiting = find(
      "messages",
      messages.filter(({ leasedBy }) => leasedBy === null),
      most.limit,
      byId,
    );
    const lines = find<Line>("lines", [...tables.lines.values()], most.lines, byHost);
    const flows = find<Flow>("flows", [...tables.flows.values()], most.flows, byAccountAndId);
    const schedules = find<Schedule>("schedules", [...tables.schedules.values()], most.schedules, byAccountAndId);
    const waiters = find<Waiter>("waiters", [...tables.waiters.values()], most.waiters, byAccountAndId);
    return {
      messages: merged([lost, waiting.oldest, waiting.ofTurn], ({ id }) => id),
      lines: merged([lines.oldest, lines.ofTurn], ({ host }) => host),
      flows: merged([flows.oldest, flows.ofTurn], ({ id }) => id),
      schedules: fitting(schedules),
      waiters: merged([waiters.oldest, waiters.ofTurn], ({ id }) => id),
      turns: turnsAt({ messages: waiting.end, lines: lines.end, flows: flows.end, schedules: schedules.end, waiters: waiters.end }),
    };
  };
}

/** Reports whether a row is due at a time. */
export const isDue =
  (now: Millis) =>
  ({ dueAt }: Pick<Row, "dueAt">): boolean =>
    dueAt !== null && dueAt <= now;

function turnOf<R extends Row>(waiting: readonly R[], { due, after, now }: { due: readonly R[]; after: AccountId; now: Millis }) {
  const accounts = [...new Set(waiting.map(({ account }) => account))].filter((account) => account > after).sort(byText);
  const passed = accounts.slice(0, turn.passed);
  const hasDue = new Set(waiting.filter(isDue(now)).map(({ account }) => account));
  const met = passed.filter((account) => hasDue.has(account)).slice(0, turn.accounts);
  const isEnd = passed.length < turn.passed && met.length < turn.accounts;
  const end = isEnd ? "" : ((met.length < turn.accounts ? passed : met).at(-1) ?? "");
  return { ofTurn: met.flatMap((account) => due.filter((row) => row.account === account).slice(0, turn.rows)), end };
}

/** As many as may be loaded at once, by their bodies. Rows of the turn come first. */
function fitting({ oldest, ofTurn }: Found<Schedule>): Schedule[] {
  const all = [...new Set([...ofTurn, ...oldest])];
  const some = all.slice(0, fittingPage(all.map(({ body }) => body.byteLength)));
  return earliest(some, byAccountAndId);
}
