import type { Decision, Draft, Moment, Needs } from "../decision/command.ts";
import { RetryInNextBatch, Refusal } from "../values/errors.ts";
import type { OngoingRun } from "./history.ts";
import { appendStep, checkHistory, findOngoingRun, fitsHistory, mustFindOngoingRun, runNeeds, noRoomRefusal } from "./history.ts";
import { destinationNeeds, mergeDestinationNeeds } from "../admission/needs.ts";
import { limits } from "../values/limits.ts";
import type { Account, AccountId, Bytes, MessageId, Millis, WithoutBody } from "../model/message.ts";
import { mergeNeeds } from "../decision/needs.ts";
import { requireAccount, formatRaiseHint, readLimits } from "../accounts/plans.ts";
import type { Scope } from "../model/rights.ts";
import type { Notification, Waiter } from "../model/run.ts";
import { parseStepHead, mustBeStep } from "../model/run.ts";
import { toResultId, toStepId, toWaiterId } from "../model/stepId.ts";
import { findWaitContentRefusal } from "./contentScope.ts";
import { mustHaveStorage } from "../accounts/storageQuota.ts";
import { dropWaiter, putWaiter } from "./waiters.ts";
import { base64 } from "../values/base64.ts";

/** A step that is to wait. `wait`: for how long. */
export type WaitPost = Pick<
  Waiter,
  "event" | "url" | "headers" | "given" | "timeout" | "timeoutUrl" | "timeoutHeaders" | "timeoutGiven" | "step"
> & { kind: "event" | "webhook"; wait: Millis };

/** `scope`: the rights of the token, if it has its own. */
type WaitInput = { account: AccountId; runId: string; waiter: WaitPost; scope?: Scope };

/**
 * Lets a step of a run wait for an event. One that came before is taken at once. A step that waits already, or has its
 * result, is left as it is. Throws `Refusal` if the run has ended, or if the token may not send it to that URL.
 */
export const wait: Decision<WaitInput, { waits: boolean }> = {
  needs: ({ account, runId }) => ({ accounts: [[account]], activeRuns: [[account, runId]] }),
  further: ({ account, runId, waiter: { step, url, kind, event } }, draft) => {
    const active = draft.get("activeRuns", account, runId);
    if (!active) return {};
    const { run } = active;
    const [stored] = listStoredEvents(draft, { account, run, kind, event });
    return {
      ...runNeeds(draft, account, runId),
      runRows: [{ account, run, table: "notifications", event }],
      notifications: stored ? [[account, stored.id]] : [],
      withoutBodies: { steps: [[account, toResultId(active.run, step)]] },
      waiters: [[account, toWaiterId(active.run, step)]],
      ...destinationNeeds(account, [url]),
    };
  },
  decide: ({ account: id, runId, waiter: post, scope }, draft, moment) => {
    const account = requireAccount(draft.get("accounts", id));
    const ongoing = mustFindOngoingRun(draft, id, runId);
    mustHaveStorage(account, { continuesRun: true });
    const refusal = scope && findWaitContentRefusal(scope, runId, { urls: [post.url, post.timeoutUrl], own: ongoing.run.url });
    if (refusal) throw new Refusal(refusal.refused, refusal.message);
    checkHistory(ongoing);
    checkWait(account, post);
    mustBeStep(post.step);
    const key = toWaiterId(ongoing.run.id, post.step);
    if (draft.get("waiters", id, key) || draft.getWithoutBody("steps", id, toResultId(ongoing.run.id, post.step))) return { waits: false };
    const { wait: span, ...rest } = post;
    const waiter: Waiter = {
      ...rest,
      account: id,
      id: key,
      run: ongoing.run.id,
      runId,
      createdAt: moment.now,
      dueAt: moment.now + span,
      child: null,
      ...(ongoing.run.redaction && { redaction: ongoing.run.redaction }),
    };
    const stored = listStoredEvents(draft, waiter)[0];
    if (!stored) {
      checkWaiters(ongoing);
      putWaiter(draft, waiter);
      return { waits: true };
    }
    const body = draft.get("notifications", id, stored.id)?.body;
    // Another one of this batch has taken the one that was loaded.
    if (!body) throw new RetryInNextBatch();
    const result = makeWaitResult(waiter, body);
    const { stepId, stepName } = post.step;
    if (!fitsHistory(ongoing, result.byteLength))
      throw noRoomRefusal(ongoing, `eventId: step ${String(stepId)} ${JSON.stringify(stepName)}`);
    draft.drop("notifications", id, stored.id);
    wake(draft, moment, account, ongoing, { waiter, result, isInTime: true });
    return { waits: false };
  },
};

