import type { Decision, Draft, Key, Moment, Needs } from "../decision/command.ts";
import type { Cancelled, NotDone } from "../values/errors.ts";
import { toFailedMember, Refusal } from "../values/errors.ts";
import { release } from "../admission/admission.ts";
import { log } from "../admission/messageLog.ts";
import { admissionNeeds, destinationNeeds, listLimiterKeysFor } from "../admission/needs.ts";
import { appendStep, findOngoingRun, fitsHistory, noRoomRefusal } from "./history.ts";
import type { OngoingRun } from "./history.ts";
import { mergeNeeds } from "../decision/needs.ts";
import type { Account, AccountId, Bytes, MessageId, MessageState, RunKey } from "../model/message.ts";
import { noBytes } from "../model/message.ts";
import { requireAccount } from "../accounts/plans.ts";
import type { Scope } from "../model/rights.ts";
import { findScopeRefusal } from "../model/rights.ts";
import type { Invoker, Run, RunState } from "../model/run.ts";
import { parseStepHead } from "../model/run.ts";
import { toStepId, toStepKey, toWaiterId } from "../model/stepId.ts";
import { dropWaiter } from "./waiters.ts";

/** What must be seen to end a run: all that belongs to it, and what the run that invoked it then does. */
export function endingNeeds(draft: Draft, account: AccountId, key: RunKey): Needs {
  const run = draft.get("runs", account, key);
  const active = run && draft.get("activeRuns", account, run.runId);
  const isActive = active?.run === key;
  const gates = isActive ? admissionNeeds(draft, draft.listRunRows("messages", account, key)) : { queueSlots: [], limiters: [] };
  const invokerKeys = run?.invoker && isActive ? invokerNeeds(draft, account, run.invoker) : noInvokerNeeds;
  return {
    runs: [[account, key], ...invokerKeys.runs],
    activeRuns: [...(run ? [[account, run.runId] as const] : []), ...invokerKeys.activeRuns],
    runRows: isActive ? runTables.map((table) => ({ account, run: key, table })) : [],
    waiters: invokerKeys.waiters,
    queueSlots: gates.queueSlots,
    limiters: [...gates.limiters, ...invokerKeys.limiters],
    hostWaitlists: invokerKeys.hostWaitlists,
    endpoints: invokerKeys.endpoints,
    withoutBodies: { steps: invokerKeys.steps },
  };
}

/** What goes with a run. */
const runTables = ["messages", "waiters", "notifications"] as const;

const none: readonly Key[] = [];
const noInvokerNeeds = { runs: none, activeRuns: none, limiters: none, hostWaitlists: none, endpoints: none, steps: none, waiters: none };

function invokerNeeds(draft: Draft, account: AccountId, { run, runId, url, step }: Invoker): typeof noInvokerNeeds {
  const invoking = draft.get("runs", account, run);
  return {
    runs: [[account, run]],
    activeRuns: [[account, runId]],
    limiters: invoking ? listLimiterKeysFor(account, [{ queue: null, flowControl: invoking.settings.flowControl }]) : [],
    ...destinationNeeds(account, [url]),
    steps: [[account, toStepId(run, toStepKey("step", parseStepHead(step), -1))]],
    waiters: [[account, toWaiterId(run, step)]],
  };
}

/** How a run ends. */
export type RunEnding = { state: Exclude<RunState, "RUN_STARTED">; result?: Bytes; failure?: Run["failure"] };

/**
 * Ends a run: what waits to be sent for it is dropped, nothing waits for an event any more, and the run that invoked it
 * goes on. What is being sent is left to arrive; its outcome changes nothing then, and it is not sent again. Answers with the run as it ended.
 */
export function endRun(draft: Draft, moment: Moment, account: Account, { run, active }: OngoingRun, ending: RunEnding): Run {
  draft.drop("activeRuns", account.id, active.runId);
  for (const state of draft.listRunRows("messages", account.id, run.id)) {
    if (state.state !== "active") dropMessage(draft, moment, state);
  }
  for (const { id } of draft.listRunRows("waiters", account.id, run.id)) draft.drop("waiters", account.id, id);
  for (const { id } of draft.listRunRows("notifications", account.id, run.id)) draft.drop("notifications", account.id, id);
  const ended: Run = {
    ...run,
    state: ending.state,
    endedAt: moment.now,
    steps: active.steps,
    body: ending.result ?? noBytes,
    failure: ending.failure ?? null,
  };
  draft.put("runs", ended);
  if (ended.invoker) reportToInvoker(draft, moment, account, ended, ended.invoker, active.firstMessage);
  return ended;
}

/** Drops a message that is not to be sent any more, because its run has ended. */
export function dropMessage(draft: Draft, moment: Moment, state: MessageState): void {
  draft.drop("messages", state.account, state.id);
  log(draft, moment, state, { states: ["CANCELLED"] });
  release(draft, moment, state);
}

