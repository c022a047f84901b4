import { listRunBounds } from "../../core/model/stepId.ts";
import { mostValues } from "../../core/search/filter.ts";
import { firstIdAt } from "../../core/values/ids.ts";
import type { AccountId, MessageState, RunKey } from "../../core/model/message.ts";
import type { ActiveRun, Notification, Run, Step, Waiter } from "../../core/model/run.ts";
import type { RunFilter } from "../../core/search/runFilter.ts";
import { passesRun, runMarksWanted } from "../../core/search/runFilter.ts";
import { chunksOf } from "./pages.ts";
import type { Marked } from "./byTag.ts";
import { fewest } from "./byTag.ts";
import type { Bodies, Range, Shelf } from "./storageReads.ts";
import { fittingPage, keysOf, lastTime, scanLimit } from "./storageReads.ts";

export type RunQuery = { account: AccountId; filter: RunFilter; cursor: string | null; count: number };
export type RunPage = { runs: Run[]; cursor: string | null };

type EventStretch = { after?: string; limit: number };

const chunk = 1_000;

/** Every question about workflow runs that can be put to the store. */
export function runQueriesOf(shelf: Shelf) {
  const run = async (account: AccountId, key: RunKey): Promise<Run | null> =>
    (await withDeadLetters(shelf, account, await shelf.rows("runs", [[account, key]])))[0] ?? null;
  return {
    run,
    /** The run of this name that has not ended. */
    activeRun: async (account: AccountId, runId: string): Promise<{ run: Run; active: ActiveRun } | null> => {
      const [active] = await shelf.rows("activeRuns", [[account, runId]]);
      const found = active ? await run(account, active.run) : null;
      return active && found ? { run: found, active } : null;
    },
    /** Runs that pass, newest first. `cursor` is set when it stopped before the end. */
    runs: (query: RunQuery): Promise<RunPage> => runs(shelf, query),
    /** The history of a run, in order; `bodies: false` without them. */
    history: async (account: AccountId, key: RunKey, how: Bodies = {}): Promise<Step[]> => {
      const steps = await allWithin(shelf, "steps", { account, run: key }, how);
      return steps.sort((a, b) => a.position - b.position);
    },
    /** Entries of a history by their ids, in the order of the ids that are given. */
    steps: async (account: AccountId, ids: readonly string[]): Promise<Step[]> => {
      const byId = new Map((await shelf.rows("steps", keysOf(account, ids))).map((step) => [step.id, step]));
      return ids.flatMap((id) => byId.get(id) ?? []);
    },
    waitersOf: (account: AccountId, key: RunKey): Promise<readonly Waiter[]> => allWithin(shelf, "waiters", { account, run: key }),
    notificationsOf: (account: AccountId, key: RunKey, how?: Bodies): Promise<readonly Notification[]> =>
      allWithin(shelf, "notifications", { account, run: key }, how),
    messagesOfRun: (account: AccountId, key: RunKey): Promise<readonly MessageState[]> => shelf.messagesOfRun(account, key),
    /** What waits for an event in any run, in the order of ids, behind `after`. */
    waitersOfEvent: (account: AccountId, event: string, { after, limit }: EventStretch): Promise<readonly Waiter[]> =>
      shelf.waitersOfEvent(event, { account, limit, ...(after === undefined ? {} : { after }) }),
  };
}

async function runs(shelf: Shelf, query: RunQuery): Promise<RunPage> {
  const page = await filled(shelf, query.account, await runsFound(shelf, query));
  return { ...page, runs: await withDeadLetters(shelf, query.account, page.runs) };
}

/** Returns these runs without the `dlqId` of dead letters that are gone, for whatever reason. */
export async function withDeadLetters(shelf: Shelf, account: AccountId, found: readonly Run[]): Promise<Run[]> {
  const named = found.flatMap(({ failure }) => failure?.dlqId ?? []);
  if (named.length === 0) return [...found];
  const letters = await shelf.sizes("deadLetters", keysOf(account, named));
  return found.map((run) => {
    const { failure } = run;
    return failure?.dlqId && !letters.has(failure.dlqId) ? { ...run, failure: { ...failure, dlqId: null } } : run;
  });
}

/** A page of runs without what they returned. */
export async function runsFound(shelf: Shelf, { account, filter, cursor, count }: RunQuery): Promise<RunPage> {
  const range = { account, descending: true, ...bounds(filter, cursor) };
  const ways = runMarksWanted(filter)
    .filter((marks) => marks.length <= mostValues)
    .map((marks): Marked => ({ list: "runs", marks }));
  const marked = await fewest(shelf, ways, range);
  const found: Run[] = [];
  let last: string | null = null;
  let scanned = 0;
  for await (const rows of chunksOf(shelf, "runs", { range, marked, limit: count + 1 })) {
    for (const row of rows) {
      // One more than a page shows that there is another page.
      if (found.length === count) return { runs: found, cursor: last };
      last = row.id;
      if (passesRun(filter, row)) found.push(row);
      if (++scanned >= scanLimit) return { runs: found, cursor: last };
    }
  }
  return { runs: found, cursor: null };
}

/** The page with what its runs returned. It ends early rather than become larger than a page may be. */
async function filled(shelf: Shelf, account: AccountId, { runs: page, cursor }: RunPage): Promise<RunPage> {
  const keys = keysOf(
    account,
    page.map(({ id }) => id),
  );
  const sizes = await shelf.sizes("runs", keys);
  const count = fittingPage(page.map(({ id }) => sizes.get(id) ?? 0));
  const byId = new Map((await shelf.rows("runs", keys.slice(0, count))).map((run) => [run.id, run]));
  const shown = page.slice(0, count);
  return { runs: shown.flatMap(({ id }) => byId.get(id) ?? []), cursor: count < page.length ? (shown.at(-1)?.id ?? null) : cursor };
}

function bounds({ from, to, createdAt }: RunFilter, cursor: string | null): Pick<Range, "after" | "before"> {
  const [first, last] = [createdAt ?? from, createdAt ?? to];
  const before = cursor ?? (last === undefined || last >= lastTime ? undefined : firstIdAt("run", last + 1));
  const after = first === undefined ? undefined : firstIdAt("run", Math.min(first, lastTime));
  return { ...(after === undefined ? {} : { after }), ...(before === undefined ? {} : { before }) };
}

type Belonging = { steps: Step; waiters: Waiter; notifications: Notification };

/** Rows whose ids begin with that of the run. */
async function allWithin<T extends keyof Belonging>(
  shelf: Shelf,
  table: T,
  { account, run }: { account: AccountId; run: RunKey },
  how: { bodies?: false } = {},
): Promise<Belonging[T][]> {
  const found: Belonging[T][] = [];
  const { after: start, before } = listRunBounds(run);
  for (let after = start; ;) {
    const rows: readonly Belonging[T][] = await shelf.range(table, { account, after, before, limit: chunk, ...how });
    found.push(...rows);
    const last = rows.at(-1);
    if (!last || rows.length < chunk) return found;
    after = last.id;
  }
}
