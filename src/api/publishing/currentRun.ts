import type { AccountId } from "../../engine/core/values/basics.ts";
import type { Run, Waiter } from "../../engine/core/model/run.ts";
import { listRunBounds } from "../../engine/core/model/stepId.ts";
import type { Store } from "../../engine/store/store.ts";

/** The maximum number of resumes that are followed from a run to the run that continues it now. */
const maxResumes = 100;
/** The maximum number of runs with the same id that are searched, newest first. */
const maxRunsWithId = 20;
/**
 * The maximum number of waiters for one event that are searched in one run. A webhook has a unique event, so
 * few steps of a run wait for it.
 */
const maxWaiters = 20;

/** The recipient of an event: a run by its id, and the event and the kind of the waiters in that run. */
export type EventAddress = { account: AccountId; runId: string } & Pick<Waiter, "event" | "kind">;

/**
 * Returns the id of the active run that an event is for: the run with the given id, or the run that continues
 * it after a resume. The id of a run and the URL of a webhook therefore stay valid when the run is resumed,
 * even if another run has received the same id since. If several runs qualify, the first choice is a run that
 * waits for the event, then the run with the given id, then the newest run. Returns null if none of these
 * runs is active.
 */
export async function findCurrentRunId({ read }: Store, address: EventAddress): Promise<string | null> {
  const { account, runId } = address;
  const own = await read.activeRun(account, runId);
  if (own && (await isWaiting(read, address, own.run.id))) return runId;
  const { runs } = await read.runs({
    account,
    filter: { runIds: [runId] },
    cursor: null,
    count: maxRunsWithId,
  });
  const others: Continuation[] = [];
  for (const run of runs) others.push(...(await findContinuation(read, run)));
  for (const other of others) if (await isWaiting(read, address, other.key)) return other.runId;
  return own ? runId : (others[0]?.runId ?? null);
}

type Continuation = { key: string; runId: string };

/** Reports whether a run has a waiter for the event. */
async function isWaiting(
  read: Store["read"],
  { account, event, kind }: EventAddress,
  key: string,
): Promise<boolean> {
  const waiters = await read.listEventWaiters(account, event, {
    after: listRunBounds(key).after,
    limit: maxWaiters,
  });
  return waiters.some((waiter) => waiter.run === key && waiter.kind === kind);
}

async function findContinuation(read: Store["read"], first: Run): Promise<Continuation[]> {
  let run: Run | null = first;
  for (let resumes = 0; run?.continuedBy && resumes < maxResumes; resumes++) {
    const { key, runId }: NonNullable<Run["continuedBy"]> = run.continuedBy;
    if ((await read.activeRun(first.account, runId))?.run.id === key) return [{ key, runId }];
    run = await read.run(first.account, key);
  }
  return [];
}