function checkWait(account: Account, { wait: span }: WaitPost): void {
  const { delay: maxDelay } = readLimits(account);
  if (span <= maxDelay) return;
  const problem = `${span / 1000} seconds asked for, the limit is ${maxDelay / 1000}${formatRaiseHint(account, "delay")}`;
  throw new Refusal("limit-exceeded", `timeout: ${problem}`);
}

/** Each will be a step of the history. Throws `Refusal`. */
function checkWaiters({ run, active }: OngoingRun): void {
  const { waiting } = active;
  if (active.steps + waiting < limits.steps) return;
  const problem = `the run ${run.runId.slice(0, 200)} has ${active.steps}, and ${waiting} that wait`;
  throw new Refusal("limit-exceeded", `steps: ${problem}, the limit is ${limits.steps}`);
}

/** Events that a waiter would have taken, oldest first. */
const listStoredEvents = (
  draft: Draft,
  { account, run, kind, event }: Pick<Waiter, "account" | "run" | "kind" | "event">,
): WithoutBody<Notification>[] =>
  draft.listRunRows("notifications", account, run).filter((one) => one.event === event && one.kind === kind);

/** What a wait comes to. `event` null: the time is over. */
function makeWaitResult({ step, event: waitEventId, timeout }: Waiter, event: Bytes | null): Bytes {
  const out = event === null ? {} : { out: base64(event) };
  return new TextEncoder().encode(JSON.stringify({ ...step, waitEventId, timeout, ...out, waitTimeout: event === null }));
}

type WakeInput = { waiter: Waiter; result: Bytes; isInTime: boolean };

/** Ends a wait: its step has a result, and its run goes on. */
function wake(draft: Draft, moment: Moment, account: Account, ongoing: OngoingRun, { waiter, result, isInTime }: WakeInput): MessageId {
  dropWaiter(draft, waiter.account, waiter.id);
  const message = appendStep(draft, moment, account, ongoing, {
    callType: "step",
    head: parseStepHead(waiter.step),
    body: result,
    waited: { createdAt: waiter.createdAt, dueAt: waiter.dueAt, child: null },
    ...(isInTime ? { url: waiter.url, headers: waiter.headers } : { url: waiter.timeoutUrl, headers: waiter.timeoutHeaders }),
  });
  return message.id;
}

/** What a waiter got. */
export type Notified = { waiter: Waiter; messageId: MessageId; runId: string; createdAt: Millis };

/** `waiterIds`: of any runs. Otherwise those of one run, which keeps an event that none of them waits for. */
type NotifyInput = { account: AccountId; event: string; body: Bytes } & (
  | { waiterIds: readonly string[] }
  | { runId: string; kind: "event" | "webhook" }
);

/**
 * Wakes what waits for an event. All waiters are woken by an event, one by a call to a webhook: the first that waits.
 * What ended its wait before is passed over, and so is what has no room for the event in its history. Throws `Refusal`
 * where a run is named that has ended, keeps too much, or has no room: then nothing of it is woken.
 */
