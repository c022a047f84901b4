import type { DeadLetter, FailureCallbackInfo } from "../../engine/core/model/deadLetter.ts";
import type { StoredMessage } from "../../engine/core/model/message.ts";
import type { Redaction } from "../../engine/core/model/sendSettings.ts";
import { redactBody } from "../../engine/core/model/redaction.ts";
import { explanationField, readExplanation } from "./attempt.ts";
import { isCut, makeHash, readBase64, readHeaders, readText } from "./content.ts";
import type { FieldsOf } from "./field.ts";
import { headers, mark, nullable, object, optional, status, text, texts, word } from "./field.ts";
import { damagedMark, messageFields } from "./message.ts";

/** The states of a failure callback. */
export const callbackStates = [
  "CALLBACK_INPROGRESS",
  "CALLBACK_SUCCESS",
  "CALLBACK_FAIL",
  "CALLBACK_CANCELED",
] as const;

type ShownCallback = { info: FailureCallbackInfo; redaction: Redaction | null };

const callbackFields: FieldsOf<ShownCallback> = {
  responseStatus: optional(status)(
    "The HTTP status of the last response. Absent if there was none.",
    ({ info }) => info.responseStatus,
  ),
  state: word(callbackStates)(
    "CALLBACK_INPROGRESS: being delivered. CALLBACK_SUCCESS: delivered. CALLBACK_FAIL: failed for " +
      "good. CALLBACK_CANCELED: cancelled.",
    ({ info }) => info.state,
  ),
  responseBody: optional(text)("The body of the last response.", ({ info, redaction }) =>
    info.responseBody === undefined
      ? null
      : Buffer.from(redactBody(Buffer.from(info.responseBody), redaction, makeHash(info.digest))).toString(),
  ),
  responseHeaders: optional(headers)(
    "Headers of the last response: names to lists of values.",
    ({ info, redaction }) => info.responseHeaders && readHeaders(info.responseHeaders, redaction),
  ),
  truncated: mark("The response is cut.", ({ info, redaction }) => isCut(info, redaction)),
};

/** The fields of a dead letter. */
export const deadLetterFields = {
  ...messageFields,
  dlqId: text("The id of the dead letter.", ({ deadLetter }) => deadLetter.id, "DEAD LETTER"),
  responseStatus: optional(status)(
    "The HTTP status of the last response. Absent if there was none; error gives the reason.",
    ({ deadLetter }) => deadLetter.status,
  ),
  responseHeader: optional(headers)(
    "Headers of the last response: names to lists of values.",
    ({ deadLetter: { status, headers }, message }) =>
      status === null ? null : readHeaders(headers, message.redaction),
  ),
  responseBody: optional(text)(
    "The body of the last response, if it is UTF-8.",
    ({ deadLetter: { body, digest }, message }) => readText(body, message.redaction, digest),
  ),
  responseBodyBase64: optional(text)(
    "The body of the last response in base64, if it is not UTF-8.",
    ({ deadLetter, message }) => readBase64(deadLetter.body, message.redaction),
  ),
  truncated: mark(
    "The last response was too long, so only its beginning is kept.",
    ({ deadLetter, message }) => isCut(deadLetter, message.redaction),
  ),
  explanation: explanationField(({ deadLetter, message }) => readExplanation(deadLetter, message)),
  failureCallbackInfo: optional(object(callbackFields))(
    "The state of the failure callback. Absent if the message has none.",
    ({ deadLetter: { failureCallback: info }, message: { redaction } }) => info && { info, redaction },
  ),
  replays: optional(texts)(
    "The ids of the latest messages that replay this dead letter, the newest last.",
    ({ deadLetter }) => deadLetter.replays,
  ),
  damaged: damagedMark(({ deadLetter, message }) => deadLetter.damaged ?? message.damaged),
  error: nullable(text)(
    "Why the last attempt had no response, or null if it had one.",
    ({ deadLetter }) => deadLetter.error,
  ),
} satisfies FieldsOf<{ deadLetter: DeadLetter; message: StoredMessage }>;
