import type { AccountId } from "../../core/model/message.ts";
import type { Run, Waiter } from "../../core/model/run.ts";
import { listRunBounds } from "../../core/model/stepId.ts";
import type { Store } from "../../store/store.ts";

/** So often a run can fail and be resumed, for what is addressed to the first of them to reach the last. */
const mostResumes = 100;
/** So many runs of one id are looked at, the newest. */
const mostOfOneId = 20;
/** So many that wait for the event in one run are looked at: what waits there for a webhook has a name of its own. */
const mostWaiters = 20;

/** Whom an event is for: a run by its id. */
export type Addressed = { account: AccountId; runId: string } & Pick<Waiter, "event" | "kind">;

/**
 * The id under which a run goes on now: its own, or, where it has failed and was resumed, that of the run that goes on with it. So who knows
 * the id, or the URL of a webhook, reaches it still, also when another run has been given its id since: of several, the one that waits for the
 * event, otherwise the one of that id, otherwise the newest. Null: none goes on.
 */
export async function runIdNow({ read }: Store, of: Addressed): Promise<string | null> {
  const { account, runId } = of;
  const own = await read.activeRun(account, runId);
  if (own && (await isWaiting(read, of, own.run.id))) return runId;
  const { runs } = await read.runs({ account, filter: { runIds: [runId] }, cursor: null, count: mostOfOneId });
  const others: Going[] = [];
  for (const run of runs) others.push(...(await continuationOf(read, run)));
  for (const other of others) if (await isWaiting(read, of, other.key)) return other.runId;
  return own ? runId : (others[0]?.runId ?? null);
}

type Going = { key: string; runId: string };

/** Whether a run waits for the event. What waits is named by its run first. */
async function isWaiting(read: Store["read"], { account, event, kind }: Addressed, key: string): Promise<boolean> {
  const waiters = await read.waitersOfEvent(account, event, { after: listRunBounds(key).after, limit: mostWaiters });
  return waiters.some((waiter) => waiter.run === key && waiter.kind === kind);
}

async function continuationOf(read: Store["read"], first: Run): Promise<Going[]> {
  let run: Run | null = first;
  for (let resumes = 0; run?.continuedBy && resumes < mostResumes; resumes++) {
    const { key, runId }: NonNullable<Run["continuedBy"]> = run.continuedBy;
    if ((await read.activeRun(first.account, runId))?.run.id === key) return [{ key, runId }];
    run = await read.run(first.account, key);
  }
  return [];
}
