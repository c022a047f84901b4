import type { Draft, Moment } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import { accept } from "../sending/createMessage.ts";
import { countedStepTypes } from "../model/activity.ts";
import { lazyHistoryBytes, limits } from "../values/limits.ts";
import type { Account } from "../model/account.ts";
import type { CallbackSettings } from "../model/sendSettings.ts";
import type { MessageInput, SingleInput, StoredMessage } from "../model/message.ts";
import type { RunPart, RunPost, StepHead } from "../model/runPost.ts";
import type { AccountId, HeaderList, MessageId, Millis } from "../values/basics.ts";
import { joinHeaders } from "../values/headers.ts";
import { noBytes } from "../values/basics.ts";
import { noMessageSettings } from "../model/message.ts";
import { pickSendSettings } from "../model/sendSettings.ts";
import type { ActiveRun, CallType, Run, CompletedWait, Step } from "../model/run.ts";
import { historySize } from "../model/run.ts";
import { toStepId, toStepKey, toWaiterId } from "../model/stepId.ts";
import { makeLastCall, settlePosted } from "./posted.ts";
import { isDiscarded, withStep } from "./groups.ts";
import { decideRunOn, type RunOnInput } from "./runOn.ts";
import { dropWaiter } from "./waiters.ts";

/** A run that has not ended, and its progress. */
export type OngoingRun = { run: Run; active: ActiveRun };

/** Returns the active run with this run id; null if there is none. */
export function findOngoingRun(draft: Draft, account: AccountId, runId: string): OngoingRun | null {
  const active = draft.get("activeRuns", account, runId);
  const run = active && draft.get("runs", account, active.run);
  return active && run ? { run, active } : null;
}

/** Returns this run if it is active, otherwise null. It never returns another run with the same run id. */
export function findRunIfOngoing(
  draft: Draft,
  account: AccountId,
  { run, runId }: Pick<RunPart, "run" | "runId">,
): OngoingRun | null {
  const ongoing = findOngoingRun(draft, account, runId);
  return ongoing?.run.id === run ? ongoing : null;
}

/**
 * Returns the active run with this run id. Throws `Refusal` if there is none; clients treat this refusal as
 * the end of the run.
 */
export function requireOngoingRun(draft: Draft, account: AccountId, runId: string): OngoingRun {
  const ongoing = findOngoingRun(draft, account, runId);
  if (ongoing) return ongoing;
  throw new Refusal("invalid", `workflow-runid: no active run ${JSON.stringify(runId.slice(0, 200))}`);
}

/** A step to append, and the properties of its message that differ from those of the run. */
export type NewStep = {
  callType: CallType;
  head: StepHead | null;
  body: Uint8Array;
  url: string;
  headers: HeaderList;
  delay?: Millis | null | undefined;
  notBefore?: Millis | null;
  /** The role of its message. By default, it is a call to the endpoint that carries the history. */
  kind?: RunPart["kind"];
  stepKey?: string;
  first?: RunPart["first"];
  /** Settings that replace those of the run. */
  overrides?: Partial<SingleInput>;
  waited?: CompletedWait;
  /** The message of the call in which the endpoint posted the step, if it is known. */
  postedIn?: MessageId | undefined;
};

/**
 * Appends a step to the history of a run and creates the message that carries it.
 */
export function appendStep(
  draft: Draft,
  moment: Moment,
  { account, ongoing, step }: { account: Account; ongoing: OngoingRun; step: NewStep },
): StoredMessage {
  const { run } = ongoing;
  const active = draft.get("activeRuns", run.account, run.runId) ?? ongoing.active;
  const position = active.steps;
  const size = active.size + historySize(step.body.byteLength);
  const stepKey = step.stepKey ?? toStepKey(step.callType, step.head, position);
  const kind = step.kind ?? "step";
  const sentSize = kind === "step" ? size : step.body.byteLength;
  const message = sendStep(draft, moment, {
    account,
    run,
    step: { ...step, kind, stepKey, position, size: sentSize },
  });
  const lastCall =
    kind === "call"
      ? active.lastCall
      : makeLastCall(run, { messageId: message.id, stepKey, head: step.head, first: step.first });
  const body = kind === "call" ? noBytes : step.body;
  storeStep(draft, moment, {
    ...{ active, messageId: message.id, stepKey, size, lastCall },
    step: { ...step, body },
  });
  return message;
}

/** A step without the properties of its message. */
type StoredStep = Pick<NewStep, "callType" | "head" | "body" | "url" | "headers" | "waited">;

/** Adds a step to the history of a run. `messageId` is the message that carries it. */
function storeStep(
  draft: Draft,
  moment: Moment,
  {
    active,
    step,
    messageId,
    stepKey,
    size,
    lastCall,
  }: { active: ActiveRun; step: StoredStep } & Pick<Step, "messageId"> &
    Pick<ActiveRun, "size" | "lastCall"> & { stepKey: string },
): void {
  const { callType, head, url, headers, body, waited } = step;
  const { account, run, steps } = active;
  draft.put("steps", {
    ...{ account, id: toStepId(run, stepKey), run, position: steps, messageId, callType },
    ...{ createdAt: moment.now, head, url, headers, body },
    ...(waited === undefined ? {} : { waited }),
  });
  draft.put("activeRuns", withStep(active, step, { steps: steps + 1, size, lastCall }));
  if (callType !== "fromCallback") draft.record(`step ${toCountedType(step)}`);
}

