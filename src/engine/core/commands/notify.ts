import type { Decision, Draft, Moment } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import {
  findOngoingRun,
  findRunIfOngoing,
  fitsHistory,
  requireOngoingRun,
  noRoomRefusal,
} from "../workflows/history.ts";
import { limits } from "../values/limits.ts";
import type { AccountId, Bytes, MessageId, Millis } from "../values/basics.ts";
import { requireAccount } from "../accounts/plans.ts";
import type { Waiter } from "../model/run.ts";
import { toStepId } from "../model/stepId.ts";
import { assertStorageAvailable } from "../limits/storageQuota.ts";
import { makeWaitResult, wake } from "../workflows/wake.ts";

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
    assertStorageAvailable(account, { continuesRun: true, isDiskLow: moment.isDiskLow });
    const waiters =
      "runId" in input
        ? listWaiters(draft, input)
        : input.waiterIds.flatMap((id) => draft.get("waiters", account.id, id) ?? []);
    const candidates = waiters.filter(
      ({ event, kind }) => event === input.event && kind === ("kind" in input ? input.kind : "event"),
    );
    const woken = "kind" in input && input.kind === "webhook" ? candidates.slice(0, 1) : candidates;
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
  const ongoing = requireOngoingRun(draft, account, runId);
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
