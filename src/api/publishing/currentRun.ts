import type { AccountId } from "../../core/model/message.ts";
import type { Run, Waiter } from "../../core/model/run.ts";
import { listRunBounds } from "../../core/model/stepId.ts";
import type { Store } from "../../store/store.ts";

/** So often a run can fail and be resumed, for what is addressed to the first of them to reach the last. */
const maxResumes = 100;
/** So many runs of one id are looked at, the newest. */
const maxRunsWithId = 20;
/** So many that wait for the event in one run are looked at: what waits there for a webhook has a name of its own. */
const maxWaiters = 20;

/** Whom an event is for: a run by its id. */
export type EventAddress = { account: AccountId; runId: string } & Pick<Waiter, "event" | "kind">;

/**
 * The id under which a run goes on now: its own, or, where it has failed and was resumed, that of the run that goes on with it. So who knows
 * the id, or the URL of a webhook, reaches it still, also when another run has been given its id since: of several, the one that waits for the
 * event, otherwise the one of that id, otherwise the newest. Null: none goes on.
 */
export async function findCurrentRunId({ read }: Store, address: EventAddress): Promise<string | null> {
  const { account, runId } = address;
  const own = await read.activeRun(account, runId);
  if (own && (await isWaiting(read, address, own.run.id))) return runId;
  const { runs } = await read.runs({ account, filter: { runIds: [runId] }, cursor: null, count: maxRunsWithId });
  const others: Continuation[] = [];
  for (const run of runs) others.push(...(await findContinuation(read, run)));
  for (const other of others) if (await isWaiting(read, address, other.key)) return other.runId;
  return own ? runId : (others[0]?.runId ?? null);
}

type Continuation = { key: string; runId: string };

/** Whether a run waits for the event. What waits is named by its run first. */
async function isWaiting(read: Store["read"], { account, event, kind }: EventAddress, key: string): Promise<boolean> {
  const waiters = await read.listEventWaiters(account, event, { after: listRunBounds(key).after, limit: maxWaiters });
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
