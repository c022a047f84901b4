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
import type { Rejection, WebhookSource } from "../../engine/core/model/webhookSource.ts";

type Verification = { scheme: string; secrets: number };

const verificationFields: FieldsOf<Verification> = {
  scheme: text("The signature scheme of the sender, such as github.", ({ scheme }) => scheme),
  secrets: positive(
    "The number of secrets. The secrets themselves are never shown.",
    ({ secrets }) => secrets,
  ),
};

/** A source with its counts of calls, without what its settings hide. */
type ShownSource = {
  source: WebhookSource;
  settings: Settings;
  verification: Verification | null;
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
    "How calls are verified. null means that they are not verified.",
    ({ verification }) => verification,
  ),
  deduplicate: flag("Whether a repeated call is published only once.", ({ source }) => source.deduplicate),
  paused: flag(
    "Whether the source is paused. A paused source refuses all calls.",
    ({ source }) => source.paused,
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

/** The fields of a call that a source rejected. `redaction` is what the settings of the source hide. */
export const rejectionFields: FieldsOf<Rejection & { redaction: Redaction | null }> = {
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
