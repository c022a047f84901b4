import type { Decision, Draft, Moment } from "../decision/command.ts";
import type { Cancelled, NotDone } from "../values/errors.ts";
import { toFailedMember } from "../values/errors.ts";
import { release } from "../admission/admission.ts";
import { log } from "../admission/messageLog.ts";
import {
  appendStep,
  findOngoingRun,
  findRunIfOngoing,
  fitsHistory,
  noRoomRefusal,
  pickOwnFailureCallback,
} from "./history.ts";
import type { OngoingRun } from "./history.ts";
import type { ActivityName } from "../model/activity.ts";
import type { Account } from "../model/account.ts";
import type { AccountId, Bytes, MessageId } from "../values/basics.ts";
import type { MessageState } from "../model/messageState.ts";
import type { RunKey } from "../model/runPost.ts";
import { isBeingSent, isUnfinished } from "../model/messageState.ts";
import { noBytes } from "../values/basics.ts";
import { requireAccount } from "../accounts/plans.ts";
import type { Invoker, Run, RunState } from "../model/run.ts";
import { parseStepHead } from "../model/run.ts";
import { toStepId, toStepKey, toWaiterId } from "../model/stepId.ts";
import { dropWaiter } from "./waiters.ts";

/** The state of a run at its end, with its result or its failure. */
export type RunEnding = { state: Exclude<RunState, "RUN_STARTED">; result?: Bytes; failure?: Run["failure"] };

/**
 * Ends a run and returns it in its final state. Messages that wait to be sent are dropped, its waiters and
 * notifications are removed, and the run that invoked it continues. A message that is being sent may still
 * arrive. Its outcome changes nothing then, and it is not sent again.
 */
export function endRun(
  draft: Draft,
  moment: Moment,
  { account, ongoing, ending }: { account: Account; ongoing: OngoingRun; ending: RunEnding },
): Run {
  const { run, active } = ongoing;
  draft.drop("activeRuns", account.id, active.runId);
  for (const state of draft.listRunRows("messages", { account: account.id, run: run.id })) {
    if (isUnfinished(state) && !isBeingSent(state)) dropMessage(draft, moment, state);
  }
  const waiters =
    active.waiting === 0 ? [] : draft.listRunRows("waiters", { account: account.id, run: run.id });
  for (const { id } of waiters) draft.drop("waiters", account.id, id);
  for (const { id } of draft.listRunRows("notifications", { account: account.id, run: run.id }))
    draft.drop("notifications", account.id, id);
  const ended: Run = {
    ...run,
    state: ending.state,
    endedAt: moment.now,
    steps: active.steps,
    body: ending.result ?? noBytes,
    failure: ending.failure ?? null,
  };
  draft.put("runs", ended);
  draft.record(endActivities[ending.state]);
  const { invoker } = ended;
  if (invoker) reportToInvoker(draft, moment, { account, ended, invoker, messageId: active.firstMessage });
  return ended;
}

const endActivities: Record<RunEnding["state"], ActivityName> = {
  RUN_SUCCESS: "run succeeded",
  RUN_FAILED: "run failed",
  RUN_CANCELED: "run cancelled",
};

/** Drops a message that must not be sent because its run has ended. */
export function dropMessage(draft: Draft, moment: Moment, state: MessageState): void {
  draft.drop("messages", state.account, state.id);
  log(draft, moment, { message: state, row: { states: ["CANCELLED"] } });
  release(draft, moment, state);
}

/** Reports whether the run of a message has ended while the message was being sent. */
export const hasRunEnded = (draft: Draft, { account, run }: MessageState): boolean =>
  run !== null && draft.get("runs", account, run)?.state !== "RUN_STARTED";

/** A run that ended, the run that invoked it, and the message that carried its initial payload. */
type EndOfInvokedRun = { account: Account; ended: Run; invoker: Invoker; messageId: MessageId };

/**
 * Stores the result of the step that invoked a run, so that the invoking run continues. If the invoking run
 * has ended, the result is only recorded. Throws `Refusal` if the result does not fit into
 * the history of the invoking run.
 */
function reportToInvoker(
  draft: Draft,
  moment: Moment,
  { account, ended, invoker, messageId }: EndOfInvokedRun,
): void {
  const step = { ...invoker.step, out: JSON.stringify(makeInvokeResult(ended)) };
  const head = parseStepHead(invoker.step);
  const body = new TextEncoder().encode(JSON.stringify(step));
  const child = { run: ended.id, runId: ended.runId, url: ended.url, createdAt: ended.createdAt, messageId };
  const waited = { createdAt: ended.createdAt, dueAt: null, child };
  const ongoing = findRunIfOngoing(draft, account.id, invoker);
  dropWaiter(draft, account.id, toWaiterId(invoker.run, invoker.step));
  // The endpoint itself may have posted a result already.
  if (draft.inspectWithoutBody("steps", account.id, toStepId(invoker.run, toStepKey("step", head, -1))))
    return;
  if (ongoing) {
    if (ended.body.byteLength > 0 && !fitsHistory(ongoing, body.byteLength))
      throw noRoomRefusal(ongoing, "result");
    appendStep(draft, moment, {
      account,
      ongoing,
      step: {
        callType: "step",
        head,
        body,
        url: invoker.url,
        headers: invoker.headers,
        waited,
        overrides: { failureCallback: pickOwnFailureCallback(ongoing.run, invoker) },
      },
    });
    return;
  }
  const invoking = draft.get("runs", account.id, invoker.run);
  if (!invoking) return;
  draft.put("steps", {
    account: account.id,
    id: toStepId(invoking.id, toStepKey("step", head, invoking.steps)),
    run: invoking.id,
    position: invoking.steps,
    messageId,
    callType: "step",
    createdAt: moment.now,
    head,
    url: invoker.url,
    headers: invoker.headers,
    body,
    waited,
  });
  draft.put("runs", { ...invoking, steps: invoking.steps + 1 });
}

/**
 * Returns the result of the invoking step. `body` is present only if the run returned something.
 */
function makeInvokeResult({ state, body }: Run): { body?: string; isCanceled: boolean; isFailed: boolean } {
  return {
    ...(state === "RUN_SUCCESS" && body.byteLength > 0 ? { body: new TextDecoder().decode(body) } : {}),
    isCanceled: state === "RUN_CANCELED",
    isFailed: state === "RUN_FAILED",
  };
}

type Named = { account: AccountId; runIds: readonly string[] };

/**
 * Cancels runs on request. Runs that do not exist or have ended are reported as failed. If `keys` is given,
 * only runs with these keys are cancelled. A later run with the same run id then continues.
 */
export const cancelRuns: Decision<Named & { keys?: readonly RunKey[] }, Cancelled> = {
  decide: (named, draft, moment) => {
    const account = requireAccount(draft.get("accounts", named.account));
    const keys = named.keys && new Set(named.keys);
    let cancelled = 0;
    const failed: NotDone[] = [];
    for (const runId of new Set(named.runIds)) {
      const ongoing = findOngoingRun(draft, account.id, runId);
      if (!ongoing || keys?.has(ongoing.run.id) === false) {
        failed.push({ id: runId, reason: "no active run has this id" });
        continue;
      }
      endRun(draft, moment, { account, ongoing, ending: { state: "RUN_CANCELED" } });
      cancelled++;
    }
    return { cancelled, ...toFailedMember(failed) };
  },
};