/**
 * Returns the type under which a step is counted. A step without a head is the initial payload. A call to a
 * third party is counted once, and not again for its response.
 */
function toCountedType({ head, callType }: Pick<NewStep, "head" | "callType">): string {
  if (callType !== "step") return "Call";
  if (head === null) return "Initial";
  if (head.stepId === 0) return "plan";
  return countedStepTypes.includes(head.stepType) ? head.stepType : "other";
}

/** A message that carries a step. `size` is the number of bytes that are sent. */
type StepMessage = Pick<
  NewStep,
  "body" | "url" | "headers" | "delay" | "notBefore" | "first" | "overrides" | "postedIn"
> &
  Pick<RunPart, "kind" | "stepKey" | "position" | "size">;

/**
 * The longest history, in bytes, that a message carries. Messages in flight can make a history longer than
 * its limit. The endpoint fetches a history above this length, because it would not fit into memory.
 */
const maxSentBytes = limits.historyBytes;

/** Creates the message that carries a step of the history. */
export function sendStep(
  draft: Draft,
  moment: Moment,
  { account, run, step }: { account: Account; run: Run; step: StepMessage },
): StoredMessage {
  const { kind, stepKey, position, size, first, postedIn } = step;
  // The response of a third party is always sent, because published clients fail on an empty body.
  const isFetched = kind === "step" && size > (run.features.lazyFetch ? lazyHistoryBytes : maxSentBytes);
  const part: RunPart = {
    run: run.id,
    runId: run.runId,
    createdAt: run.createdAt,
    kind,
    stepKey,
    position,
    size: isFetched ? 0 : size,
    ...(first === undefined ? {} : { first }),
  };
  const input = makeStepInput(run, step, part);
  return accept(draft, moment, { account, input, ...(postedIn === undefined ? {} : { follows: postedIn }) });
}

function makeStepInput(run: Run, step: StepMessage, part: RunPart): SingleInput {
  const { settings } = run;
  return {
    ...noMessageSettings,
    ...settings,
    brand: run.brand,
    url: step.url,
    // The bodies of all other messages are in the history.
    body: part.kind === "call" ? step.body : noBytes,
    headers: joinHeaders(
      part.kind === "result"
        ? settings.headers.filter(([name]) => !protocolVersion.test(name))
        : settings.headers,
      step.headers,
    ),
    callback: null,
    failureCallback: null,
    delay: step.delay ?? null,
    notBefore: step.notBefore ?? null,
    labels: run.labels,
    redaction: run.redaction,
    callerIp: run.callerIp,
    ...(run.keepResponse ? { keepResponse: true } : {}),
    ...(run.trace === undefined ? {} : { trace: run.trace }),
    ...step.overrides,
    run: part,
  };
}

/**
 * Endpoints treat a request with this header as a step. The response of a third party is not a
 * step.
 */
const protocolVersion = /^(svc|upstash)-workflow-sdk-version$/i;

/**
 * Checks that the history of a run has room for steps from its endpoint. Steps that the server itself appends
 * are not checked, because each of them follows from a checked step. Throws `Refusal`.
 */
export function assertHistoryLimit({ active: { runId, steps, size } }: OngoingRun): void {
  const runLabel = `of the run ${runId.slice(0, 200)}`;
  if (steps >= limits.steps)
    throw new Refusal(
      "limit-exceeded",
      `steps: the history ${runLabel} has ${steps} steps; the limit is ${limits.steps}`,
    );
  if (size > limits.historyBytes)
    throw new Refusal(
      "limit-exceeded",
      `steps: the history ${runLabel} has ${size} bytes; the limit is ${limits.historyBytes}`,
    );
}

/** Reports whether a step with a body of this number of bytes fits into the history of a run. */
export const fitsHistory = ({ active: { size } }: OngoingRun, bytes: number): boolean =>
  size + historySize(bytes) <= limits.historyBytes;

/** Returns the refusal of a step that does not fit into the history. */
export const noRoomRefusal = (ongoing: OngoingRun, field: string): Refusal =>
  new Refusal("limit-exceeded", `${field}: ${formatNoRoom(ongoing, "it")}`);

/**
 * Returns the text for a step that does not fit into the history. It is used in errors and in failures of
 * runs.
 */
export const formatNoRoom = ({ active: { runId, size } }: OngoingRun, subject: string): string =>
  `${subject} does not fit into the history of the run ${runId.slice(0, 200)}, ` +
  `which has ${size} bytes; the limit is ${limits.historyBytes}`;

/** The messages of the calls in which the steps of one request were posted, by run. */
export type PostingCalls = Map<string, MessageId>;

/** A message that is a step of a run, or a call to a third party for a run. */
export type StepInput = MessageInput & { post: Extract<RunPost, { kind: "step" | "call" }> };

