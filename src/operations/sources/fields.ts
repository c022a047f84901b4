import type { FieldsOf, Settings } from "../../api/fields/field.ts";
import {
  count,
  flag,
  headers,
  integer,
  longText,
  mark,
  nullable,
  object,
  optional,
  positive,
  settings,
  text,
  time,
} from "../../api/fields/field.ts";
import { readBase64, readHeaders, readText } from "../../api/fields/content.ts";
import type { Redaction } from "../../engine/core/model/sendSettings.ts";
import type { Bytes, HeaderList, Millis } from "../../engine/core/values/basics.ts";
import type { KeptCall } from "./keptCall.ts";
import type { Rejection, WebhookSource } from "../../engine/core/model/webhookSource.ts";
import type { Verification } from "./schemes/verification.ts";

/** How a source verifies calls, without the secrets. Only the scheme `hmac` has more than the first two. */
export type ShownVerification = { scheme: string; secrets: number } & Partial<
  Omit<Extract<Verification, { scheme: "hmac" }>, "scheme" | "secret">
>;

const timestampFields: FieldsOf<NonNullable<ShownVerification["timestamp"]>> = {
  header: text("The header with the time of signing.", ({ header }) => header),
  unit: text("The unit of the time.", ({ unit }) => unit),
  toleranceSeconds: positive(
    "How far the time may be in the past or future, in seconds.",
    ({ toleranceSeconds }) => toleranceSeconds,
  ),
};

const handshakeFields: FieldsOf<NonNullable<ShownVerification["handshake"]>> = {
  kind: text("The kind of the question: hub or echo.", ({ kind }) => kind),
  parameter: optional(text)("The query parameter that is echoed.", (handshake) =>
    handshake.kind === "echo" ? handshake.parameter : null,
  ),
};

const verificationFields: FieldsOf<ShownVerification> = {
  scheme: text("The signature scheme of the sender, such as github.", ({ scheme }) => scheme),
  secrets: positive(
    "The number of secrets. The secrets themselves are never shown.",
    ({ secrets }) => secrets,
  ),
  header: optional(text)("The header with the signature.", ({ header }) => header),
  algorithm: optional(text)("The hash function of the HMAC.", ({ algorithm }) => algorithm),
  encoding: optional(text)("The encoding of the signature in its header.", ({ encoding }) => encoding),
  prefix: optional(text)("The text before the signature in its header.", ({ prefix }) => prefix),
  timestamp: optional(object(timestampFields))(
    "The time of signing. Absent if it is not signed.",
    ({ timestamp }) => timestamp,
  ),
  signed: optional(text)("The signed text, with {body} and {timestamp}.", ({ signed }) => signed),
  eventIdHeader: optional(text)(
    "The header with the sender's event id. Absent if there is none.",
    ({ eventIdHeader }) => eventIdHeader,
  ),
  deduplicateBy: optional(text)(
    "How repeated calls for one event are recognized. Absent for the default.",
    ({ deduplicateBy }) => deduplicateBy,
  ),
  handshake: optional(object(handshakeFields))(
    "The unsigned question of the sender that is answered, without its verify token. Absent if there is " +
      "none.",
    ({ handshake }) => handshake,
  ),
};

/** A source with its counts of calls, without what its settings hide. */
type ShownSource = {
  source: WebhookSource;
  settings: Settings;
  verification: ShownVerification | null;
  accepted: number;
  rejected: number;
};

