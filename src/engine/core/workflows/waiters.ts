import type { Draft } from "../decision/command.ts";
import type { AccountId } from "../values/basics.ts";
import type { Waiter } from "../model/run.ts";

// The active run counts its waiting steps, so that they need not be loaded to be counted.

/** Lets a step wait. */
export function putWaiter(draft: Draft, waiter: Waiter): void {
  draft.put("waiters", waiter);
  changeWaiting(draft, waiter, 1);
}

/** Ends the wait of a step. Returns false if the step did not wait. */
export function dropWaiter(draft: Draft, account: AccountId, id: string): boolean {
  const waiter = draft.get("waiters", account, id);
  if (!waiter) return false;
  draft.drop("waiters", account, id);
  changeWaiting(draft, waiter, -1);
  return true;
}

function changeWaiting(draft: Draft, { account, runId, run }: Waiter, change: 1 | -1): void {
  const active = draft.get("activeRuns", account, runId);
  if (active?.run !== run) return;
  if (active.waiting + change < 0)
    draft.fault(`run ${run} of account ${account}: the number of waiting steps would become negative`);
  draft.put("activeRuns", { ...active, waiting: Math.max(0, active.waiting + change) });
}
