import type { Draft, Key, Moment, Needs } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import { destinationNeeds, listLimiterKeysFor } from "../admission/needs.ts";
import { accept } from "../sending/createMessage.ts";
import type { SingleInput } from "../sending/createMessage.ts";
import { lazyHistoryBytes, limits } from "../values/limits.ts";
import type {
  Account,
  AccountId,
  StoredMessage,
  HeaderList,
  MessageInput,
  Millis,
  RunKey,
  RunPart,
  RunPost,
  StepHead,
} from "../model/message.ts";
import { joinHeaders } from "../values/headers.ts";
import { noBytes } from "../model/message.ts";
import type { ActiveRun, CallType, Run, CompletedWait } from "../model/run.ts";
import { historySize } from "../model/run.ts";
import { toStepId, toStepKey, toWaiterId } from "../model/stepId.ts";
import { dropWaiter } from "./waiters.ts";

/** A run that goes on: its beginning, and how far it is. */
export type OngoingRun = { run: Run; active: ActiveRun };

/** The run of this name that has not ended. `key`: only if it is this one, and not a later one of the same name. */
export function findOngoingRun(draft: Draft, account: AccountId, runId: string, key?: RunKey): OngoingRun | null {
  const active = draft.get("activeRuns", account, runId);
  const run = active && draft.get("runs", account, active.run);
  return active && run && (key === undefined || run.id === key) ? { run, active } : null;
}

/** The same for whoever wants to go on with it. Throws `Refusal`, which clients take for the end of the run. */
export function mustFindOngoingRun(draft: Draft, account: AccountId, runId: string): OngoingRun {
  const ongoing = findOngoingRun(draft, account, runId);
  if (ongoing) return ongoing;
  throw new Refusal("invalid", `workflow-runid: there is no run ${JSON.stringify(runId.slice(0, 200))} that has not ended`);
}

/** What must be seen of a run before anything is sent for it: the run, and then what its messages pass. */
export function runNeeds(draft: Draft, account: AccountId, runId: string): { runs: Key[]; limiters: Key[] } {
  const active = draft.get("activeRuns", account, runId);
  const run = active && draft.get("runs", account, active.run);
  return {
    runs: active ? [[account, active.run]] : [],
    limiters: run ? listLimiterKeysFor(account, [{ queue: null, flowControl: run.settings.flowControl }]) : [],
  };
}

/** A step to be appended, and what its message has that is not the run's. */
export type NewStep = {
  callType: CallType;
  head: StepHead | null;
  body: Uint8Array;
  url: string;
  headers: HeaderList;
  delay?: Millis | null;
  notBefore?: Millis | null;
  /** What its message is, instead of a call to the workflow that carries the history. */
  kind?: RunPart["kind"];
  stepKey?: string;
  first?: RunPart["first"];
  /** Settings that hold instead of those of the run. */
  overrides?: Partial<SingleInput>;
  waited?: CompletedWait;
};

