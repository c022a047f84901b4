import type { LogRow } from "../../model/logRow.ts";
import type { StepHead } from "../../model/runPost.ts";
import type { Redaction } from "../../model/sendSettings.ts";
import { noResponseStatus } from "../../sending/callback.ts";
import type { Bytes, HeaderList, MessageId, Millis } from "../../values/basics.ts";
import { joinHeaders } from "../../values/headers.ts";
import type { RunView, StepUnit } from "./view.ts";
import { isAsleep, isFailedBy, listUnitMessages, toProgressState, readRetries } from "./view.ts";
import type { CallType, Step } from "../../model/run.ts";
import { isSleep, parseStepHead } from "../../model/run.ts";
import { isInitial } from "../../model/stepId.ts";
import { base64 } from "../../values/base64.ts";

/** The states of a step. */
export type StepState = "STEP_PROGRESS" | "STEP_SUCCESS" | "STEP_RETRY" | "STEP_FAILED" | "STEP_CANCELED";

/** A step as the log of its run shows it. */
export type StepItem = {
  /** Null for the initial payload, and for a step that cannot be read. */
  stepId: number | null;
  stepName: string;
  stepType: string;
  callType: CallType;
  concurrent: number;
  /** Null if no message is known. */
  messageId: MessageId | null;
  state: StepState;
  createdAt: Millis;
  /** Null while the step has not ended. */
  endedAt: Millis | null;
  /** Null if headers and bodies are left out. */
  headers: HeaderList | null;
  isCut: boolean;
  out: string | Bytes | null;
  retries: number;
  retryDelay: string | null;
  /** The failed attempts before the step was made, oldest first. */
  errors: readonly LogRow[];
  nextDueAt: Millis | null;
  sleepFor: string | number | null;
  sleepUntil: string | number | null;
  wait: WaitDetail | null;
  call: CallDetail | null;
  invoke: InvokeDetail | null;
};

/**
 * The wait of a step. `timedOut` is null while the step waits. `event` is the event that arrived, or null.
 */
export type WaitDetail = {
  eventId: string | null;
  timeout: string | null;
  deadline: Millis | null;
  timedOut: boolean | null;
  event: Bytes | null;
};

/** A request to a third party, and the response. */
export type CallDetail = {
  url: string;
  method: string | null;
  headers: HeaderList;
  body: Bytes | null;
  response: { status: number; headers: HeaderList; body: Bytes } | null;
};

/**
 * A run that a step invoked. `redaction` is the redaction of that run, which applies to its payload and
 * headers.
 */
export type InvokeDetail = {
  runId: string;
  url: string;
  createdAt: Millis;
  payload: Bytes | null;
  headers: HeaderList | null;
  redaction: Redaction | null;
};

/**
 * Returns one step of a log. The errors of the messages in `elsewhere` are left out, because they are shown
 * with the next step.
 */
export function makeStepItem(view: RunView, unit: StepUnit, elsewhere: ReadonlySet<MessageId>): StepItem {
  const { result, answer, call, plan, waiter } = unit;
  const shown = result ?? answer ?? call ?? plan;
  const state = readStepState(view, unit);
  const child = (result ? result.waited : waiter)?.child;
  const isPayloadCut = child !== null && child !== undefined && view.findChild(child.run)?.payload === null;
  const isCut = [result, answer, call, plan].some((step) => step !== undefined && view.cut.has(step.id));
  const stepBody = parseStepBody(result ?? plan) ?? waiter?.step ?? {};
  const messageId = shown?.messageId ?? waiter?.child?.messageId ?? unit.runner;
  return {
    ...readStepName(unit),
    callType: shown?.callType ?? "step",
    messageId,
    state,
    createdAt: shown?.createdAt ?? waiter?.createdAt ?? view.run.createdAt,
    endedAt: readStepEnd(view, result, state),
    headers: isCut ? null : listStepHeaders(view, unit),
    isCut: isCut || isPayloadCut,
    out: result ? readStepOutput(result, stepBody, view.cut) : null,
    ...readRetries(view, call?.messageId ?? messageId),
    errors: listUnitErrors(view, unit, elsewhere),
    nextDueAt: state === "STEP_RETRY" ? findNextDueAt(view, unit) : null,
    sleepFor: readSpan(stepBody.sleepFor),
    sleepUntil: readSpan(stepBody.sleepUntil),
    wait: makeWaitDetail(unit, stepBody),
    call: makeCallDetail(view, unit),
    invoke: makeInvokeDetail(view, unit),
  };
}

