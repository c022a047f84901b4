import type { AccountId } from "../core/message.ts";
import type { Run } from "../core/run.ts";
import type { Store } from "../store/store.ts";

/** So often a run can fail and be resumed, for what is addressed to the first of them to reach the last. */
const mostResumes = 100;

/**
 * The id under which a run goes on now: its own, or, where it has failed and was resumed, that of the run that goes on
 * with it. So who knows the id, or the URL of a webhook, reaches it still. Null: none goes on.
 */
export async function runIdNow({ read }: Store, account: AccountId, runId: string): Promise<string | null> {
  if (await read.activeRun(account, runId)) return runId;
  const { runs } = await read.runs({ account, filter: { runIds: [runId] }, cursor: null, count: 1 });
  let run: Run | null = runs[0] ?? null;
  for (let resumes = 0; run?.continuedBy && resumes < mostResumes; resumes++) {
    const { key, runId: next }: NonNullable<Run["continuedBy"]> = run.continuedBy;
    if ((await read.activeRun(account, next))?.run.id === key) return next;
    run = await read.run(account, key);
  }
  return null;
}