/**
 * Accepts a step that an endpoint posted for its run. An endpoint posts a step again if it did not learn that
 * the step was accepted. The second post changes nothing, and its result names the message of the first post.
 * Throws `Refusal` if the run has ended.
 */
export function postStep(
  draft: Draft,
  moment: Moment,
  { account, input, posting }: { account: Account; input: StepInput; posting?: PostingCalls | undefined },
): RunPostResult {
  const { post, url, method, headers, delay, notBefore, body } = input;
  const ongoing = requireOngoingRun(draft, account.id, post.runId);
  const { runId, createdAt } = ongoing.run;
  const ranOn = post.runOn && storeRunOn(draft, moment, { ongoing, input });
  if (ranOn) return ranOn;
  const callType: CallType = post.kind === "call" ? "toCallback" : "step";
  const older = draft.inspectWithoutBody(
    "steps",
    account.id,
    toStepId(ongoing.run.id, toStepKey(callType, post.head, -1)),
  );
  if (older) return { messageId: older.messageId, deduplicated: false, run: { runId, createdAt } };
  assertHistoryLimit(ongoing);
  // A step that has its result no longer waits.
  if (callType === "step" && post.head && ongoing.active.waiting > 0)
    dropWaiter(draft, account.id, toWaiterId(ongoing.run.id, post.head));
  const postedIn = settlePosted(draft, moment, { ongoing, head: post.head, callType });
  if (postedIn !== undefined) posting?.set(runId, postedIn);
  const active = draft.get("activeRuns", account.id, runId) ?? ongoing.active;
  if (postedIn !== undefined && isDiscarded(moment, active, input)) {
    const stepKey = toStepKey(callType, post.head, active.steps);
    const size = active.size + historySize(body.byteLength);
    const step = { callType, head: post.head, body, url, headers };
    storeStep(draft, moment, { active, step, messageId: postedIn, stepKey, size, lastCall: null });
    return { messageId: postedIn, deduplicated: false, run: { runId, createdAt } };
  }
  const usesOwnSettings = post.kind === "call" || !ongoing.run.features.captured;
  const overrides = usesOwnSettings ? pickStepSettings(input, ongoing.run) : { method };
  const message = appendStep(draft, moment, {
    account,
    ongoing,
    step: {
      callType,
      head: post.head,
      body,
      url,
      headers,
      delay,
      notBefore,
      kind: post.kind,
      overrides,
      // The first plan of a group names the call of all plans that are posted with it.
      postedIn: postedIn ?? (post.head?.stepId === 0 ? posting?.get(runId) : undefined),
    },
  });
  return { messageId: message.id, deduplicated: false, run: { runId, createdAt } };
}

/**
 * Stores a step after which its call continues, and returns the result of the post. Returns null if the call
 * may not continue.
 */
export function storeRunOn(
  draft: Draft,
  moment: Moment,
  { ongoing, input }: { ongoing: OngoingRun; input: RunOnInput & Pick<StepInput, "url"> },
): RunPostResult | null {
  const decided = decideRunOn(draft, moment, { ongoing, input });
  if (!decided) return null;
  const { run, active } = ongoing;
  const { state } = decided;
  if ("lastCall" in decided) {
    // From now on, a response alone does not finish the message: see `applyRunOutcome`.
    if (!state.reportsOutcome) draft.put("messages", { ...state, reportsOutcome: true });
    const { post, url, body } = input;
    const stepKey = toStepKey("step", post.head, active.steps);
    const step = { callType: "step" as const, head: post.head, url, headers: [], body };
    const size = active.size + historySize(body.byteLength);
    const { lastCall } = decided;
    storeStep(draft, moment, { active, step, messageId: state.id, stepKey, size, lastCall });
    draft.record("step ran on");
  }
  const { runId, createdAt } = run;
  return { messageId: state.id, deduplicated: false, run: { runId, createdAt }, runsOn: true };
}

/**
 * Returns the settings that replace those of the run. A call to a third party has only the settings of its
 * post, because the headers and callbacks of the run must not reach the third party. Its failure callback is
 * that of its callback, which continues the run.
 */
function pickStepSettings(input: StepInput, run: Run): Partial<SingleInput> {
  const { headers, callback, failureCallback, ...settings } = pickSendSettings(input);
  if (input.post.kind === "step") return { ...settings, failureCallback };
  return {
    ...{ ...settings, headers, callback, failureCallback: pickOwnFailureCallback(run, callback) },
    ...(input.ackTimeout !== undefined && { ackTimeout: input.ackTimeout }),
  };
}

/**
 * Returns the failure callback of a post if it counts for the message that the post creates; otherwise null.
 * Clients that do not keep the settings of the start give a failure callback with each post.
 */
export const pickOwnFailureCallback = (
  { features }: Run,
  post: { failureCallback?: CallbackSettings | null } | null,
): CallbackSettings | null => (features.captured ? null : (post?.failureCallback ?? null));

/** The result of a post for a run: its message, and the run. */
export type RunPostResult = {
  messageId: string;
  deduplicated: boolean;
  run: { runId: string; createdAt: Millis };
  /** The endpoint may continue with the next step in the same call. */
  runsOn?: true;
};