type StepBody = Readonly<Record<string, unknown>>;

/** Returns a step as its endpoint posted it. Returns null if it is not a JSON object or was not loaded. */
function parseStepBody(step: Step | undefined): StepBody | null {
  if (!step || isInitial(step) || step.body.byteLength === 0) return null;
  try {
    const parsed: unknown = JSON.parse(decodeText(step.body));
    return typeof parsed === "object" && parsed !== null ? (parsed as StepBody) : null;
  } catch {
    return null;
  }
}

const decodeText = (bytes: Bytes): string => new TextDecoder().decode(bytes);

type Name = Pick<StepItem, "stepId" | "stepName" | "stepType" | "concurrent">;

function readStepName({ result, plan, call, answer, waiter }: StepUnit): Name {
  if (result && isInitial(result))
    return { stepId: null, stepName: "init", stepType: "Initial", concurrent: 1 };
  const heads = [result, plan, call, answer].flatMap((step): StepHead[] => (step?.head ? [step.head] : []));
  const head = heads[0] ?? parseStepHead(waiter?.step);
  if (!head) return { stepId: null, stepName: "", stepType: "", concurrent: 1 };
  const { stepId, targetStep, stepName, stepType } = head;
  // Only the plan of a request to a third party says how many steps run in parallel.
  return {
    stepId: stepId || (targetStep ?? 0),
    stepName,
    stepType,
    concurrent: Math.max(...heads.map((one) => one.concurrent), head.concurrent),
  };
}

function readStepState(view: RunView, unit: StepUnit): StepState {
  const { run } = view;
  if (unit.result && !isAsleep(view, unit.result)) return "STEP_SUCCESS";
  if (run.failure && isFailedBy(unit, run.failure.messageId)) return "STEP_FAILED";
  if (run.state !== "RUN_STARTED") return "STEP_CANCELED";
  const open = openMessage(view, unit);
  return open && !unit.result ? toProgressState(open) : "STEP_PROGRESS";
}

/**
 * Returns when a step ended: when its result was accepted, when its delay was over, or when the run ended
 * before the step did.
 */
function readStepEnd(view: RunView, result: Step | undefined, state: StepState): Millis | null {
  if (state === "STEP_FAILED" || state === "STEP_CANCELED") return view.run.endedAt;
  if (!result || state !== "STEP_SUCCESS") return null;
  if (!isInitial(result) && !isSleep(result)) return result.createdAt;
  // The log records the beginning of the first delivery only if the message waited.
  const [first] = view.listLog(result.messageId);
  return first?.states[0] === "ACTIVE" ? first.time : result.createdAt;
}

/**
 * Returns the state of the message that a step without a result waits for. The message of a plan does not
 * count once another row of the step exists.
 */
function openMessage(view: RunView, { answer, call, plan, waiter }: StepUnit) {
  const step = answer ?? call ?? (waiter ? undefined : plan);
  return step && view.findState(step.messageId);
}

const findNextDueAt = (view: RunView, unit: StepUnit): Millis | null =>
  openMessage(view, unit)?.dueAt ?? null;

/** Returns the failed attempts of all messages that led to a step. */
function listUnitErrors(view: RunView, unit: StepUnit, elsewhere: ReadonlySet<MessageId>): LogRow[] {
  const { runner, since, result } = unit;
  const until = result?.messageId === runner ? result.createdAt : Infinity;
  const ofRunner = (runner === null ? [] : view.listErrors(runner)).filter(
    ({ time }) => time >= since && time <= until,
  );
  const ofStep = listUnitMessages(unit).flatMap((id) => view.listErrors(id));
  return [...ofRunner, ...ofStep].filter(({ messageId }) => !elsewhere.has(messageId));
}

