import { brandNames } from "../values/brand.ts";
import type { Draft, Moment, Needs } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import { destinationNeeds, listLimiterKeysFor } from "../admission/needs.ts";
import type { OngoingRun, RunPostResult } from "./history.ts";
import { appendStep, checkHistory, mustFindOngoingRun, runNeeds, sendStep } from "./history.ts";
import type { Account, AccountId, StoredMessage, InvokerPost, MessageInput, RunPart, RunPost } from "../model/message.ts";
import { noBytes } from "../model/message.ts";
import type { Invoker, Run, Waiter } from "../model/run.ts";
import { mustBeStep, historySize } from "../model/run.ts";
import { initialStepKey, toResultId, toWaiterId } from "../model/stepId.ts";
import { countRun } from "../accounts/usage.ts";
import { putWaiter } from "./waiters.ts";

type StartPost = Extract<RunPost, { kind: "start" }>;
/** A letter that starts a workflow run. */
export type StartInput = MessageInput & { post: StartPost };

/** The runs that must be seen for a start: those of its name, and the one that invokes it. */
export const listNamedRuns = (account: AccountId, post: RunPost): (readonly [AccountId, string])[] => [
  ...(post.runId === "" ? [] : [[account, post.runId] as const]),
  ...(post.kind === "start" && post.invoker ? [[account, post.invoker.runId] as const] : []),
];

export function startNeeds(draft: Draft, account: AccountId, { post, url, flowControl }: StartInput): Needs {
  const { invoker } = post;
  const active = draft.get("activeRuns", account, post.runId);
  const ownNeeds = runNeeds(draft, account, post.runId);
  const parentNeeds = invoker ? runNeeds(draft, account, invoker.runId) : null;
  const invokerRun = invoker && draft.get("activeRuns", account, invoker.runId);
  return {
    // A run may end in the batch in which it starts, and its invoker goes on then.
    ...destinationNeeds(account, [url, ...(invoker ? [invoker.url] : [])]),
    runs: [...ownNeeds.runs, ...(parentNeeds?.runs ?? [])],
    limiters: [...listLimiterKeysFor(account, [{ queue: null, flowControl }]), ...ownNeeds.limiters, ...(parentNeeds?.limiters ?? [])],
    runSteps: active && post.origin === "again" ? [{ account, run: active.run, stepKey: initialStepKey }] : [],
    withoutBodies: { steps: invoker && invokerRun ? [[account, toResultId(invokerRun.run, invoker.step)]] : [] },
    waiters: invoker && invokerRun ? [[account, toWaiterId(invokerRun.run, invoker.step)]] : [],
  };
}

/**
 * Starts a run, which exists from now on even if its first message is delayed. While one of its name has not ended, none
 * is made, and the answer is that one; but one that the endpoint itself starts again gets its first message anew, with
 * other headers (protocol 6.4.4). Without a name it gets a new one. Throws `Refusal` when the run that invokes it has
 * ended, or when it would wait for one that was not started for it.
 */
export function startRun(draft: Draft, moment: Moment, account: Account, input: StartInput): RunPostResult {
  const { post } = input;
  const invoker = post.invoker && findInvoker(draft, account.id, post.invoker);
  const earlierResult = post.invoker && invoker && findInvokeResult(draft, account.id, post.invoker, invoker);
  if (earlierResult) return earlierResult;
  const older = draft.get("activeRuns", account.id, post.runId);
  const olderRun = older && draft.get("runs", account.id, older.run);
  if (older && olderRun) {
    if (invoker) throw activeInvokedRunRefusal(post.runId);
    if (post.origin === "again") return restartRun(draft, moment, account, input, { run: olderRun, active: older });
    return { messageId: older.firstMessage, deduplicated: true, run: { runId: older.runId, createdAt: olderRun.createdAt } };
  }
  const ongoing = createRun(draft, makeRun(moment, account.id, input, invoker));
  const { id: messageId } = sendFirst(draft, moment, account, ongoing, input);
  if (post.invoker && invoker) putWaiter(draft, makeInvokeWaiter(moment, ongoing.run, messageId, invoker));
  return { messageId, deduplicated: false, run: { runId: ongoing.run.runId, createdAt: ongoing.run.createdAt } };
}

/** Writes a new run, with an empty history. */
export function createRun(draft: Draft, run: Run): OngoingRun {
  const active = { account: run.account, runId: run.runId, run: run.id, steps: 0, size: 0, waiting: 0, firstMessage: "" };
  draft.put("runs", run);
  draft.put("activeRuns", active);
  countRun(draft, run.account);
  return { run, active };
}

function makeRun(moment: Moment, account: AccountId, input: StartInput, invoker: Invoker | null): Run {
  const { post, brand, labels, redaction, callerIp } = input;
  const { method, headers, retries, retryDelay, timeout, flowControl, failureCallback } = input;
  return {
    account,
    id: moment.newId("run"),
    runId: post.runId || moment.newId("wfr"),
    url: post.url,
    createdAt: moment.now,
    state: "RUN_STARTED",
    endedAt: null,
    brand,
    features: post.features,
    labels,
    redaction,
    callerIp,
    invoker,
    origin: null,
    steps: 0,
    failure: null,
    body: noBytes,
    ...(input.keepResponse ? { keepResponse: true } : {}),
    settings: { method, headers, retries, retryDelay, timeout, flowControl, callback: null, failureCallback },
  };
}

