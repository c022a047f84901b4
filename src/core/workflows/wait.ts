import type { Decision, Draft, Moment, Needs } from "../decision/command.ts";
import { Later, Refusal } from "../values/errors.ts";
import type { Going } from "./history.ts";
import { appendStep, checkHistory, goingRun, hasRoom, mustGoOn, needsOfRun, noRoom } from "./history.ts";
import { destinationNeeds, mergeDestinationNeeds } from "../admission/needs.ts";
import { limits } from "../values/limits.ts";
import type { Account, AccountId, Bytes, MessageId, Millis, Outline } from "../model/message.ts";
import { together } from "../decision/needs.ts";
import { existing, howToRaise, limitsOf } from "../accounts/plans.ts";
import type { Scope } from "../model/rights.ts";
import type { Notification, Waiter } from "../model/run.ts";
import { headOf, mustBeStep } from "../model/run.ts";
import { toResultId, toStepId, toWaiterId } from "../model/stepId.ts";
import { waitSentAwayBy } from "./sentAway.ts";
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
    const [kept] = storedFor(draft, { account, run, kind, event });
    return {
      ...needsOfRun(draft, account, runId),
      ofRuns: [{ account, run, table: "notifications", event }],
      notifications: kept ? [[account, kept.id]] : [],
      outlines: { steps: [[account, toResultId(active.run, step)]] },
      waiters: [[account, toWaiterId(active.run, step)]],
      ...destinationNeeds(account, [url]),
    };
  },
  decide: ({ account: id, runId, waiter: post, scope }, draft, moment) => {
    const account = existing(draft.get("accounts", id));
    const going = mustGoOn(draft, id, runId);
    mustHaveStorage(account, { goesOn: true });
    const broken = scope && waitSentAwayBy(scope, runId, { to: [post.url, post.timeoutUrl], own: going.run.url });
    if (broken) throw new Refusal(broken.refused, broken.message);
    checkHistory(going);
    checkWait(account, post);
    mustBeStep(post.step);
    const key = toWaiterId(going.run.id, post.step);
    if (draft.get("waiters", id, key) || draft.outline("steps", id, toResultId(going.run.id, post.step))) return { waits: false };
    const { wait: span, ...rest } = post;
    const waiter: Waiter = {
      ...{ ...rest, account: id, id: key, run: going.run.id, runId, createdAt: moment.now },
      ...{ dueAt: moment.now + span, child: null, ...(going.run.redaction && { redaction: going.run.redaction }) },
    };
    const kept = storedFor(draft, waiter)[0];
    if (!kept) {
      checkWaiters(going);
      putWaiter(draft, waiter);
      return { waits: true };
    }
    const body = draft.get("notifications", id, kept.id)?.body;
    // Another one of this batch has taken the one that was loaded.
    if (!body) throw new Later();
    const result = resultOf(waiter, body);
    const { stepId, stepName } = post.step;
    if (!hasRoom(going, result.byteLength)) throw noRoom(going, `eventId: step ${String(stepId)} ${JSON.stringify(stepName)}`);
    draft.drop("notifications", id, kept.id);
    wake(draft, moment, account, going, { waiter, result, isInTime: true });
    return { waits: false };
  },
};

function checkWait(account: Account, { wait: span }: WaitPost): void {
  const { delay: most } = limitsOf(account);
  if (span <= most) return;
  const problem = `${span / 1000} seconds asked for, the limit is ${most / 1000}${howToRaise(account, "delay")}`;
  throw new Refusal("limit-exceeded", `timeout: ${problem}`);
}

/** Each will be a step of the history. Throws `Refusal`. */
function checkWaiters({ run, active }: Going): void {
  const { waiting } = active;
  if (active.steps + waiting < limits.steps) return;
  const problem = `the run ${run.runId.slice(0, 200)} has ${active.steps}, and ${waiting} that wait`;
  throw new Refusal("limit-exceeded", `steps: ${problem}, the limit is ${limits.steps}`);
}

/** Events that a waiter would have taken, oldest first. */
const storedFor = (
  draft: Draft,
  { account, run, kind, event }: Pick<Waiter, "account" | "run" | "kind" | "event">,
): Outline<Notification>[] => draft.ofRun("notifications", account, run).filter((one) => one.event === event && one.kind === kind);

/** What a wait comes to. `event` null: the time is over. */
function resultOf({ step, event: waitEventId, timeout }: Waiter, event: Bytes | null): Bytes {
  const out = event === null ? {} : { out: base64(event) };
  return new TextEncoder().encode(JSON.stringify({ ...step, waitEventId, timeout, ...out, waitTimeout: event === null }));
}