/** Returns the headers that the message of a step is sent with, without those that the protocol adds. */
function listStepHeaders(
  { run: { settings } }: RunView,
  { result, answer, call, plan, waiter }: StepUnit,
): HeaderList {
  const step = result ?? answer;
  if (!step && call) return call.headers;
  return joinHeaders(settings.headers, (step ?? plan ?? waiter)?.headers ?? []);
}

/** Returns the output of a step. Endpoints post it as a string; older endpoints post it as JSON. */
function readStepOutput(step: Step, stepBody: StepBody, cut: ReadonlySet<string>): string | Bytes | null {
  if (cut.has(step.id)) return null;
  if (isInitial(step) || !step.head) return step.body.byteLength === 0 ? null : step.body;
  if (stepBody.out === undefined || typeof stepBody.out === "string") return stepBody.out ?? null;
  try {
    return JSON.stringify(stepBody.out);
  } catch {
    // The value is nested too deep to be written.
    return step.body;
  }
}

const readSpan = (value: unknown): string | number | null =>
  typeof value === "string" || typeof value === "number" ? value : null;
const readText = (value: unknown): string | null => (typeof value === "string" ? value : null);

function makeWaitDetail({ result, waiter }: StepUnit, stepBody: StepBody): WaitDetail | null {
  if (!result && waiter && waiter.kind !== "invoke")
    return {
      eventId: waiter.event,
      timeout: waiter.timeout,
      deadline: waiter.dueAt,
      timedOut: null,
      event: null,
    };
  const isWait = result?.head?.stepType === "Wait" || result?.head?.stepType === "WaitForWebhook";
  if (!result || !isWait) return null;
  return {
    eventId: readText(stepBody.waitEventId),
    timeout: readText(stepBody.timeout),
    deadline: result.waited?.dueAt ?? null,
    timedOut: stepBody.waitTimeout === true,
    event: readEvent(stepBody.out),
  };
}

/**
 * Returns the event that ended a wait. The result of the wait contains the event in base64.
 */
function readEvent(out: unknown): Bytes | null {
  const event = decodeBase64(out);
  return event.byteLength > 0 && base64(event) === out ? event : null;
}

function makeCallDetail({ findStoredMessage, cut }: RunView, { call, answer }: StepUnit): CallDetail | null {
  if (!call && !answer) return null;
  const answerBody = cut.has(answer?.id ?? "") ? null : parseStepBody(answer);
  const request = call && findStoredMessage(call.messageId);
  const url = call?.url ?? readText(answerBody?.url);
  if (url === null) return null;
  const source = answerBody
    ? decodeBase64(answerBody.sourceBody)
    : call && !cut.has(call.id) && request
      ? request.body
      : null;
  return {
    url,
    method: request?.method ?? readText(answerBody?.method),
    body: source,
    headers: call?.headers ?? readHeaders(answerBody?.sourceHeader),
    response:
      answerBody && typeof answerBody.status === "number"
        ? makeCallResponse(answerBody.status, answerBody)
        : null,
  };
}

/**
 * Returns the response as the callback reports it. If there was no response, the status is `noResponseStatus`
 * and the body is the reason. Version 0.1 stored the status 0, which no response has.
 */
const makeCallResponse = (status: number, answerBody: StepBody): CallDetail["response"] => ({
  status: status === 0 ? noResponseStatus : status,
  headers: readHeaders(answerBody.header),
  body: decodeBase64(answerBody.body),
});

const decodeBase64 = (base64: unknown): Bytes => Buffer.from(readText(base64) ?? "", "base64");

const readHeaders = (map: unknown): HeaderList =>
  typeof map !== "object" || map === null
    ? []
    : Object.entries(map).flatMap(([name, values]) =>
        Array.isArray(values)
          ? values.flatMap((value: unknown) => (typeof value === "string" ? [[name, value] as const] : []))
          : [],
      );

function makeInvokeDetail(view: RunView, { result, waiter }: StepUnit): InvokeDetail | null {
  const invoked = result ? result.waited?.child : waiter?.child;
  if (!invoked) return null;
  const child = view.findChild(invoked.run);
  return {
    runId: invoked.runId,
    url: invoked.url,
    createdAt: invoked.createdAt,
    payload: child?.payload ?? null,
    headers: child?.run.settings.headers ?? null,
    redaction: child?.run.redaction ?? null,
  };
}
