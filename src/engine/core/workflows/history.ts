import type { Draft, Moment } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import { accept } from "../sending/createMessage.ts";
import { countedStepTypes } from "../model/activity.ts";
import { lazyHistoryBytes, limits } from "../values/limits.ts";
import type { Account } from "../model/account.ts";
import type { CallbackSettings } from "../model/sendSettings.ts";
import type { MessageInput, SingleInput, StoredMessage } from "../model/message.ts";
import type { RunPart, RunPost, StepHead } from "../model/runPost.ts";
import type { AccountId, HeaderList, Millis } from "../values/basics.ts";
import { joinHeaders } from "../values/headers.ts";
import { noBytes } from "../values/basics.ts";
import { noMessageSettings } from "../model/message.ts";
import { pickSendSettings } from "../model/sendSettings.ts";
import type { ActiveRun, CallType, Run, CompletedWait } from "../model/run.ts";
import { historySize } from "../model/run.ts";
import { toStepId, toStepKey, toWaiterId } from "../model/stepId.ts";
import { makeLastCall, settlePosted } from "./posted.ts";
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
  draft.put("steps", {
    account: account.id,
    id: toStepId(run.id, stepKey),
    run: run.id,
    position,
    messageId: message.id,
    callType: step.callType,
    createdAt: moment.now,
    head: step.head,
    url: step.url,
    headers: step.headers,
    body: kind === "call" ? noBytes : step.body,
    ...(step.waited === undefined ? {} : { waited: step.waited }),
  });
  const lastCall =
    kind === "call"
      ? active.lastCall
      : makeLastCall(run, { messageId: message.id, stepKey, head: step.head, first: step.first });
  draft.put("activeRuns", { ...active, steps: position + 1, size, lastCall });
  if (step.callType !== "fromCallback") draft.record(`step ${toCountedType(step)}`);
  return message;
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
type StepMessage = Pick<NewStep, "body" | "url" | "headers" | "delay" | "notBefore" | "first" | "overrides"> &
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
  const { kind, stepKey, position, size, first } = step;
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
  return accept(draft, moment, { account, input: makeStepInput(run, step, part) });
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
  { account, input }: { account: Account; input: StepInput },
): RunPostResult {
  const { post, url, method, headers, delay, notBefore, body } = input;
  const ongoing = requireOngoingRun(draft, account.id, post.runId);
  const { runId, createdAt } = ongoing.run;
  const callType = post.kind === "call" ? "toCallback" : "step";
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
  settlePosted(draft, moment, { ongoing, head: post.head, callType });
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
    },
  });
  return { messageId: message.id, deduplicated: false, run: { runId, createdAt } };
}

/**
 * Returns the settings that replace those of the run. A call to a third party has only the settings of its
 * post, because the headers and callbacks of the run must not reach the third party. Its failure callback is
 * that of its callback, which continues the run.
 */
function pickStepSettings(input: StepInput, run: Run): Partial<SingleInput> {
  const { headers, callback, failureCallback, ...settings } = pickSendSettings(input);
  return input.post.kind === "step"
    ? { ...settings, failureCallback }
    : { ...settings, headers, callback, failureCallback: pickOwnFailureCallback(run, callback) };
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
};
