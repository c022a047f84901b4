import { headerMap } from "../../engine/core/sending/callback.ts";
import { explainFailure } from "../fields/explainFailure.ts";
import { defaults } from "../../engine/core/values/limits.ts";
import type { Bytes, HeaderList, Millis } from "../../engine/core/values/basics.ts";
import type { LogRow } from "../../engine/core/model/logRow.ts";
import type { Redaction } from "../../engine/core/model/sendSettings.ts";
import { isSettledByStep } from "../../engine/core/sending/recordOutcome.ts";
import { mergeRedactions, redactBody, redactHeaders } from "../../engine/core/model/redaction.ts";
import { listStepGroups } from "../../engine/core/workflows/log/log.ts";
import { formatRunFailure } from "../../engine/core/model/failureText.ts";
import type { NextItem, StepGroup } from "../../engine/core/workflows/log/log.ts";
import type { RunEvent } from "../../engine/core/workflows/log/events.ts";
import type { CallDetail, InvokeDetail, StepItem, WaitDetail } from "../../engine/core/workflows/log/step.ts";
import type { KnownRun } from "../../engine/core/workflows/log/view.ts";
import type { Run } from "../../engine/core/model/run.ts";
import { bodyFields, isCut, makeHash } from "../fields/content.ts";
import { omitMissing, toJson } from "../fields/field.ts";
import { lineageFields } from "../fields/run.ts";
import { sha256 } from "../http/sha256.ts";

/**
 * How a log is shown. `trim` is the size in bytes to which bodies are cut; null means no cut, -1 no bodies.
 */
export type LogView = { now: Millis; trim: number | null };

type Fields = Record<string, unknown>;
/** How much of the bodies and headers of one run is shown. */
type Visibility = { trim: number | null; redaction: Redaction | null };

/** Returns a run with the log of its steps as the API shows it. */
export function runJson(known: KnownRun, { now, trim }: LogView): Fields {
  const { run } = known;
  const visibility = { trim, redaction: run.redaction };
  return omitMissing({
    ...runFields(run),
    workflowRunCompletedAt: run.endedAt,
    workflowRunCallerIp: run.callerIp,
    ...toBodyFields(visibility, "workflowRunResponse", run.body.length === 0 ? null : run.body),
    invoker: run.invoker && runNameFields(run.invoker),
    invoked: known.children.length > 0 ? known.children.map(({ run: child }) => runFields(child)) : null,
    failureFunction: failureJson(known, visibility),
    dlqId: readDlqId(run),
    ...toJson(lineageFields, known),
    ...labelFields(run),
    flowControlKey: run.settings.flowControl?.key,
    steps: listStepGroups(known, now).map((group) => groupJson(group, visibility)),
  });
}

const runFields = ({ runId, url, state, createdAt }: Run): Fields => ({
  workflowRunId: runId,
  workflowUrl: url,
  workflowState: state,
  workflowRunCreatedAt: createdAt,
});

/** Returns the id of the run in the dead letter queue, or null if it is not there. */
const readDlqId = ({ failure }: Run): string | null => failure?.dlqId ?? null;

const labelFields = ({ labels }: Run): Fields => ({
  label: labels[0],
  labels: labels.length > 0 ? labels : null,
});

const runNameFields = ({ runId, url, createdAt }: NonNullable<Run["invoker"]>): Fields => ({
  workflowRunId: runId,
  workflowUrl: url,
  workflowRunCreatedAt: createdAt,
});

const groupJson = (group: StepGroup, visibility: Visibility): Fields =>
  group.type === "next"
    ? { type: group.type, steps: group.steps.map((item) => nextJson(item, visibility)) }
    : { type: group.type, steps: group.steps.map((item) => stepJson(item, visibility)) };

const nextJson = (
  { messageId, stepName, state, retries, retryDelay, errors, nextDueAt }: NextItem,
  visibility: Visibility,
): Fields =>
  omitMissing({
    messageId,
    stepName,
    state,
    retries,
    retryDelay,
    errors: errorsJson(errors, visibility),
    nextDeliveryTime: nextDueAt,
  });

/** Returns a step as the API shows it. */
function stepJson(item: StepItem, visibility: Visibility): Fields {
  const {
    stepId,
    stepName,
    stepType,
    callType,
    messageId,
    concurrent,
    state,
    createdAt,
    endedAt,
    retries,
    retryDelay,
  } = item;
  return omitMissing({
    stepId,
    stepName,
    stepType,
    callType,
    messageId,
    ...toBodyFields(toOutVisibility(item, visibility), "out", item.out),
    concurrent,
    state,
    createdAt,
    endedAt,
    retries,
    retryDelay,
    headers: item.headers && redactToMap(visibility, item.headers),
    errors: errorsJson(item.errors, visibility),
    nextDeliveryTime: item.nextDueAt,
    sleepFor: item.sleepFor,
    sleepUntil: item.sleepUntil,
    ...(item.wait && waitFields(item.wait, toOutVisibility(item, visibility))),
    ...(item.call && callFields(item.call, visibility)),
    ...(item.invoke && invokeFields(item.invoke, visibility)),
    ...(item.isCut ? { truncated: true } : {}),
  });
}

