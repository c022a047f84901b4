import type { LogRow, LogState } from "../../engine/core/model/logRow.ts";
import type { StoredMessage } from "../../engine/core/model/message.ts";
import type { CallbackSettings, Redaction } from "../../engine/core/model/sendSettings.ts";
import { redactBody } from "../../engine/core/model/redaction.ts";
import { isSettledByStep } from "../../engine/core/sending/recordOutcome.ts";
import { base64 } from "../../engine/core/values/base64.ts";
import type { Bytes, Millis } from "../../engine/core/values/basics.ts";
import { logBodyBytes } from "../../engine/core/values/limits.ts";
import { attemptField, explanationField, readError, readExplanation, settledByField } from "./attempt.ts";
import { isCut, makeHash, readHeaders } from "./content.ts";
import type { FieldsOf } from "./field.ts";
import { headers, integer, mark, optional, status, text, time, word } from "./field.ts";
import { damagedMark, identityFields, sendFields } from "./message.ts";

/** An event in the log of a message. `row` is null for the states that the message itself implies. */
type Event = { time: Millis; state: LogState; message: StoredMessage; row: LogRow | null };

/** Returns the row of an event with which an attempt ended. */
const readEnd = ({ state, row }: Event): LogRow | null =>
  state === "ERROR" || state === "CANCELLED" || state === "DELIVERED" || state === "ACKNOWLEDGING"
    ? row
    : null;

/** Returns the row of an event that has the response to its attempt. */
function readResponse(event: Event): LogRow | null {
  const row = readEnd(event);
  return row?.status === null ||
    event.state === "ACKNOWLEDGING" ||
    (event.state === "DELIVERED" && !event.message.keepResponse)
    ? null
    : row;
}

function readFailure({ state, row }: Event): string | null {
  // A message that was cancelled in flight may have had any response.
  if (row && state === "CANCELLED") return row.error;
  if (!row || (state !== "ERROR" && state !== "FAILED")) return null;
  return readError(row);
}

function readNextTime({ state, message, row }: Event): Millis | null {
  if (state === "CREATED") return message.notBefore > message.createdAt ? message.notBefore : null;
  return row && (state === "RETRY" || state === "ERROR") ? row.nextDueAt : null;
}

/** Returns a body in base64, cut because a page has up to 1000 events, or what hides it. */
function readBody(body: Bytes, redaction: Redaction | null, digest?: string): string | null {
  if (body.length === 0) return null;
  if (redaction?.body) return Buffer.from(redactBody(body, redaction, makeHash(digest))).toString();
  return base64(body.subarray(0, logBodyBytes));
}

function isEventCut(event: Event): boolean {
  const { redaction, body } = event.message;
  const row = readEnd(event);
  return (redaction?.body !== true && body.length > logBodyBytes) || (row !== null && isCut(row, redaction));
}

const readCallbackHeaders = (to: CallbackSettings | null, redaction: Redaction | null) =>
  to && to.headers.length > 0 ? readHeaders(to.headers, redaction) : null;

const { messageId, ...destinationFields } = identityFields;
const { callback, failureCallback, callerIP, label, labels, ...retryFields } = sendFields;

/** The states of the events in the log of a message. */
export const messageEventStates = [
  "CREATED",
  "ACTIVE",
  "ACKNOWLEDGING",
  "RETRY",
  "ERROR",
  "DELIVERED",
  "FAILED",
  "CANCEL_REQUESTED",
  "CANCELLED",
] as const;

/** The fields of an event in the log of a message. */
export const eventFields: FieldsOf<Event> = {
  time: time("When the message reached the state, in Unix milliseconds.", (event) => event.time),
  messageId,
  state: word(messageEventStates)(
    "CREATED: accepted. ACTIVE: an attempt started. ACKNOWLEDGING: the receiver has taken the attempt over " +
      "and reports its outcome later. ERROR: an attempt failed. RETRY: another attempt is planned. " +
      "DELIVERED: delivered. FAILED: failed for good. CANCEL_REQUESTED: cancellation requested while in " +
      "flight. CANCELLED: cancelled.",
    ({ state }) => state,
  ),
  ...destinationFields,
  body: optional(text)("The body in base64, cut to 16 KiB.", ({ message }) =>
    readBody(message.body, message.redaction),
  ),
  truncated: mark("The body or the response of this entry is cut.", isEventCut),
  error: optional(text)("Why the attempt or the message failed.", readFailure),
  explanation: explanationField(({ state, row, message }) =>
    row && state === "ERROR" ? readExplanation(row, message) : null,
  ),
  nextDeliveryTime: optional(time)("When the next attempt is due, in Unix milliseconds.", readNextTime),
  responseStatus: optional(status)(
    "The HTTP status of the response. Present for ERROR, DELIVERED, CANCELLED and ACKNOWLEDGING if there " +
      "was a response.",
    (event) => readEnd(event)?.status,
  ),
  settledBy: settledByField(
    ({ state, row }) => row !== null && state === "DELIVERED" && isSettledByStep(row),
  ),
  responseHeaders: optional(headers)("Headers of the response: names to lists of values.", (event) => {
    const row = readResponse(event);
    return row && readHeaders(row.headers, event.message.redaction);
  }),
  responseBody: optional(text)(
    "The body of the response in base64, cut to 16 KiB. For DELIVERED, present only with Keep-Response: " +
      "true.",
    (event) => {
      const row = readResponse(event);
      return row && (readBody(row.body, event.message.redaction, row.digest) ?? "");
    },
  ),
  attempt: attemptField((event) => readEnd(event)?.attempt),
  timeout: integer("The timeout of the message, in milliseconds.", ({ message }) => message.timeout),
  callback,
  callbackHeaders: optional(headers)("Headers of the callback: names to lists of values.", ({ message }) =>
    readCallbackHeaders(message.callback, message.redaction),
  ),
  failureCallback,
  failureCallbackHeaders: optional(headers)(
    "Headers of the failure callback: names to lists of values.",
    ({ message }) => readCallbackHeaders(message.failureCallback, message.redaction),
  ),
  ...retryFields,
  retryDelayExpr: optional(text)("Alias of retryDelayExpression.", ({ message }) => message.retryDelay),
  ...{ callerIP, label, labels },
  damaged: damagedMark(({ message }) => message.damaged),
};
