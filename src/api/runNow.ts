import type { AccountId } from "../core/message.ts";
import type { Run, Waiter } from "../core/run.ts";
import type { Store } from "../store/store.ts";

/** So often a run can fail and be resumed, for what is addressed to the first of them to reach the last. */
const mostResumes = 100;
/** So many runs of one id are looked at, the newest. */
const mostOfOneId = 20;
/** So many that wait for one event are looked at: those of webhooks have an event each. */
const mostWaiters = 100;

/** Whom an event is for: a run by its id. */
export type Addressed = { account: AccountId; runId: string } & Pick<Waiter, "event" | "kind">;

/**
 * The id under which a run goes on now: its own, or, where it has failed and was resumed, that of the run that goes on with it. So who knows
 * the id, or the URL of a webhook, reaches it still, also when another run has been given its id since: of several, the one that waits for the
 * event, otherwise the one of that id, otherwise the newest. Null: none goes on.
 */
export async function runIdNow({ read }: Store, { account, runId, event, kind }: Addressed): Promise<string | null> {
  const own = (await read.activeRun(account, runId)) ? [runId] : [];
  const waiters = await read.waitersOfEvent(account, event, { limit: mostWaiters });
  const waiting = new Set(waiters.flatMap((waiter) => (waiter.kind === kind ? [waiter.runId] : [])));
  const [first] = own;
  if (first !== undefined && (waiting.has(first) || waiting.size === 0)) return first;
  const { runs } = await read.runs({ account, filter: { runIds: [runId] }, cursor: null, count: mostOfOneId });
  for (const run of runs) own.push(...(await continuationOf(read, run)));
  return own.find((id) => waiting.has(id)) ?? own[0] ?? null;
}

async function continuationOf(read: Store["read"], first: Run): Promise<string[]> {
  let run: Run | null = first;
  for (let resumes = 0; run?.continuedBy && resumes < mostResumes; resumes++) {
    const { key, runId }: NonNullable<Run["continuedBy"]> = run.continuedBy;
    if ((await read.activeRun(first.account, runId))?.run.id === key) return [runId];
    run = await read.run(first.account, key);
  }
  return [];
}
