import type { Draft, Moment } from "../decision/command.ts";
import type { OngoingRun } from "./history.ts";
import { appendStep, findRunIfOngoing } from "./history.ts";
import type { Account } from "../model/account.ts";
import type { Bytes, MessageId } from "../values/basics.ts";
import type { Waiter } from "../model/run.ts";
import { parseStepHead } from "../model/run.ts";
import { dropWaiter } from "./waiters.ts";
import { base64 } from "../values/base64.ts";

/** Returns the result of a wait. If `event` is null, the wait has timed out. */
export function makeWaitResult({ step, event: waitEventId, timeout }: Waiter, event: Bytes | null): Bytes {
  const out = event === null ? {} : { out: base64(event) };
  return new TextEncoder().encode(
    JSON.stringify({ ...step, waitEventId, timeout, ...out, waitTimeout: event === null }),
  );
}

type WakeInput = {
  account: Account;
  ongoing: OngoingRun;
  waiter: Waiter;
  result: Bytes;
  isInTime: boolean;
};

/** Ends a wait: the step gets its result, and its run continues. */
export function wake(
  draft: Draft,
  moment: Moment,
  { account, ongoing, waiter, result, isInTime }: WakeInput,
): MessageId {
  dropWaiter(draft, waiter.account, waiter.id);
  const message = appendStep(draft, moment, {
    account,
    ongoing,
    step: {
      callType: "step",
      head: parseStepHead(waiter.step),
      body: result,
      waited: { createdAt: waiter.createdAt, dueAt: waiter.dueAt, child: null },
      url: isInTime ? waiter.url : waiter.timeoutUrl,
      headers: isInTime ? waiter.headers : waiter.timeoutHeaders,
      overrides: { failureCallback: waiter.failureCallback ?? null },
    },
  });
  return message.id;
}

/** Ends waits whose deadline has passed. */
export function endExpiredWaits(draft: Draft, moment: Moment, waiters: readonly Waiter[]): void {
  for (const waiter of waiters) {
    const account = draft.get("accounts", waiter.account);
    const ongoing = findRunIfOngoing(draft, waiter.account, waiter);
    if (account && ongoing)
      wake(draft, moment, {
        account,
        ongoing,
        waiter,
        result: makeWaitResult(waiter, null),
        isInTime: false,
      });
    else {
      draft.fault(`removed waiter ${waiter.id} of account ${waiter.account}: its run does not exist`);
      draft.drop("waiters", waiter.account, waiter.id);
    }
  }
}