export const notify: Decision<NotifyInput, { notified: Notified[]; stored: boolean }> = {
  needs: (input) => {
    const { account } = input;
    if ("runId" in input) return { accounts: [[account]], activeRuns: [[account, input.runId]] };
    return { accounts: [[account]], waiters: input.waiterIds.map((id) => [account, id] as const) };
  },
  further: (input, draft) => {
    const { account } = input;
    if ("waiterIds" in input) {
      return wakeNeeds(
        draft,
        input.waiterIds.flatMap((id) => draft.get("waiters", account, id) ?? []),
      );
    }
    const active = draft.get("activeRuns", account, input.runId);
    if (!active) return {};
    const { run } = active;
    const waiters = draft.listRunRows("waiters", account, run).filter(({ event }) => event === input.event);
    return mergeNeeds([
      runNeeds(draft, account, input.runId),
      // Where nothing waits for the event, it is kept, if there is room.
      { runRows: [{ account, run, table: "waiters", event: input.event } as const, { account, run, table: "notifications" } as const] },
      wakeNeeds(draft, waiters),
    ]);
  },
  decide: (input, draft, moment) => {
    const account = requireAccount(draft.get("accounts", input.account));
    mustHaveStorage(account, { continuesRun: true });
    const waiters =
      "runId" in input ? waitersInRun(draft, input) : input.waiterIds.flatMap((id) => draft.get("waiters", account.id, id) ?? []);
    const wanted = waiters.filter(({ event, kind }) => event === input.event && kind === ("kind" in input ? input.kind : "event"));
    const woken = "kind" in input && input.kind === "webhook" ? wanted.slice(0, 1) : wanted;
    const notified = woken.flatMap((waiter): Notified[] => {
      const ongoing = findOngoingRun(draft, account.id, waiter.runId, waiter.run);
      if (!ongoing) return [];
      const result = makeWaitResult(waiter, input.body);
      if (!fitsHistory(ongoing, result.byteLength)) {
        if ("runId" in input) throw noRoomRefusal(ongoing, "eventId");
        return [];
      }
      const messageId = wake(draft, moment, account, ongoing, { waiter, result, isInTime: true });
      return [{ waiter, messageId, runId: waiter.runId, createdAt: ongoing.run.createdAt }];
    });
    if (notified.length > 0 || !("runId" in input)) return { notified, stored: false };
    storeEvent(draft, moment, input);
    return { notified, stored: true };
  },
};

function waitersInRun(draft: Draft, { account, runId }: { account: AccountId; runId: string }): Waiter[] {
  const ongoing = findOngoingRun(draft, account, runId);
  if (!ongoing) {
    throw new Refusal("not-found", `workflowRunId: there is no run ${JSON.stringify(runId.slice(0, 200))} that has not ended`);
  }
  return [...draft.listRunRows("waiters", account, ongoing.run.id)].sort((a, b) => a.createdAt - b.createdAt);
}

function storeEvent(
  draft: Draft,
  moment: Moment,
  input: { account: AccountId; event: string; body: Bytes; runId: string; kind: "event" | "webhook" },
): void {
  const { account, event, body, runId, kind } = input;
  const ongoing = mustFindOngoingRun(draft, account, runId);
  const stored = draft.listRunRows("notifications", account, ongoing.run.id);
  const bytes = stored.reduce((sum, { size }) => sum + size, body.byteLength);
  if (stored.length >= limits.notifications || bytes > limits.notificationBytes) {
    const problem = `${stored.length} events of ${bytes} bytes wait for the run ${runId.slice(0, 200)} to ask for them`;
    throw new Refusal("limit-exceeded", `eventId: ${problem}, the limits are ${limits.notifications} and ${limits.notificationBytes}`);
  }
  const id = toStepId(ongoing.run.id, moment.newId("ntf"));
  draft.put("notifications", { account, id, run: ongoing.run.id, kind, event, createdAt: moment.now, size: body.byteLength, body });
}

/** What must be seen to wake waiters: their runs, and what their messages pass. */
export function wakeNeeds(draft: Draft, waiters: readonly Waiter[]): Needs {
  return mergeNeeds([
    {
      accounts: waiters.map(({ account }) => [account] as const),
      activeRuns: waiters.map(({ account, runId }) => [account, runId] as const),
      ...mergeDestinationNeeds(
        waiters.map(({ account, url, timeoutUrl }) =>
          destinationNeeds(
            account,
            [url, timeoutUrl].filter((one) => one !== ""),
          ),
        ),
      ),
    },
    ...waiters.map(({ account, runId }) => runNeeds(draft, account, runId)),
  ]);
}

/** Ends waits whose time is over. */
export function endExpiredWaits(draft: Draft, moment: Moment, waiters: readonly Waiter[]): void {
  for (const waiter of waiters) {
    const account = draft.get("accounts", waiter.account);
    const ongoing = findOngoingRun(draft, waiter.account, waiter.runId, waiter.run);
    if (account && ongoing) wake(draft, moment, account, ongoing, { waiter, result: makeWaitResult(waiter, null), isInTime: false });
    else {
      draft.fault(`the step ${waiter.id} of account ${waiter.account} waits for a run that is not there`);
      draft.drop("waiters", waiter.account, waiter.id);
    }
  }
}