type Woken = { waiter: Waiter; result: Bytes; isInTime: boolean };

/** Ends a wait: its step has a result, and its run goes on. */
function wake(draft: Draft, moment: Moment, account: Account, going: Going, { waiter, result, isInTime }: Woken): MessageId {
  dropWaiter(draft, waiter.account, waiter.id);
  const message = appendStep(draft, moment, account, going, {
    ...{ callType: "step", head: headOf(waiter.step), body: result },
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
      return needsOfWaking(
        draft,
        input.waiterIds.flatMap((id) => draft.get("waiters", account, id) ?? []),
      );
    }
    const active = draft.get("activeRuns", account, input.runId);
    if (!active) return {};
    const { run } = active;
    const waiters = draft.ofRun("waiters", account, run).filter(({ event }) => event === input.event);
    return together([
      needsOfRun(draft, account, input.runId),
      // Where nothing waits for the event, it is kept, if there is room.
      { ofRuns: [{ account, run, table: "waiters", event: input.event } as const, { account, run, table: "notifications" } as const] },
      needsOfWaking(draft, waiters),
    ]);
  },
  decide: (input, draft, moment) => {
    const account = existing(draft.get("accounts", input.account));
    mustHaveStorage(account, { goesOn: true });
    const waiters =
      "runId" in input ? waitersInRun(draft, input) : input.waiterIds.flatMap((id) => draft.get("waiters", account.id, id) ?? []);
    const wanted = waiters.filter(({ event, kind }) => event === input.event && kind === ("kind" in input ? input.kind : "event"));
    const woken = "kind" in input && input.kind === "webhook" ? wanted.slice(0, 1) : wanted;
    const notified = woken.flatMap((waiter): Notified[] => {
      const going = goingRun(draft, account.id, waiter.runId, waiter.run);
      if (!going) return [];
      const result = resultOf(waiter, input.body);
      if (!hasRoom(going, result.byteLength)) {
        if ("runId" in input) throw noRoom(going, "eventId");
        return [];
      }
      const messageId = wake(draft, moment, account, going, { waiter, result, isInTime: true });
      return [{ waiter, messageId, runId: waiter.runId, createdAt: going.run.createdAt }];
    });
    if (notified.length > 0 || !("runId" in input)) return { notified, stored: false };
    store(draft, moment, input);
    return { notified, stored: true };
  },
};

function waitersInRun(draft: Draft, { account, runId }: { account: AccountId; runId: string }): Waiter[] {
  const going = goingRun(draft, account, runId);
  if (!going) {
    throw new Refusal("not-found", `workflowRunId: there is no run ${JSON.stringify(runId.slice(0, 200))} that has not ended`);
  }
  return [...draft.ofRun("waiters", account, going.run.id)].sort((a, b) => a.createdAt - b.createdAt);
}

function store(
  draft: Draft,
  moment: Moment,
  input: { account: AccountId; event: string; body: Bytes; runId: string; kind: "event" | "webhook" },
): void {
  const { account, event, body, runId, kind } = input;
  const going = mustGoOn(draft, account, runId);
  const kept = draft.ofRun("notifications", account, going.run.id);
  const bytes = kept.reduce((sum, { size }) => sum + size, body.byteLength);
  if (kept.length >= limits.notifications || bytes > limits.notificationBytes) {
    const problem = `${kept.length} events of ${bytes} bytes wait for the run ${runId.slice(0, 200)} to ask for them`;
    throw new Refusal("limit-exceeded", `eventId: ${problem}, the limits are ${limits.notifications} and ${limits.notificationBytes}`);
  }
  const id = toStepId(going.run.id, moment.newId("ntf"));
  draft.put("notifications", { account, id, run: going.run.id, kind, event, createdAt: moment.now, size: body.byteLength, body });
}

/** What must be seen to wake waiters: their runs, and what their messages pass. */
export function needsOfWaking(draft: Draft, waiters: readonly Waiter[]): Needs {
  return together([
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
    ...waiters.map(({ account, runId }) => needsOfRun(draft, account, runId)),
  ]);
}

/** Ends waits whose time is over. */
export function giveUpWaiting(draft: Draft, moment: Moment, waiters: readonly Waiter[]): void {
  for (const waiter of waiters) {
    const account = draft.get("accounts", waiter.account);
    const going = goingRun(draft, waiter.account, waiter.runId, waiter.run);
    if (account && going) wake(draft, moment, account, going, { waiter, result: resultOf(waiter, null), isInTime: false });
    else {
      draft.fault(`the step ${waiter.id} of account ${waiter.account} waits for a run that is not there`);
      draft.drop("waiters", waiter.account, waiter.id);
    }
  }
}