/** Appends the initial payload, and makes the message that carries it. */
function sendFirst(draft: Draft, moment: Moment, account: Account, ongoing: OngoingRun, input: StartInput): StoredMessage {
  const { features, origin } = input.post;
  const first: RunPart["first"] = origin === "rest" ? "rest" : "detect";
  const message = appendStep(draft, moment, account, ongoing, {
    callType: "step",
    head: null,
    stepKey: initialStepKey,
    body: input.body,
    url: input.url,
    headers: input.headers,
    delay: input.delay,
    notBefore: input.notBefore,
    ...(features.detect ? { first } : {}),
  });
  const active = draft.get("activeRuns", account.id, ongoing.run.runId);
  if (active) draft.put("activeRuns", { ...active, firstMessage: message.id });
  return message;
}

/** By which an endpoint is asked to start the run itself, in each brand. */
const restartHeaders: ReadonlySet<string> = new Set(
  Object.values(brandNames).map(({ prefix }) => `${prefix.toLowerCase()}-workflow-unknown-sdk`),
);

/** The payload stays as it is; what is sent along may change, and settings that are not given stay. */
function restartRun(draft: Draft, moment: Moment, account: Account, input: StartInput, { run, active }: OngoingRun): RunPostResult {
  const { retries, retryDelay, flowControl, failureCallback } = input;
  // A client takes it out under one name. Under another one it would come back with all it forwards, and have the run begin again without end.
  const headers = input.headers.filter(([name]) => !restartHeaders.has(name.toLowerCase()));
  const { settings } = run;
  const changed = {
    ...settings,
    headers,
    retries: retries ?? settings.retries,
    retryDelay: retryDelay ?? settings.retryDelay,
    flowControl: flowControl ?? settings.flowControl,
    failureCallback: failureCallback ?? settings.failureCallback,
  };
  const restarted: Run = { ...run, settings: changed };
  const [initial] = draft.listSteps(account.id, run.id, initialStepKey);
  if (initial?.damaged)
    throw new Refusal("step-refused", `workflow-runid: the initial payload of ${run.runId.slice(0, 200)} is damaged in the store`);
  draft.put("runs", restarted);
  const body = initial?.body ?? input.body;
  const message = sendStep(draft, moment, account, restarted, {
    kind: "step",
    stepKey: initialStepKey,
    position: 0,
    body,
    size: historySize(body.byteLength),
    url: input.url,
    headers: [],
    first: "detect",
  });
  if (initial) draft.put("steps", { ...initial, messageId: message.id });
  draft.put("activeRuns", { ...active, firstMessage: message.id });
  return { messageId: message.id, deduplicated: false, run: { runId: run.runId, createdAt: run.createdAt } };
}

/**
 * The run that waits for the new one. Throws `Refusal` when it has ended: also where another one of its name goes on, as
 * far as the post says when its run began. No other post of an endpoint does.
 */
function findInvoker(draft: Draft, account: AccountId, post: InvokerPost): Invoker {
  const ongoing = mustFindOngoingRun(draft, account, post.runId);
  if (post.createdAt > 0 && post.createdAt !== ongoing.run.createdAt) {
    const problem = `there is no run ${JSON.stringify(post.runId.slice(0, 200))} that has not ended and began at ${post.createdAt}`;
    throw new Refusal("invalid", `workflow-runid: ${problem}`);
  }
  checkHistory(ongoing);
  mustBeStep(post.step);
  return { ...post, run: ongoing.run.id };
}

/** Its end would be told to whoever started it, and the step would wait for ever. */
const activeInvokedRunRefusal = (runId: string): Refusal =>
  new Refusal(
    "step-refused",
    `workflow-runid: the run ${JSON.stringify(runId.slice(0, 200))} has not ended; a run that is invoked needs an id of its own`,
  );

/** A step that was posted again has invoked its run before, and may have its result. */
function findInvokeResult(draft: Draft, account: AccountId, { step }: InvokerPost, { run }: Invoker): RunPostResult | null {
  const child = draft.get("waiters", account, toWaiterId(run, step))?.child;
  if (child) return { messageId: child.messageId, deduplicated: false, run: { runId: child.runId, createdAt: child.createdAt } };
  const result = draft.getWithoutBody("steps", account, toResultId(run, step));
  return result ? { messageId: result.messageId, deduplicated: false, run: { runId: "", createdAt: result.createdAt } } : null;
}

const makeInvokeWaiter = (moment: Moment, child: Run, messageId: string, { run, runId, url, headers, step }: Invoker): Waiter => ({
  account: child.account,
  id: toWaiterId(run, step),
  run,
  runId,
  kind: "invoke",
  event: "",
  createdAt: moment.now,
  dueAt: null,
  url,
  headers,
  given: [],
  timeout: "",
  timeoutUrl: "",
  timeoutHeaders: [],
  timeoutGiven: [],
  step,
  child: { run: child.id, runId: child.runId, url: child.url, createdAt: child.createdAt, messageId },
});
