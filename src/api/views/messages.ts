import { headerMap } from "../../engine/core/sending/callback.ts";
import type { Bytes } from "../../engine/core/values/basics.ts";
import type { CallbackSettings, FlowControl, Redaction } from "../../engine/core/model/sendSettings.ts";
import type { StoredMessage } from "../../engine/core/model/message.ts";
import type { LogRow } from "../../engine/core/model/logRow.ts";
import { isSettledByStep } from "../../engine/core/sending/outcome.ts";
import type { FailureCallbackInfo } from "../../engine/core/model/deadLetter.ts";
import { sha256 } from "../http/sha256.ts";
import { redactBody, redactHeaders } from "../../engine/core/model/redaction.ts";
import { defaults, logBodyBytes } from "../../engine/core/values/limits.ts";
import type { LogEntry } from "../../engine/store/queries/logs.ts";
import type { DeadLetterEntry } from "../../engine/store/queries/deadLetters.ts";
import { base64 } from "../../engine/core/values/base64.ts";
import { explainFailure } from "./explainFailure.ts";

const strictDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Returns a body as text if it is UTF-8, or else in base64. Returns no field for an empty body. */
export function bodyFields(body: Bytes): { text?: string; base64?: string } {
  if (body.length === 0) return {};
  try {
    return { text: strictDecoder.decode(body) };
  } catch {
    return { base64: base64(body) };
  }
}

/** Returns a message as the API shows it. */
export function messageJson(message: StoredMessage): Record<string, unknown> {
  const { redaction } = message;
  const { text, base64: bodyBase64 } = bodyFields(redactBody(message.body, redaction, sha256));
  return omitMissing({
    messageId: message.id,
    url: message.url,
    ...originFields(message),
    method: message.method,
    header: headerMap(redactHeaders(message.headers, redaction, sha256)),
    body: text,
    bodyBase64,
    maxRetries: message.retries,
    retryDelayExpression: message.retryDelay,
    hideHeaders: message.hideHeaders,
    notBefore: message.notBefore,
    createdAt: message.createdAt,
    callback: message.callback?.url,
    failureCallback: message.failureCallback?.url,
    callerIP: message.callerIp,
    label: message.labels[0],
    labels: message.labels.length > 0 ? message.labels : null,
    ...flowControlFields(message),
    replayOf: message.replayOf,
    damaged: message.damaged,
  });
}

/** Returns the URL group, queue and schedule of a message. */
export const originFields = ({
  group,
  endpoint,
  queue,
  scheduleId,
}: StoredMessage): Record<string, unknown> => ({
  topicName: group,
  endpointName: endpoint,
  queueName: queue,
  scheduleId,
});

/**
 * Returns the limits that the message was published with, not the current ones of its key. The period is in
 * seconds.
 */
export function flowControlFields({
  flowControl,
}: {
  flowControl: FlowControl | null;
}): Record<string, unknown> {
  if (!flowControl) return {};
  const { key, parallelism, rate, period } = flowControl;
  return { flowControlKey: key, parallelism, rate, period: (period ?? defaults.period) / 1000 };
}

/**
 * Returns a dead letter as the API shows it. `error` is the reason why there was no response, or null if
 * there was one. Without a response, there is no `responseStatus`.
 */
export function deadLetterJson({ deadLetter, message }: DeadLetterEntry): Record<string, unknown> {
  const { redaction } = message;
  const shown = omitMissing({
    ...messageJson(message),
    dlqId: deadLetter.id,
    ...responseJson(deadLetter, redaction),
    explanation: explainFailure(deadLetter, toFailureContext(message)),
    failureCallbackInfo:
      deadLetter.failureCallback && callbackInfoJson(deadLetter.failureCallback, redaction),
    replays: deadLetter.replays,
    damaged: deadLetter.damaged ?? message.damaged,
  });
  return { ...shown, error: deadLetter.error };
}

/** Returns the facts about a message that the explanation of a failure needs. */
const toFailureContext = ({ redaction, run }: Pick<StoredMessage, "redaction" | "run">) => ({
  redaction,
  ofRun: run !== undefined && run.kind !== "call",
});

type StoredResponse = Pick<LogRow, "status" | "headers" | "body"> & Cut;

/** Returns the fields of a response. They are null if there was no response. */
function responseJson(response: StoredResponse, redaction: Redaction | null): Record<string, unknown> {
  const { status, headers, body, digest } = response;
  const { text, base64: responseBodyBase64 } = bodyFields(redactBody(body, redaction, makeHash(digest)));
  return {
    responseStatus: status,
    responseHeader: status === null ? null : headerMap(redactHeaders(headers, redaction, sha256)),
    responseBody: text,
    responseBodyBase64,
    truncated: isCut(response, redaction) ? true : null,
  };
}

/**
 * Returns the outcome of an attempt as the view of its message shows it. The headers of a success are known
 * only if the log keeps the response.
 */
export function outcomeJson(row: LogRow, message: StoredMessage): Record<string, unknown> {
  const { redaction, keepResponse } = message;
  const isUnknown = row.states.includes("DELIVERED") && keepResponse !== true;
  return omitMissing({
    time: row.time,
    ...responseJson(row, redaction),
    ...(isUnknown ? { responseHeader: null } : {}),
    settledBy: isSettledByStep(row) ? "step" : null,
    error: row.error,
    explanation: explainFailure(row, toFailureContext(message)),
    ...attemptJson(row),
  });
}

