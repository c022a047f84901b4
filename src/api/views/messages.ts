import { headerMap } from "../../core/sending/callback.ts";
import type { Bytes, CallbackSettings, Envelope, FailureCallbackInfo, FlowControl, LogRow, Redaction } from "../../core/model/message.ts";
import { sha256 } from "../http/sha256.ts";
import { redactBody, redactHeaders } from "../../core/model/redaction.ts";
import { defaults, logBodyBytes } from "../../core/values/limits.ts";
import type { LogEvent } from "../../store/queries/logs.ts";
import type { DeadLetterEntry } from "../../store/queries/index.ts";
import { base64 } from "../../core/values/base64.ts";

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** A body as text where it is UTF-8, in base64 where it is not; nothing where it is empty. */
export function bodyFields(body: Bytes): { text?: string; base64?: string } {
  if (body.length === 0) return {};
  try {
    return { text: strict.decode(body) };
  } catch {
    return { base64: base64(body) };
  }
}

/** A message, as it is shown. */
export function messageJson(envelope: Envelope): Record<string, unknown> {
  const { redaction } = envelope;
  const { text, base64: bodyBase64 } = bodyFields(redactBody(envelope.body, redaction, sha256));
  return present({
    messageId: envelope.id,
    url: envelope.url,
    ...cameBy(envelope),
    method: envelope.method,
    header: headerMap(redactHeaders(envelope.headers, redaction, sha256)),
    body: text,
    bodyBase64,
    maxRetries: envelope.retries,
    retryDelayExpression: envelope.retryDelay,
    notBefore: envelope.notBefore,
    createdAt: envelope.createdAt,
    callback: envelope.callback?.url,
    failureCallback: envelope.failureCallback?.url,
    callerIP: envelope.callerIp,
    label: envelope.labels[0],
    labels: envelope.labels.length > 0 ? envelope.labels : null,
    ...flowControlFields(envelope),
    damaged: envelope.damaged,
  });
}

/** What brought the message to its destination. */
const cameBy = ({ group, endpoint, queue, scheduleId }: Envelope): Record<string, unknown> => ({
  ...{ topicName: group, endpointName: endpoint, queueName: queue, scheduleId },
});

/** The limits that the message brought, not those that hold for its key now. The period is in seconds. */
export function flowControlFields({ flowControl }: { flowControl: FlowControl | null }): Record<string, unknown> {
  if (!flowControl) return {};
  const { key, parallelism, rate, period } = flowControl;
  return { flowControlKey: key, parallelism, rate, period: (period ?? defaults.period) / 1000 };
}

/**
 * A dead letter, as it is shown. `error` says why there was no response, and is null if there was one. Without a response there
 * is no `responseStatus`.
 */
export function deadLetterJson({ letter, envelope }: DeadLetterEntry): Record<string, unknown> {
  const { redaction } = envelope;
  const { text, base64: responseBodyBase64 } = bodyFields(redactBody(letter.body, redaction, hashOf(letter.digest)));
  const shown = present({
    ...messageJson(envelope),
    dlqId: letter.id,
    responseStatus: letter.status,
    responseHeader: letter.status === null ? null : headerMap(redactHeaders(letter.headers, redaction, sha256)),
    responseBody: text,
    responseBodyBase64,
    truncated: isCut(letter, redaction) ? true : null,
    failureCallbackInfo: letter.failureCallback && infoJson(letter.failureCallback, redaction),
    damaged: letter.damaged ?? envelope.damaged,
  });
  return { ...shown, error: letter.error };
}

function infoJson(
  { responseHeaders, responseBody, digest, cut, ...info }: FailureCallbackInfo,
  redaction: Redaction | null,
): Record<string, unknown> {
  const shown =
    responseBody === undefined ? undefined : Buffer.from(redactBody(Buffer.from(responseBody), redaction, hashOf(digest))).toString();
  return {
    ...info,
    ...(shown === undefined ? {} : { responseBody: shown }),
    ...(responseHeaders === undefined ? {} : { responseHeaders: headerMap(redactHeaders(responseHeaders, redaction, sha256)) }),
    ...(isCut({ digest, cut }, redaction) ? { truncated: true } : {}),
  };
}