/**
 * Returns how much of a step's result is shown. The result of a call contains all headers of the response,
 * and the result of a webhook wait contains all headers of the request. As in callbacks, such a result is
 * therefore hidden as a whole if any header is hidden.
 */
const toOutVisibility = ({ call, stepType }: StepItem, visibility: Visibility): Visibility =>
  (call || stepType === "WaitForWebhook") && visibility.redaction?.headers
    ? { ...visibility, redaction: { ...visibility.redaction, body: true } }
    : visibility;

function waitFields(
  { eventId, timeout, deadline, timedOut, event }: WaitDetail,
  visibility: Visibility,
): Fields {
  const { eventData, truncated } = event ? toBodyFields(visibility, "eventData", event) : {};
  return {
    waitEventId: eventId,
    waitTimeoutDuration: timeout,
    waitTimeoutDeadline: deadline,
    waitTimeout: timedOut,
    eventData,
    ...(truncated === undefined ? {} : { truncated }),
  };
}

const callFields = (
  { url, method, headers, body, response }: CallDetail,
  visibility: Visibility,
): Fields => ({
  callUrl: url,
  callMethod: method,
  callHeaders: redactToMap(visibility, headers),
  ...toBodyFields(visibility, "callBody", body),
  ...(response && {
    callResponseStatus: response.status,
    ...toBodyFields(visibility, "callResponseBody", response.body),
    callResponseHeaders: redactToMap(visibility, response.headers),
  }),
});

function invokeFields(
  { runId, url, createdAt, payload, headers, redaction }: InvokeDetail,
  { trim, redaction: own }: Visibility,
): Fields {
  const visibility = { trim, redaction: mergeRedactions(own, redaction) };
  return {
    invokedWorkflowRunId: runId,
    invokedWorkflowUrl: url,
    invokedWorkflowCreatedAt: createdAt,
    ...toBodyFields(visibility, "invokedWorkflowRunBody", payload),
    invokedWorkflowRunHeaders: headers && redactToMap(visibility, headers),
  };
}

const errorsJson = (errors: readonly LogRow[], visibility: Visibility): Fields[] | null =>
  errors.length === 0 ? null : errors.map((row) => errorJson(row, visibility));

const errorJson = (row: LogRow, visibility: Visibility): Fields =>
  omitMissing({
    error: describeError(row),
    explanation: explainFailure(row, { redaction: visibility.redaction, ofRun: true }),
    ...responseBodyFields(visibility, "body", row),
    status: row.status,
    time: row.time,
    headers: row.status === null ? null : redactToMap(visibility, row.headers),
  });

/** Returns the fields of a response body. The log keeps only the beginning of long bodies. */
const responseBodyFields = (
  visibility: Visibility,
  name: string,
  row: Pick<LogRow, "body" | "digest" | "cut">,
): Fields => ({
  ...toBodyFields({ ...visibility, digest: row.digest }, name, row.body),
  ...(isCut(row, visibility.redaction) ? { truncated: true } : {}),
});

/** Returns the error of an attempt, or null if it had none. */
const describeError = ({ error, status }: LogRow): string | null =>
  error ?? (status === null ? null : `the destination answered with status ${status}`);

/** Returns the failure callback of a run and the failure that it reports, or null if there is none. */
function failureJson({ run, log }: KnownRun, visibility: Visibility): Fields | null {
  const { failure, settings } = run;
  if (!failure?.callback) return null;
  const {
    messageId,
    url,
    state,
    responseStatus,
    responseBody = "",
    responseHeaders,
    digest,
    cut,
  } = failure.callback;
  const last = log.findLast((row) => row.messageId === failure.messageId && row.states.includes("FAILED"));
  const tries = log.filter((row) => row.messageId === messageId && row.states.includes("ERROR"));
  return omitMissing({
    messageId,
    url,
    state,
    dlqId: readDlqId(run),
    failStatus: failure.status,
    ...(last ? responseBodyFields(visibility, "failResponse", last) : {}),
    failHeaders: failure.status === null ? null : redactToMap(visibility, failure.headers),
    errors: errorsJson(tries, visibility),
    responseStatus,
    ...toBodyFields({ ...visibility, digest }, "responseBody", responseBody === "" ? null : responseBody),
    ...(isCut({ digest, cut }, visibility.redaction) ? { truncated: true } : {}),
    responseHeaders: responseHeaders && redactToMap(visibility, responseHeaders),
    maxRetries: settings.failureCallback?.retries ?? settings.retries ?? defaults.retries,
    nextDeliveryTime: state === "CALLBACK_INPROGRESS" ? tries.at(-1)?.nextDueAt : null,
  });
}

