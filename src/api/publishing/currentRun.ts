import type { AccountId } from "../../core/model/message.ts";
import type { Run, Waiter } from "../../core/model/run.ts";
import { listRunBounds } from "../../core/model/stepId.ts";
import type { Store } from "../../store/store.ts";

/** Most times that a run may have been resumed so that an event for the first run still reaches the last. */
const maxResumes = 100;
/** Most runs with one id that are searched, newest first. */
const maxRunsWithId = 20;
/**
 * Most waiters for the event in one run that are searched. More are not needed, because a waiter for a
 * webhook has a unique event.
 */
const maxWaiters = 20;

/** The recipient of an event: a run by its id, and the waiters there for this event and of this kind. */
export type EventAddress = { account: AccountId; runId: string } & Pick<Waiter, "event" | "kind">;

/**
 * Returns the id of the active run that an event is for. That is the run with the given id, or the run that
 * resumed it after a failure. So the id of a run and the URL of a webhook stay valid when a run is resumed,
 * even if another run has been given its id since. If several runs qualify, a run that waits for the event
 * comes first, then the run with the given id, then the newest. Returns null if no such run is active.
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