type Cut = { digest?: string | undefined; cut?: true | undefined };

/** Whether a response is shown in part. A body that is hidden shows as the hash of all of it, as far as it was read. */
export const isCut = ({ digest, cut }: Cut, redaction: Redaction | null): boolean =>
  cut === true || (digest !== undefined && redaction?.body !== true);

/** A line of the log, as it is shown. Bodies are in base64, and cut: a page has up to a thousand lines. */
export function eventJson({ time, state, envelope, row }: LogEvent): Record<string, unknown> {
  const { redaction } = envelope;
  const showsAnswer = row !== null && (state === "ERROR" || state === "CANCELLED" || state === "DELIVERED");
  const isBodyCut = redaction?.body !== true && envelope.body.length > logBodyBytes;
  const callbackHeaders = (to: CallbackSettings | null): Record<string, string[]> | null =>
    to && to.headers.length > 0 ? headerMap(redactHeaders(to.headers, redaction, sha256)) : null;
  return present({
    time,
    messageId: envelope.id,
    state,
    url: envelope.url,
    ...cameBy(envelope),
    method: envelope.method,
    header: headerMap(redactHeaders(envelope.headers, redaction, sha256)),
    body: logBody(envelope),
    truncated: isBodyCut || (showsAnswer && isCut(row, redaction)) ? true : null,
    ...attemptFields({ time, state, envelope, row }),
    timeout: envelope.timeout,
    callback: envelope.callback?.url,
    callbackHeaders: callbackHeaders(envelope.callback),
    failureCallback: envelope.failureCallback?.url,
    failureCallbackHeaders: callbackHeaders(envelope.failureCallback),
    maxRetries: envelope.retries,
    retryDelayExpression: envelope.retryDelay,
    retryDelayExpr: envelope.retryDelay,
    callerIP: envelope.callerIp,
    label: envelope.labels[0],
    labels: envelope.labels.length > 0 ? envelope.labels : null,
    damaged: envelope.damaged,
  });
}

function attemptFields({ state, envelope, row }: LogEvent): Record<string, unknown> {
  if (state === "CREATED") return { nextDeliveryTime: envelope.notBefore > envelope.createdAt ? envelope.notBefore : null };
  if (!row) return {};
  const error = row.error ?? (row.status === null ? null : `the destination answered with status ${row.status}`);
  if (state === "FAILED") return { error };
  if (state === "RETRY") return { nextDeliveryTime: row.nextDueAt };
  // The request of a message that was cancelled meanwhile may have had any answer.
  if (state === "CANCELLED") return { error: row.error, responseStatus: row.status, ...answerFields(row, envelope) };
  if (state === "DELIVERED") return { responseStatus: row.status, ...(envelope.keepResponse ? answerFields(row, envelope) : {}) };
  if (state !== "ERROR") return {};
  return { error, nextDeliveryTime: row.nextDueAt, responseStatus: row.status, ...answerFields(row, envelope) };
}

type Answered = Pick<LogRow, "status" | "headers" | "body" | "digest">;

const answerFields = ({ status, headers, body, digest }: Answered, { redaction }: Envelope): Record<string, unknown> =>
  status === null
    ? {}
    : { responseHeaders: headerMap(redactHeaders(headers, redaction, sha256)), responseBody: logBody({ body, redaction, digest }) ?? "" };

/** The hash of a body that was cut is known. */
export const hashOf = (digest: string | undefined): typeof sha256 => (digest === undefined ? sha256 : () => digest);

function logBody({ body, redaction, digest }: Pick<Envelope, "body" | "redaction"> & { digest?: string | undefined }): string | null {
  if (body.length === 0) return null;
  if (redaction?.body) return Buffer.from(redactBody(body, redaction, hashOf(digest))).toString();
  return base64(body.subarray(0, logBodyBytes));
}

/** Leaves out what there is not. */
export function present(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));
}
