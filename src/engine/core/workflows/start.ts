import { brandNames } from "../values/brand.ts";
import type { Draft, Moment } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import type { OngoingRun, RunPostResult } from "./history.ts";
import { appendStep, assertHistoryLimit, requireOngoingRun, sendStep } from "./history.ts";
import type { Account } from "../model/account.ts";
import type { AccountId } from "../values/basics.ts";
import type { StoredMessage, MessageInput } from "../model/message.ts";
import type { InvokerPost, RunPart, RunPost } from "../model/runPost.ts";
import { noBytes } from "../values/basics.ts";
import { pickSendSettings } from "../model/sendSettings.ts";
import type { Invoker, Run, Waiter } from "../model/run.ts";
import { assertStep, historySize, parseStepHead } from "../model/run.ts";
import { initialStepKey, toResultId, toWaiterId } from "../model/stepId.ts";
import { countRun } from "../accounts/usage.ts";
import { makeLastCall, settlePosted } from "./posted.ts";
import { putWaiter } from "./waiters.ts";

type StartPost = Extract<RunPost, { kind: "start" }>;
/** A message that starts a workflow run. */
export type StartInput = MessageInput & { post: StartPost };

/** Returns the run ids that a post needs: the id of its run, and the id of the run that invokes this run. */
export const listNamedRuns = (account: AccountId, post: RunPost): (readonly [AccountId, string])[] => [
  ...(post.runId === "" ? [] : [[account, post.runId] as const]),
  ...(post.kind === "start" && post.invoker ? [[account, post.invoker.runId] as const] : []),
];

/**
 * Starts a run. The run exists from now on, even if its first message is delayed. If the post names no run
 * id, the run gets a new id.
 *
 * If a run with this id is active, no run is created, and the result names the active run. The endpoint of
 * the active run may start it again, because the trigger did not know its client. The run then gets a new
 * first message with the headers that the endpoint sent.
 *
 * Throws `Refusal` if the run that invokes this one has ended. Also throws `Refusal` if a run is invoked with
 * the id of an active run, because that run was not started for the invoking run.
 */
export function startRun(
  draft: Draft,
  moment: Moment,
  { account, input }: { account: Account; input: StartInput },
): RunPostResult {
  const { post } = input;
  const invoker = post.invoker && findInvoker(draft, account.id, post.invoker);
  const earlierResult = invoker && findInvokeResult(draft, account.id, invoker);
  if (earlierResult) return earlierResult;
  const older = draft.get("activeRuns", account.id, post.runId);
  const olderRun = older && draft.get("runs", account.id, older.run);
  if (older && olderRun) {
    if (invoker) throw activeInvokedRunRefusal(post.runId);
    if (post.origin === "again")
      return restartRun(draft, moment, { account, input, ongoing: { run: olderRun, active: older } });
    return {
      messageId: older.firstMessage,
      deduplicated: true,
      run: { runId: older.runId, createdAt: olderRun.createdAt },
    };
  }
  const sharesId = post.runId !== "" && draft.wasRunIdUsed(account.id, post.runId);
  const run = makeRun(moment, { account: account.id, input, invoker });
  const ongoing = createRun(draft, sharesId ? { ...run, sharesId } : run);
  const { id: messageId } = sendFirst(draft, moment, { account, ongoing, input });
  if (invoker) {
    const invoking = requireOngoingRun(draft, account.id, invoker.runId);
    settlePosted(draft, moment, { ongoing: invoking, head: parseStepHead(invoker.step) });
    putWaiter(draft, makeInvokeWaiter(moment, { child: ongoing.run, messageId, invoker }));
  }
  return {
    messageId,
    deduplicated: false,
    run: { runId: ongoing.run.runId, createdAt: ongoing.run.createdAt },
  };
}

/** Writes a new run with an empty history. */
export function createRun(draft: Draft, run: Run): OngoingRun {
  const active = {
    account: run.account,
    runId: run.runId,
    run: run.id,
    steps: 0,
    size: 0,
    waiting: 0,
    firstMessage: "",
    lastCall: null,
  };
  draft.put("runs", run);
  draft.put("activeRuns", active);
  countRun(draft, run.account);
  return { run, active };
}

function makeRun(
  moment: Moment,
  { account, input, invoker }: { account: AccountId; input: StartInput; invoker: Invoker | null },
): Run {
  const { post, brand, labels, redaction, callerIp } = input;
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
    ...(input.trace === undefined ? {} : { trace: input.trace }),
    settings: { ...pickSendSettings(input), callback: null },
  };
}

type RunStart = { account: Account; ongoing: OngoingRun; input: StartInput };