/** Returns the times of an attempt, and its node. */
function attemptJson({ attempt }: LogRow): Record<string, unknown> {
  if (!attempt) return {};
  const { host: _host, ...shown } = attempt;
  return { attempt: omitMissing(shown) };
}

function callbackInfoJson(
  { responseHeaders, responseBody, digest, cut, ...info }: FailureCallbackInfo,
  redaction: Redaction | null,
): Record<string, unknown> {
  const shown =
    responseBody === undefined
      ? undefined
      : Buffer.from(redactBody(Buffer.from(responseBody), redaction, makeHash(digest))).toString();
  return {
    ...info,
    ...(shown === undefined ? {} : { responseBody: shown }),
    ...(responseHeaders === undefined
      ? {}
      : { responseHeaders: headerMap(redactHeaders(responseHeaders, redaction, sha256)) }),
    ...(isCut({ digest, cut }, redaction) ? { truncated: true } : {}),
  };
}

type Cut = { digest?: string | undefined; cut?: true | undefined };

/**
 * Reports whether a response is shown only in part. This is not so for a hidden body: its hash covers
 * everything that was read, even if the log keeps only the beginning.
 */
export const isCut = ({ digest, cut }: Cut, redaction: Redaction | null): boolean =>
  cut === true || (digest !== undefined && redaction?.body !== true);

/**
 * Returns a log entry as the API shows it. Bodies are in base64 and cut, because a page has up to 1000
 * entries.
 */
export function eventJson({ time, state, message, row }: LogEntry): Record<string, unknown> {
  const { redaction } = message;
  const showsAnswer = row !== null && (state === "ERROR" || state === "CANCELLED" || state === "DELIVERED");
  const isBodyCut = redaction?.body !== true && message.body.length > logBodyBytes;
  const callbackHeaders = (to: CallbackSettings | null): Record<string, string[]> | null =>
    to && to.headers.length > 0 ? headerMap(redactHeaders(to.headers, redaction, sha256)) : null;
  return omitMissing({
    time,
    messageId: message.id,
    state,
    url: message.url,
    ...originFields(message),
    method: message.method,
    header: headerMap(redactHeaders(message.headers, redaction, sha256)),
    body: logBody(message),
    truncated: isBodyCut || (showsAnswer && isCut(row, redaction)) ? true : null,
    ...attemptFields({ time, state, message, row }),
    timeout: message.timeout,
    callback: message.callback?.url,
    callbackHeaders: callbackHeaders(message.callback),
    failureCallback: message.failureCallback?.url,
    failureCallbackHeaders: callbackHeaders(message.failureCallback),
    maxRetries: message.retries,
    retryDelayExpression: message.retryDelay,
    hideHeaders: message.hideHeaders,
    retryDelayExpr: message.retryDelay,
    callerIP: message.callerIp,
    label: message.labels[0],
    labels: message.labels.length > 0 ? message.labels : null,
    damaged: message.damaged,
  });
}

function attemptFields({ state, message, row }: LogEntry): Record<string, unknown> {
  if (state === "CREATED")
    return { nextDeliveryTime: message.notBefore > message.createdAt ? message.notBefore : null };
  if (!row) return {};
  const error =
    row.error ?? (row.status === null ? null : `the destination answered with status ${row.status}`);
  if (state === "FAILED") return { error };
  if (state === "RETRY") return { nextDeliveryTime: row.nextDueAt };
  // A message that was cancelled in flight may have had any response.
  const attempt = attemptJson(row);
  if (state === "CANCELLED")
    return { error: row.error, responseStatus: row.status, ...responseFields(row, message), ...attempt };
  if (state === "DELIVERED")
    return {
      responseStatus: row.status,
      settledBy: isSettledByStep(row) ? "step" : null,
      ...(message.keepResponse ? responseFields(row, message) : {}),
      ...attempt,
    };
  if (state !== "ERROR") return {};
  return {
    error,
    explanation: explainFailure(row, toFailureContext(message)),
    nextDeliveryTime: row.nextDueAt,
    responseStatus: row.status,
    ...responseFields(row, message),
    ...attempt,
  };
}

type ResponseFields = Pick<LogRow, "status" | "headers" | "body" | "digest">;

const responseFields = (
  { status, headers, body, digest }: ResponseFields,
  { redaction }: StoredMessage,
): Record<string, unknown> =>
  status === null
    ? {}
    : {
        responseHeaders: headerMap(redactHeaders(headers, redaction, sha256)),
        responseBody: logBody({ body, redaction, digest }) ?? "",
      };

/**
 * Returns the hash function for a body. For a cut body it returns `digest`, the stored hash of the whole
 * body.
 */
export const makeHash = (digest: string | undefined): typeof sha256 =>
  digest === undefined ? sha256 : () => digest;

function logBody({
  body,
  redaction,
  digest,
}: Pick<StoredMessage, "body" | "redaction"> & { digest?: string | undefined }): string | null {
  if (body.length === 0) return null;
  if (redaction?.body) return Buffer.from(redactBody(body, redaction, makeHash(digest))).toString();
  return base64(body.subarray(0, logBodyBytes));
}

/** Returns the fields without those that are null or undefined. */
export function omitMissing(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== null && value !== undefined),
  );
}
