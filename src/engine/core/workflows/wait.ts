import type { Decision, Draft, Moment } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import type { OngoingRun } from "./history.ts";
import {
  appendStep,
  checkHistory,
  findOngoingRun,
  findRunIfOngoing,
  fitsHistory,
  mustFindOngoingRun,
  noRoomRefusal,
  pickOwnFailureCallback,
} from "./history.ts";
import { limits } from "../values/limits.ts";
import type { Account } from "../model/account.ts";
import type { CallbackSettings } from "../model/sendSettings.ts";
import type { WithoutBody } from "../model/message.ts";
import { type AccountId, type Bytes, type MessageId, type Millis, noBytes } from "../values/basics.ts";
import { requireAccount, formatRaiseHint, readLimits } from "../accounts/plans.ts";
import type { Scope } from "../model/rights.ts";
import type { Notification, Waiter } from "../model/run.ts";
import { parseStepHead, mustBeStep } from "../model/run.ts";
import { toResultId, toStepId, toWaiterId } from "../model/stepId.ts";
import { findWaitContentRefusal } from "./contentScope.ts";
import { mustHaveStorage } from "../limits/storageQuota.ts";
import { settlePosted } from "./posted.ts";
import { dropWaiter, putWaiter } from "./waiters.ts";
import { base64 } from "../values/base64.ts";

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
    const ongoing = mustFindOngoingRun(draft, id, runId);
    mustHaveStorage(account, { continuesRun: true, isDiskLow: moment.isDiskLow });
    const refusal = scope && findWaitContentRefusal(scope, ongoing.run, post);
    if (refusal) throw new Refusal(refusal.refused, refusal.message);
    checkHistory(ongoing);
    checkWait(account, post);
    mustBeStep(post.step);
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
      checkWaiters(ongoing);
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

function checkWait(account: Account, { wait: span }: WaitPost): void {
  const { delay: maxDelay } = readLimits(account);
  if (span <= maxDelay) return;
  const problem = `timeout: ${span / 1000} seconds exceeds the limit of ${maxDelay / 1000}`;
  throw new Refusal("limit-exceeded", `${problem}${formatRaiseHint(account, "delay")}`);
}

/**
 * Throws `Refusal` if the history cannot hold another waiting step. Each waiter will become a step of the
 * history.
 */
function checkWaiters({ run, active }: OngoingRun): void {
  const { waiting } = active;
  if (active.steps + waiting < limits.steps) return;
  const problem = `the run ${run.runId.slice(0, 200)} has ${active.steps} steps, and ${waiting} that wait`;
  throw new Refusal("limit-exceeded", `steps: ${problem}; the limit is ${limits.steps}`);
}

/** Returns the stored events that match a waiter, oldest first. */
const listStoredEvents = (
  draft: Draft,
  { account, run, kind, event }: Pick<Waiter, "account" | "run" | "kind" | "event">,
): WithoutBody<Notification>[] =>
  draft.listRunRows("notifications", { account, run }, event).filter((one) => one.kind === kind);

/** Returns the result of a wait. If `event` is null, the wait has timed out. */
function makeWaitResult({ step, event: waitEventId, timeout }: Waiter, event: Bytes | null): Bytes {
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
function wake(
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

/** A waiter that was woken, and the message that carries its result. */
export type Notified = { waiter: Waiter; messageId: MessageId; runId: string; createdAt: Millis };

/**
 * With `waiterIds`, the waiters may belong to any runs. Otherwise they belong to one run, which stores the
 * event if no step waits for it.
 */
type NotifyInput = { account: AccountId; event: string; body: Bytes } & (
  | { waiterIds: readonly string[] }
  | { runId: string; kind: "event" | "webhook" }
);

/**
 * Wakes the steps that wait for an event. An event wakes all of them; a call to a webhook wakes only the step
 * that began to wait first. Waiters given by id are skipped if they no longer wait, or if the history of
 * their run has no room for the event.
 *
 * An event for one run wakes no step and throws `Refusal` if that run has ended, stores too many events, or
 * has no room in its history.
 */
export const notify: Decision<NotifyInput, { notified: Notified[]; stored: boolean }> = {
  decide: (input, draft, moment) => {
    const account = requireAccount(draft.get("accounts", input.account));
    mustHaveStorage(account, { continuesRun: true, isDiskLow: moment.isDiskLow });
    const waiters =
      "runId" in input
        ? listWaiters(draft, input)
        : input.waiterIds.flatMap((id) => draft.get("waiters", account.id, id) ?? []);
    const wanted = waiters.filter(
      ({ event, kind }) => event === input.event && kind === ("kind" in input ? input.kind : "event"),
    );
    const woken = "kind" in input && input.kind === "webhook" ? wanted.slice(0, 1) : wanted;
    const notified = woken.flatMap((waiter): Notified[] => {
      const ongoing = findRunIfOngoing(draft, account.id, waiter);
      if (!ongoing) return [];
      const result = makeWaitResult(waiter, input.body);
      if (!fitsHistory(ongoing, result.byteLength)) {
        if ("runId" in input) throw noRoomRefusal(ongoing, "eventId");
        return [];
      }
      const messageId = wake(draft, moment, { account, ongoing, waiter, result, isInTime: true });
      return [{ waiter, messageId, runId: waiter.runId, createdAt: ongoing.run.createdAt }];
    });
    if (notified.length > 0 || !("runId" in input)) return { notified, stored: false };
    storeEvent(draft, moment, input);
    return { notified, stored: true };
  },
};

/** Returns the steps of a run that wait for an event, in the order in which they began to wait. */
function listWaiters(
  draft: Draft,
  { account, runId, event }: { account: AccountId; runId: string; event: string },
): Waiter[] {
  const ongoing = findOngoingRun(draft, account, runId);
  if (!ongoing) {
    throw new Refusal("not-found", `workflowRunId: no active run ${JSON.stringify(runId.slice(0, 200))}`);
  }
  const waiters = draft.listRunRows("waiters", { account, run: ongoing.run.id }, event);
  return [...waiters].sort((a, b) => a.createdAt - b.createdAt);
}

function storeEvent(
  draft: Draft,
  moment: Moment,
  input: { account: AccountId; event: string; body: Bytes; runId: string; kind: "event" | "webhook" },
): void {
  const { account, event, body, runId, kind } = input;
  const ongoing = mustFindOngoingRun(draft, account, runId);
  const stored = draft.listRunRows("notifications", { account, run: ongoing.run.id });
  const bytes = stored.reduce((sum, { size }) => sum + size, body.byteLength);
  if (stored.length >= limits.notifications || bytes > limits.notificationBytes) {
    const run = `the run ${runId.slice(0, 200)} keeps ${stored.length} events that no step waits for`;
    throw new Refusal(
      "limit-exceeded",
      `eventId: ${run}, and ${bytes} bytes with this event; ` +
        `the limits are ${limits.notifications} events and ${limits.notificationBytes} bytes`,
    );
  }
  const id = toStepId(ongoing.run.id, moment.newId("ntf"));
  draft.put("notifications", {
    account,
    id,
    run: ongoing.run.id,
    kind,
    event,
    createdAt: moment.now,
    size: body.byteLength,
    body,
  });
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