/** The runs of these messages. */
export const listRunKeys = (states: readonly MessageState[]): Key[] =>
  states.flatMap(({ account, run }) => (run === null ? [] : [[account, run] as const]));

/** Whether the run of a message has ended while it was being sent. The caller has asked for the run. */
export const hasRunEnded = (draft: Draft, { account, run }: MessageState): boolean =>
  run !== null && draft.get("runs", account, run)?.state !== "RUN_STARTED";

/**
 * The step that invoked a run has its result. A run that has ended meanwhile only notes it (protocol 6.12, 5).
 * Throws `Refusal` when what was returned does not fit into the history of the run that waits for it.
 */
function reportToInvoker(draft: Draft, moment: Moment, account: Account, ended: Run, invoker: Invoker, messageId: MessageId): void {
  const step = { ...invoker.step, out: JSON.stringify(makeInvokeResult(ended)) };
  const head = parseStepHead(invoker.step);
  const body = new TextEncoder().encode(JSON.stringify(step));
  const child = { run: ended.id, runId: ended.runId, url: ended.url, createdAt: ended.createdAt, messageId };
  const waited = { createdAt: ended.createdAt, dueAt: null, child };
  const ongoing = findOngoingRun(draft, account.id, invoker.runId, invoker.run);
  dropWaiter(draft, account.id, toWaiterId(invoker.run, invoker.step));
  // The endpoint itself may have posted a result.
  if (draft.getWithoutBody("steps", account.id, toStepId(invoker.run, toStepKey("step", head, -1)))) return;
  if (ongoing) {
    if (ended.body.byteLength > 0 && !fitsHistory(ongoing, body.byteLength)) throw noRoomRefusal(ongoing, "result");
    appendStep(draft, moment, account, ongoing, { callType: "step", head, body, url: invoker.url, headers: invoker.headers, waited });
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

/** What the invoking step returns. `body` is absent unless there is a result (protocol 6.12, 4). */
function makeInvokeResult({ state, body }: Run): { body?: string; isCanceled: boolean; isFailed: boolean } {
  return {
    ...(state === "RUN_SUCCESS" && body.byteLength > 0 ? { body: new TextDecoder().decode(body) } : {}),
    isCanceled: state === "RUN_CANCELED",
    isFailed: state === "RUN_FAILED",
  };
}

type Named = { account: AccountId; runIds: readonly string[] };

const namedRunNeeds = ({ account, runIds }: Named): Needs => ({
  accounts: [[account]],
  activeRuns: runIds.map((runId) => [account, runId] as const),
});

const namedEndingNeeds = ({ account, runIds }: Named, draft: Draft): Needs =>
  mergeNeeds(
    runIds.flatMap((runId) => {
      const active = draft.get("activeRuns", account, runId);
      return active ? [endingNeeds(draft, account, active.run)] : [];
    }),
  );

/**
 * Ends a run that has come through, with what it returned. Of one that has ended nothing is asked any more. `scope`: of a
 * token with rights of its own, which ends runs of endpoints that it may publish to. Throws `Refusal`.
 */
export const finishRun: Decision<{ account: AccountId; runId: string; body: Bytes; scope?: Scope }, { finished: boolean }> = {
  needs: ({ account, runId }) => namedRunNeeds({ account, runIds: [runId] }),
  further: ({ account, runId }, draft) => namedEndingNeeds({ account, runIds: [runId] }, draft),
  decide: ({ account: id, runId, body, scope }, draft, moment) => {
    const account = requireAccount(draft.get("accounts", id));
    const ongoing = findOngoingRun(draft, id, runId);
    if (!ongoing) return { finished: false };
    const target = { url: ongoing.run.url, group: null, queue: null, callback: null, failureCallback: null };
    const refusal = scope && findScopeRefusal(scope, target, `the run ${runId}`);
    if (refusal) throw new Refusal(refusal.refused, refusal.message);
    endRun(draft, moment, account, ongoing, { state: "RUN_SUCCESS", result: body });
    return { finished: true };
  },
};

/**
 * Ends runs on request. Those that are unknown or have ended are passed over. `keys`: only these, and none that has begun
 * under one of the names since.
 */
export const cancelRuns: Decision<Named & { keys?: readonly RunKey[] }, Cancelled> = {
  needs: namedRunNeeds,
  further: namedEndingNeeds,
  decide: (named, draft, moment) => {
    const account = requireAccount(draft.get("accounts", named.account));
    const keys = named.keys && new Set(named.keys);
    let cancelled = 0;
    const failed: NotDone[] = [];
    for (const runId of new Set(named.runIds)) {
      const ongoing = findOngoingRun(draft, account.id, runId);
      if (!ongoing || keys?.has(ongoing.run.id) === false) {
        failed.push({ id: runId, reason: "there is no run of this id that has not ended" });
        continue;
      }
      endRun(draft, moment, account, ongoing, { state: "RUN_CANCELED" });
      cancelled++;
    }
    return { cancelled, ...toFailedMember(failed) };
  },
};