const redactToMap = ({ redaction }: Visibility, headers: HeaderList): Record<string, string[]> =>
  headerMap(redactHeaders(headers, redaction, sha256));

/**
 * Returns a body as the field `name` if it is text, or else as `<name>Base64`. The body is hidden, cut or
 * omitted as `visibility` says; if it is cut here, `truncated` is true. `digest` is the hash of the whole
 * body if the log keeps only its beginning.
 */
function toBodyFields(
  { redaction, trim, digest }: Visibility & { digest?: string | undefined },
  name: string,
  body: string | Bytes | null,
): Fields {
  if (body === null || trim === -1) return {};
  if (redaction?.body)
    return { [name]: Buffer.from(redactBody(Buffer.from(body), redaction, makeHash(digest))).toString() };
  const truncated = trim !== null && Buffer.byteLength(body) > trim ? { truncated: true } : {};
  const { text = "", base64 } = typeof body === "string" ? { text: body } : bodyFields(body);
  if (base64 === undefined) return { [name]: trim === null ? text : cutText(text, trim), ...truncated };
  return {
    [`${name}Base64`]: trim === null ? base64 : Buffer.from(body).subarray(0, trim).toString("base64"),
    ...truncated,
  };
}

/** Returns the beginning of a string, at most `bytes` bytes long in UTF-8. */
function cutText(text: string, bytes: number): string {
  if (text.length * 3 <= bytes) return text;
  // The decoder omits a character that is cut in the middle.
  return new TextDecoder().decode(Buffer.from(text.slice(0, bytes)).subarray(0, bytes), { stream: true });
}

/** Returns an event of a run as the API shows it. Only the first event of a step has the step's details. */
export function runEventJson(
  { known: { run }, ...event }: RunEvent & { known: KnownRun },
  trim: number | null,
): Fields {
  const visibility = { trim, redaction: run.redaction };
  const { time, state, messageId, item, row } = event;
  return omitMissing({
    time,
    state,
    messageId,
    workflowRunId: run.runId,
    workflowUrl: run.url,
    workflowCreatedAt: run.createdAt,
    stepInfo: item && (event.isFirst ? stepJson({ ...item, errors: [] }, visibility) : nameJson(item)),
    ...(row && attemptFields(row, state, { ...visibility, dlqId: readDlqId(run) })),
    ...(state === "RUN_STARTED" && run.invoker ? eventInvokerFields(run.invoker) : {}),
    ...(state === "RUN_SUCCESS"
      ? toBodyFields(visibility, "workflowRunResponse", run.body.length === 0 ? null : run.body)
      : {}),
    ...(state === "RUN_FAILED"
      ? { dlqId: readDlqId(run), error: run.failure && formatRunFailure(run.failure, run.redaction) }
      : {}),
    ...labelFields(run),
    callerIp: run.callerIp,
  });
}

const nameJson = ({ stepId, stepName, stepType, callType, concurrent, state }: StepItem): Fields =>
  omitMissing({ stepId, stepName, stepType, callType, concurrent, state });

const eventInvokerFields = ({ runId, url, createdAt }: NonNullable<Run["invoker"]>): Fields => ({
  invokerWorkflowRunId: runId,
  invokerWorkflowUrl: url,
  invokerWorkflowCreatedAt: createdAt,
});

function attemptFields(
  row: LogRow,
  state: RunEvent["state"],
  { dlqId, ...visibility }: Visibility & { dlqId: string | null },
): Fields {
  if (state === "RETRY") return { nextDeliveryTime: row.nextDueAt };
  if (state === "FAILED") return { error: describeError(row), dlqId: row.dlqId === dlqId ? dlqId : null };
  if (state !== "ERROR" && state !== "DELIVERED") return {};
  const { body, headers, truncated } = errorJson(row, visibility);
  const answer = {
    responseStatus: row.status,
    responseBody: body,
    responseHeaders: headers,
    ...(truncated ? { truncated } : {}),
  };
  if (state === "DELIVERED")
    return row.headers.length > 0 || row.body.length > 0
      ? answer
      : { responseStatus: row.status, settledBy: isSettledByStep(row) ? "step" : null };
  return {
    error: describeError(row),
    nextDeliveryTime: row.nextDueAt,
    ...answer,
  };
}