/** Appends the initial payload and creates the message that carries it. */
function sendFirst(draft: Draft, moment: Moment, { account, ongoing, input }: RunStart): StoredMessage {
  const { features, origin } = input.post;
  const first: RunPart["first"] = origin === "rest" ? "rest" : "detect";
  const message = appendStep(draft, moment, {
    account,
    ongoing,
    step: {
      callType: "step",
      head: null,
      stepKey: initialStepKey,
      body: input.body,
      url: input.url,
      headers: input.headers,
      delay: input.delay,
      notBefore: input.notBefore,
      ...(features.detect ? { first } : {}),
    },
  });
  const active = draft.get("activeRuns", account.id, ongoing.run.runId);
  if (active) draft.put("activeRuns", { ...active, firstMessage: message.id });
  return message;
}

/** The headers that ask an endpoint to start the run itself, for each brand. */
const restartHeaders: ReadonlySet<string> = new Set(
  Object.values(brandNames).map(({ prefix }) => `${prefix.toLowerCase()}-workflow-unknown-sdk`),
);

/**
 * Sends the first message of an active run again. The payload stays the same. Headers are replaced, and other
 * settings are replaced if they are given.
 */
function restartRun(draft: Draft, moment: Moment, { account, ongoing, input }: RunStart): RunPostResult {
  const { run, active } = ongoing;
  const { retries, retryDelay, flowControl, failureCallback } = input;
  // The header has a name for each brand, and a client removes only one of them. It would forward the other
  // one again, and the run would restart without end.
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
    throw new Refusal(
      "step-refused",
      `workflow-runid: the initial payload of ${run.runId.slice(0, 200)} is damaged in the store`,
    );
  draft.put("runs", restarted);
  const body = initial?.body ?? input.body;
  const message = sendStep(draft, moment, {
    account,
    run: restarted,
    step: {
      kind: "step",
      stepKey: initialStepKey,
      position: 0,
      body,
      size: historySize(body.byteLength),
      url: input.url,
      headers: [],
      first: "detect",
    },
  });
  if (initial) draft.put("steps", { ...initial, messageId: message.id });
  const lastCall =
    active.steps > 1
      ? active.lastCall
      : makeLastCall(run, { messageId: message.id, stepKey: initialStepKey, head: null, first: "detect" });
  draft.put("activeRuns", { ...active, firstMessage: message.id, lastCall });
  return { messageId: message.id, deduplicated: false, run: { runId: run.runId, createdAt: run.createdAt } };
}

/**
 * Returns the run that waits for the new run. Throws `Refusal` if the waiting run has ended. If the post says
 * when the waiting run began, a later run with the same id is refused. A post may omit this time.
 */
function findInvoker(draft: Draft, account: AccountId, post: InvokerPost): Invoker {
  const ongoing = requireOngoingRun(draft, account, post.runId);
  if (post.createdAt > 0 && post.createdAt !== ongoing.run.createdAt) {
    const problem = `no active run ${JSON.stringify(post.runId.slice(0, 200))} began at ${post.createdAt}`;
    throw new Refusal("invalid", `workflow-runid: ${problem}`);
  }
  assertHistoryLimit(ongoing);
  assertStep(post.step);
  return { ...post, run: ongoing.run.id };
}

/**
 * The active run would not report its end to the invoking run, and the invoking step would wait without end.
 */
const activeInvokedRunRefusal = (runId: string): Refusal =>
  new Refusal(
    "step-refused",
    `workflow-runid: the run ${JSON.stringify(runId.slice(0, 200))} is still active; ` +
      "an invoked run requires a new id",
  );

/**
 * Returns the earlier result of an invocation that was posted again: the run that it started, or the result
 * of its step.
 */
function findInvokeResult(draft: Draft, account: AccountId, { run, step }: Invoker): RunPostResult | null {
  const child = draft.get("waiters", account, toWaiterId(run, step))?.child;
  if (child)
    return {
      messageId: child.messageId,
      deduplicated: false,
      run: { runId: child.runId, createdAt: child.createdAt },
    };
  const result = draft.inspectWithoutBody("steps", account, toResultId(run, step));
  return result
    ? { messageId: result.messageId, deduplicated: false, run: { runId: "", createdAt: result.createdAt } }
    : null;
}

const makeInvokeWaiter = (
  moment: Moment,
  { child, messageId, invoker }: { child: Run; messageId: string; invoker: Invoker },
): Waiter => ({
  account: child.account,
  id: toWaiterId(invoker.run, invoker.step),
  run: invoker.run,
  runId: invoker.runId,
  kind: "invoke",
  event: "",
  createdAt: moment.now,
  dueAt: null,
  url: invoker.url,
  headers: invoker.headers,
  given: [],
  timeout: "",
  timeoutUrl: "",
  timeoutHeaders: [],
  timeoutGiven: [],
  step: invoker.step,
  child: { run: child.id, runId: child.runId, url: child.url, createdAt: child.createdAt, messageId },
});
