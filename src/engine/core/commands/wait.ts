import type { Decision, Draft } from "../decision/command.ts";
import { Refusal, throwIfRefused } from "../values/errors.ts";
import type { OngoingRun } from "../workflows/history.ts";
import {
  assertHistoryLimit,
  fitsHistory,
  requireOngoingRun,
  noRoomRefusal,
  pickOwnFailureCallback,
} from "../workflows/history.ts";
import { formatDuration } from "../values/duration.ts";
import { limits } from "../values/limits.ts";
import type { Account } from "../model/account.ts";
import type { WithoutBody } from "../model/message.ts";
import type { CallbackSettings } from "../model/sendSettings.ts";
import { type AccountId, type Millis, noBytes } from "../values/basics.ts";
import { requireAccount, findRaise, readLimits } from "../accounts/plans.ts";
import type { Scope } from "../model/rights.ts";
import type { Notification, Waiter } from "../model/run.ts";
import { parseStepHead, assertStep } from "../model/run.ts";
import { toResultId, toWaiterId } from "../model/stepId.ts";
import { findWaitContentRefusal } from "../workflows/contentScope.ts";
import { assertStorageAvailable } from "../limits/storageQuota.ts";
import { settlePosted } from "../workflows/posted.ts";
import { putWaiter } from "../workflows/waiters.ts";
import { makeWaitResult, wake } from "../workflows/wake.ts";

/** A step that begins to wait. `wait` is the longest time, in milliseconds. */
export type WaitPost = Pick<
  Waiter,
  | "event"
  | "url"
  | "headers"
  | "given"
  | "timeout"
  | "timeoutUrl"
  | "timeoutHeaders"
  | "timeoutGiven"
  | "step"
> & { kind: "event" | "webhook"; wait: Millis; failureCallback?: CallbackSettings };

/** `scope` has the rights of a limited token. It is absent for any other token. */
type WaitInput = { account: AccountId; runId: string; waiter: WaitPost; scope?: Scope };

/**
 * Lets a step of a run wait for an event. An event that arrived earlier ends the wait at once. A step that
 * already waits, or has its result, is not changed. Throws `Refusal` if the run has ended, or if the token
 * may not send the history to the URLs of the post.
 */
export const wait: Decision<WaitInput, { waits: boolean }> = {
  decide: ({ account: id, runId, waiter: post, scope }, draft, moment) => {
    const account = requireAccount(draft.get("accounts", id));
    const ongoing = requireOngoingRun(draft, id, runId);
    assertStorageAvailable(account, { continuesRun: true, isDiskLow: moment.isDiskLow });
    throwIfRefused(scope && findWaitContentRefusal(scope, ongoing.run, post));
    assertHistoryLimit(ongoing);
    assertWaitTime(account, post);
    assertStep(post.step);
    const key = toWaiterId(ongoing.run.id, post.step);
    if (
      draft.get("waiters", id, key) ||
      draft.inspectWithoutBody("steps", id, toResultId(ongoing.run.id, post.step))
    )
      return { waits: false };
    settlePosted(draft, moment, { ongoing, head: parseStepHead(post.step) });
    const { wait: span, failureCallback: _, ...rest } = post;
    const failureCallback = pickOwnFailureCallback(ongoing.run, post);
    const waiter: Waiter = {
      ...rest,
      account: id,
      id: key,
      run: ongoing.run.id,
      runId,
      createdAt: moment.now,
      dueAt: moment.now + span,
      child: null,
      ...(failureCallback && { failureCallback }),
      ...(ongoing.run.redaction && { redaction: ongoing.run.redaction }),
    };
    const stored = listStoredEvents(draft, waiter)[0];
    if (!stored) {
      assertWaiterLimit(ongoing);
      putWaiter(draft, waiter);
      return { waits: true };
    }
    const body = draft.get("notifications", id, stored.id)?.body ?? noBytes;
    const result = makeWaitResult(waiter, body);
    const { stepId, stepName } = post.step;
    if (!fitsHistory(ongoing, result.byteLength))
      throw noRoomRefusal(ongoing, `eventId: step ${String(stepId)} ${JSON.stringify(stepName)}`);
    draft.drop("notifications", id, stored.id);
    wake(draft, moment, { account, ongoing, waiter, result, isInTime: true });
    return { waits: false };
  },
};

/** Returns the stored events that match a waiter, oldest first. */
const listStoredEvents = (
  draft: Draft,
  { account, run, kind, event }: Pick<Waiter, "account" | "run" | "kind" | "event">,
): WithoutBody<Notification>[] =>
  draft.listRunRows("notifications", { account, run }, event).filter((one) => one.kind === kind);

function assertWaitTime(account: Account, { wait: span }: WaitPost): void {
  const { delay: maxDelay } = readLimits(account);
  if (span <= maxDelay) return;
  throw new Refusal(
    "limit-exceeded",
    `timeout: ${formatDuration(span)} exceeds the limit of ${formatDuration(maxDelay)}`,
    { remedy: findRaise(account, "delay") },
  );
}

/**
 * Throws `Refusal` if the history cannot hold another waiting step. Each waiter will become a step of the
 * history.
 */
function assertWaiterLimit({ run, active }: OngoingRun): void {
  const { waiting } = active;
  if (active.steps + waiting < limits.steps) return;
  const problem = `the run ${run.runId.slice(0, 200)} has ${active.steps} steps, and ${waiting} that wait`;
  throw new Refusal("limit-exceeded", `steps: ${problem}; the limit is ${limits.steps}`);
}