/** Appends a step to a history, and makes the message that carries it. The caller has asked for its lines and flows. */
export function appendStep(draft: Draft, moment: Moment, account: Account, ongoing: OngoingRun, step: NewStep): StoredMessage {
  const { run } = ongoing;
  const active = draft.get("activeRuns", run.account, run.runId) ?? ongoing.active;
  const position = active.steps;
  const size = active.size + historySize(step.body.byteLength);
  const stepKey = step.stepKey ?? toStepKey(step.callType, step.head, position);
  const kind = step.kind ?? "step";
  const message = sendStep(draft, moment, account, run, {
    ...step,
    kind,
    stepKey,
    position,
    size: kind === "step" ? size : step.body.byteLength,
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
  draft.put("activeRuns", { ...active, steps: position + 1, size });
  return message;
}

/** A message that carries a step. `size`: of what is sent. */
type StepMessage = Pick<NewStep, "body" | "url" | "headers" | "delay" | "notBefore" | "first" | "overrides"> &
  Pick<RunPart, "kind" | "stepKey" | "position" | "size">;

/** A history grows beyond its limit by what was on its way. One that is longer is sent to nobody: it would not fit into memory. */
const maxSentBytes = 2 * limits.historyBytes;

/** Makes the message that carries a step of the history. */
export function sendStep(draft: Draft, moment: Moment, account: Account, run: Run, sent: StepMessage): StoredMessage {
  const { kind, stepKey, position, size, first } = sent;
  // The answer of a third party is always sent along: published clients fail on an empty one.
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
  return accept(draft, moment, account, makeStepInput(run, sent, part));
}

function makeStepInput(run: Run, step: StepMessage, part: RunPart): SingleInput {
  const { settings } = run;
  return {
    ...settings,
    brand: run.brand,
    url: step.url,
    group: null,
    endpoint: null,
    queue: null,
    scheduleId: null,
    // The body of all others is in the history.
    body: part.kind === "call" ? step.body : noBytes,
    headers: joinHeaders(
      part.kind === "result" ? settings.headers.filter(([name]) => !protocolVersion.test(name)) : settings.headers,
      step.headers,
    ),
    callback: null,
    failureCallback: null,
    delay: step.delay ?? null,
    notBefore: step.notBefore ?? null,
    deduplication: null,
    labels: run.labels,
    redaction: run.redaction,
    callerIp: run.callerIp,
    reportsOn: null,
    ...(run.keepResponse ? { keepResponse: true } : {}),
    ...step.overrides,
    run: part,
  };
}

/** An endpoint takes a request that has it for a step, and the answer of a third party is none (protocol 6.5). */
const protocolVersion = /^(svc|upstash)-workflow-sdk-version$/i;

/** Whether an endpoint may go on with a run: what the service itself appends follows from what was posted. Throws `Refusal`. */
export function checkHistory({ active: { runId, steps, size } }: OngoingRun): void {
  const runLabel = `of the run ${runId.slice(0, 200)}`;
  if (steps >= limits.steps)
    throw new Refusal("limit-exceeded", `steps: the history ${runLabel} has ${steps}, the limit is ${limits.steps}`);
  if (size > limits.historyBytes)
    throw new Refusal("limit-exceeded", `steps: the history ${runLabel} comes to ${size} bytes, the limit is ${limits.historyBytes}`);
}

/** Whether a step of so many bytes, which comes to a run from outside, still fits into its history. */
export const fitsHistory = ({ active: { size } }: OngoingRun, bytes: number): boolean => size + historySize(bytes) <= limits.historyBytes;

/** What is said when it does not. */
export const noRoomRefusal = (ongoing: OngoingRun, field: string): Refusal =>
  new Refusal("limit-exceeded", `${field}: ${formatNoRoom(ongoing, "it")}`);

/** The same of what nobody is refused. */
export const formatNoRoom = ({ active: { runId, size } }: OngoingRun, subject: string): string =>
  `${subject} does not fit into the history of the run ${runId.slice(0, 200)}, which comes to ${size} bytes; the limit is ${limits.historyBytes}`;

/** A letter that is a step of a run, or a call to a third party for one. */
export type StepInput = MessageInput & { post: Extract<RunPost, { kind: "step" | "call" }> };

export const stepNeeds = (draft: Draft, account: AccountId, { post: { runId, kind, head }, url, flowControl }: StepInput): Needs => {
  const active = draft.get("activeRuns", account, runId);
  const { runs, limiters } = runNeeds(draft, account, runId);
  const stepKey = toStepKey(kind === "call" ? "toCallback" : "step", head, -1);
  return {
    runs,
    ...destinationNeeds(account, [url]),
    withoutBodies: { steps: active ? [[account, toStepId(active.run, stepKey)]] : [] },
    waiters: active && head ? [[account, toWaiterId(active.run, head)]] : [],
    limiters: [...limiters, ...listLimiterKeysFor(account, [{ queue: null, flowControl }])],
  };
};

/**
 * Takes in what an endpoint has posted for its run. What was posted before is answered with its message and changes
 * nothing: an endpoint that did not learn that it had come through posts it again. Throws `Refusal` when the run has ended.
 */
export function postStep(draft: Draft, moment: Moment, account: Account, input: StepInput): RunPostResult {
  const { post, url, method, headers, delay, notBefore, body } = input;
  const ongoing = mustFindOngoingRun(draft, account.id, post.runId);
  const { runId, createdAt } = ongoing.run;
  const callType = post.kind === "call" ? "toCallback" : "step";
  const older = draft.getWithoutBody("steps", account.id, toStepId(ongoing.run.id, toStepKey(callType, post.head, -1)));
  if (older) return { messageId: older.messageId, deduplicated: false, run: { runId, createdAt } };
  checkHistory(ongoing);
  // A step that has its result waits for nothing any more.
  if (callType === "step" && post.head) dropWaiter(draft, account.id, toWaiterId(ongoing.run.id, post.head));
  const usesOwnSettings = post.kind === "call" || !ongoing.run.features.captured;
  const message = appendStep(draft, moment, account, ongoing, {
    callType,
    head: post.head,
    body,
    url,
    headers,
    delay,
    notBefore,
    kind: post.kind,
    overrides: usesOwnSettings ? pickStepSettings(input, post.kind) : { method },
  });
  return { messageId: message.id, deduplicated: false, run: { runId, createdAt } };
}

/** A request to a third party has the settings of its post and no others: what the run is sent with is none of their business. */
function pickStepSettings(input: StepInput, kind: "step" | "call"): Partial<SingleInput> {
  const { method, headers, retries, retryDelay, timeout, flowControl, callback } = input;
  return { method, retries, retryDelay, timeout, flowControl, ...(kind === "call" ? { headers, callback } : {}) };
}

/** What came of a post for a run: its message, and the run. */
export type RunPostResult = { messageId: string; deduplicated: boolean; run: { runId: string; createdAt: Millis } };