/** The fields of a source. */
export const sourceFields = {
  sourceId: text("The id of the source.", ({ source }) => source.id, "SOURCE"),
  name: longText("The name of the source.", ({ source }) => source.name),
  destination: longText(
    "The URL or the name of the URL group that calls are published to. In the response to a change by a " +
      "token without the verb read, this field, the name, the settings and the verification are empty.",
    ({ source }) => source.destination,
  ),
  settings: settings(
    "The settings of the messages that the source publishes: names to values.",
    ({ settings }) => settings,
  ),
  verification: nullable(object(verificationFields))(
    "How calls are verified. Only the scheme hmac has more than the first two fields. " +
      "null means that calls are not verified.",
    ({ verification }) => verification,
  ),
  deduplicate: flag("Whether a repeated call is published only once.", ({ source }) => source.deduplicate),
  paused: flag(
    "Whether the source is paused. A paused source refuses all calls.",
    ({ source }) => source.paused,
  ),
  keepsRejected: mark(
    "Rejected calls are kept whole for a day, so that they can be sent later.",
    ({ source }) => source.keepsRejected,
  ),
  keptCalls: optional(count)(
    "The number of rejected calls that are kept whole.",
    ({ source }) => source.keptCalls?.length,
  ),
  createdAt: time("When the source was created, in Unix milliseconds.", ({ source }) => source.createdAt),
  acceptedAt: optional(time)(
    "When a call was last accepted, in Unix milliseconds, to the minute. Absent if none was.",
    ({ source }) => source.acceptedAt,
  ),
  lastCallAt: optional(time)(
    "When a call was last accepted or rejected, in Unix milliseconds, to the minute. Absent if none was. " +
      "Calls to a paused source do not count.",
    ({ source: { acceptedAt, rejectedAt } }) => Math.max(acceptedAt ?? 0, rejectedAt ?? 0) || null,
    "LAST CALL",
  ),
  accepted: count(
    "The number of calls accepted since the source was created. Repeated calls, which publish nothing, " +
      "are included.",
    ({ accepted }) => accepted,
  ),
  rejected: count(
    "The number of calls rejected since the source was created. Rejected calls that are not kept are " +
      "counted when the next one is kept.",
    ({ rejected }) => rejected,
  ),
} satisfies FieldsOf<ShownSource>;

/** A kept call, without the secret of its source. `redaction` is what the settings of the source hide. */
type ShownCall = Pick<KeptCall, "time" | "dueAt"> & {
  number: number;
  headers: HeaderList;
  body: Bytes;
  callerIp: string | null;
  redaction: Redaction | null;
};

/** The fields of a rejected call that is kept whole. */
export const keptCallFields: FieldsOf<ShownCall> = {
  callId: text("The id of the call.", ({ number }) => String(number)),
  time: time("When the call arrived, in Unix milliseconds.", ({ time }) => time),
  keptUntil: time("When the call is removed, in Unix milliseconds.", ({ dueAt }) => dueAt),
  header: headers(
    "The headers of the call: names to lists of values. Credentials are not shown.",
    ({ headers, redaction }) => readHeaders(headers, redaction),
  ),
  body: optional(text)("The whole body, if it is UTF-8.", ({ body, redaction }) => readText(body, redaction)),
  bodyBase64: optional(text)("The whole body in base64, if it is not UTF-8.", ({ body, redaction }) =>
    readBase64(body, redaction),
  ),
  callerIP: optional(text)("The IP address of the caller, if it is known.", ({ callerIp }) => callerIp),
};

/** The fields of a call that a source rejected. `redaction` is what the settings of the source hide. */
export const rejectionFields: FieldsOf<
  Rejection & { redaction: Redaction | null; keptUntil: Millis | undefined }
> = {
  callId: optional(text)(
    "The id of the whole call. Absent if the call is not kept.",
    ({ number, keptUntil }) => (keptUntil === undefined ? null : String(number)),
  ),
  keptUntil: optional(time)(
    "Until when the whole call is kept, in Unix milliseconds. Absent if it is not kept.",
    ({ keptUntil }) => keptUntil,
  ),
  time: time("When the call arrived, in Unix milliseconds.", ({ time }) => time),
  reason: text("Why the call was rejected.", ({ reason }) => reason),
  method: text("The HTTP method of the call.", ({ method }) => method),
  header: headers(
    "The headers of the call: names to lists of values. Credentials are not shown.",
    ({ headers, redaction }) => readHeaders(headers, redaction),
  ),
  bodySize: integer("The size of the whole body in bytes.", ({ size }) => size),
  body: optional(text)("The body, if it is UTF-8, cut to 16 KiB.", ({ body, redaction }) =>
    readText(body, redaction),
  ),
  bodyBase64: optional(text)(
    "The body in base64, if it is not UTF-8, cut to 16 KiB.",
    ({ body, redaction }) => readBase64(body, redaction),
  ),
  callerIP: optional(text)("The IP address of the caller, if it is known.", ({ callerIp }) => callerIp),
  truncated: mark(
    "The body or the headers are cut.",
    ({ cut, size, body, redaction }) => cut || (size > body.length && redaction?.body !== true),
  ),
  notKept: optional(count)(
    "The number of calls that were rejected shortly before this one and not kept.",
    ({ others }) => others || null,
  ),
};
