import type { Draft } from "../decision/command.ts";
import type { AccountId } from "../model/message.ts";
import type { Waiter } from "../model/run.ts";

// A run that goes on counts those of its steps that wait, so that nobody has to look at all of them to know how many there are.

/** Lets a step wait. The caller has asked for its run. */
export function putWaiter(draft: Draft, waiter: Waiter): void {
  draft.put("waiters", waiter);
  changeWaiting(draft, waiter, 1);
}

/** A step waits no more. True if it did. The caller has asked for the waiter and its run. */
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
  if (active.waiting + change < 0) draft.fault(`the run ${run} of account ${account} counted too few steps that wait`);
  draft.put("activeRuns", { ...active, waiting: Math.max(0, active.waiting + change) });
}
