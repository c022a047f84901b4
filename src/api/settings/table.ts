import { z } from "zod";
import { parseCron } from "../../engine/core/values/cron.ts";
import { parseExpression } from "../../engine/core/values/expression.ts";
import { defaults, limits } from "../../engine/core/values/limits.ts";
import type { FlowControl, Method, Redaction } from "../../engine/core/model/sendSettings.ts";
import type { MessageInput } from "../../engine/core/model/message.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { parseRedaction } from "../../engine/core/model/redaction.ts";
import { parseName } from "../http/target.ts";
import { day, hour, minute } from "../../engine/core/values/time.ts";
import {
  checkNameLength,
  parseFlowControlValue,
  parseKey,
  readAckTimeout,
  readBoolean,
  readDuration,
  readLabels,
  readSeconds,
  readUrl,
  readWindow,
  refuseText,
} from "./settingTexts.ts";

/**
 * The values of the settings of a message or a callback. Keys are the names of the settings, without a
 * prefix.
 */
export type SettingValues = {
  method: Method;
  delay: Millis;
  "not-before": Millis;
  retries: number;
  "retry-delay": string;
  timeout: Millis;
  "header-forward": boolean;
  "flow-control-key": string;
  "flow-control-value": Readonly<Omit<FlowControl, "key">>;
  callback: string;
  "failure-callback": string;
  "deduplication-id": string;
  "content-based-deduplication": boolean;
  "deduplication-window": Millis;
  label: string[];
  "redact-fields": Redaction;
  "keep-response": boolean;
  "hide-headers": boolean;
  "ack-timeout": Millis;
  cron: string;
  "schedule-id": string;
  "queue-name": string;
};

/** The name of a setting, without a prefix. */
export type MessageSettingName = keyof SettingValues;

/** The fields of a message whose type is that of a setting. */
type FieldOf<T> = {
  [F in keyof MessageInput]-?: T extends MessageInput[F] ? F : never;
}[keyof MessageInput];

/** The description of a setting. `read` returns the value that a string means, or throws `Refusal`. */
export type SettingRow<T> = {
  about: string;
  example: string;
  /** The form of the text, for the documentation. */
  text: z.ZodType;
  /** True if callbacks can have it, as `Svc-Callback-<Name>`. Otherwise the text of the refusal. */
  forCallbacks: true | string;
  /** True if a retry of a dead letter can change it. Otherwise the text of the refusal. */
  forRetries: true | string;
  /** The field of the message that has the value. Absent if more than one setting makes the field. */
  field?: FieldOf<T>;
  /** The text of the refusal for messages, if only schedules can have it. */
  onlyForSchedules?: string;
  read(text: string): T;
};

const methods: readonly Method[] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const messagesOnly = "not valid for callbacks; set it on the message";
const publishOnly = "cannot be set on a retry; messages retried together would count as duplicates";
const scheduleOnly = "only valid for schedules; remove it";
const callbackDelayHint = "not valid for callbacks; use Callback-Delay to delay a callback";

/**
 * Every setting that a message can have. Each row makes a header under both brands, a query parameter, the
 * same two for callbacks and failure callbacks, and an entry in the documentation.
 */
export const settingRows: { readonly [N in MessageSettingName]: SettingRow<SettingValues[N]> } = {
  method: {
    field: "method",
    about: "HTTP method of the delivery: GET, POST, PUT, PATCH or DELETE, in any case. Default: POST.",
    example: "PUT",
    text: z.enum(methods),
    forCallbacks: true,
    forRetries: true,
    read: (text) =>
      methods.find((method) => method === text.toUpperCase()) ??
      refuseText(text, `must be one of ${methods.join(", ")}`),
  },
  delay: {
    field: "delay",
    about:
      "Time to wait before the first attempt, such as 30s, 1d12h, 1.5h or 50ms. " +
      "A bare number is in seconds. " +
      `At most ${limits.delay / day} days, or the limit of the account. Default: 0. ` +
      "For a callback, the time starts at the attempt that it reports.",
    example: "1h30m",
    text: z.string(),
    forCallbacks: true,
    forRetries: true,
    read: readDuration,
  },
  "not-before": {
    field: "notBefore",
    about:
      "Unix time in seconds before which no attempt is made. Takes precedence over Delay. " +
      `At most ${limits.delay / day} days ahead, or the limit of the account.`,
    example: "1767225600",
    text: z.int().min(0),
    forCallbacks: callbackDelayHint,
    forRetries: true,
    read: readSeconds,
  },
  retries: {
    field: "retries",
    about:
      "Number of times that a failed attempt is repeated: 0 or more, " +
      `at most ${limits.retries}, or the limit of the account. Default: ${defaults.retries}.`,
    example: "5",
    text: z.int().min(0),
    forCallbacks: true,
    forRetries: true,
    read: (text) =>
      /^\d{1,20}$/.test(text) ? Number(text) : refuseText(text, "is not a whole number of 0 or more"),
  },
  "retry-delay": {
    field: "retryDelay",
    about:
      "Milliseconds until the next attempt, as an expression of at most 256 characters. " +
      "The variable `retried` is the number of retries made so far. " +
      "Functions: pow, exp, sqrt, abs, floor, ceil, round, min, max. " +
      "Default: exp(2.5 * (retried + 1)) * 1000, at most one day: about 12 s, 2.5 min, 30 min, 6 h, then " +
      "24 h. A delay that the destination asks for, such as Retry-After, takes precedence.",
    example: "pow(2, retried) * 1000",
    text: z.string().max(256),
    forCallbacks: true,
    forRetries: true,
    read: (text) => {
      parseExpression(text);
      return text;
    },
  },
  timeout: {
    field: "timeout",
    about:
      "Time in which the destination must respond, such as 30s or 5m; a bare number is in seconds. " +
      `At least 1ms, at most ${limits.timeout / hour} hours, or the limit of the account. ` +
      `Default: ${defaults.timeout / minute} minutes, or the limit of the account if that is less.`,
    example: "30s",
    text: z.string(),
    forCallbacks: true,
    forRetries: true,
    read: (text) => readDuration(text) || refuseText(text, "is too short; use 1ms or more"),
  },
  "header-forward": {
    about: "`true`: also deliver the headers of this request that have no prefix. Default: `false`.",
    example: "true",
    text: z.boolean(),
    forCallbacks: messagesOnly,
    forRetries: "cannot be set on a retry; use Forward-… to deliver a header",
    read: readBoolean,
  },
  "flow-control-key": {
    about:
      "Name under which messages share a limit, regardless of their destinations: " +
      `1 to ${limits.nameLength} characters. Requires Flow-Control-Value.`,
    example: "shop-7",
    text: z.string().min(1).max(limits.nameLength),
    forCallbacks: true,
    forRetries: true,
    read: parseKey,
  },
  "flow-control-value": {
    about:
      "Limits of the flow-control key. `parallelism`: deliveries in flight at once, " +
      `from 1 to ${limits.parallelism}. ` +
      `\`rate\`: deliveries started in each \`period\`, from 1 to ${limits.rate}. ` +
      "`period`: from 1ms to 7d; default 1s. Each is optional. " +
      "The limits of the latest message apply to the whole key. Requires Flow-Control-Key.",
    example: "parallelism=3, rate=5, period=1m",
    text: z.string(),
    forCallbacks: true,
    forRetries: true,
    read: (text) => parseFlowControlValue(text),
  },
  callback: {
    about: "URL that receives the result of every attempt.",
    example: "https://example.com/callback",
    text: z.url(),
    forCallbacks: true,
    forRetries: true,
    read: readUrl,
  },
  "failure-callback": {
    about: "URL that receives a report when the last attempt has failed.",
    example: "https://example.com/failed",
    text: z.url(),
    forCallbacks: true,
    forRetries: true,
    read: readUrl,
  },
  "deduplication-id": {
    about:
      "Deduplication id. Later messages with the same id are duplicates, which are not stored: " +
      `1 to ${limits.nameLength} characters. ` +
      "It is remembered for 10 minutes, or for the Deduplication-Window of the first message.",
    example: "order-1001",
    text: z.string().min(1).max(limits.nameLength),
    forCallbacks: messagesOnly,
    forRetries: publishOnly,
    read: (text) => (text === "" ? refuseText(text, "is empty") : checkNameLength(text)),
  },
  "content-based-deduplication": {
    about:
      "`true`: later messages with the same destination, body and forwarded headers are duplicates, " +
      "which are not stored. " +
      "The content is remembered for 10 minutes, or for the Deduplication-Window of the first message. " +
      "Deduplication-Id takes precedence. Default: `false`.",
    example: "true",
    text: z.boolean(),
    forCallbacks: messagesOnly,
    forRetries: publishOnly,
    read: readBoolean,
  },
  "deduplication-window": {
    field: "deduplicationWindow",
    about:
      "Time during which a duplicate of this message is recognized, from 1ms to 90d. Default: 10m. " +
      "Requires Deduplication-Id or Content-Based-Deduplication.",
    example: "1h",
    text: z.string(),
    forCallbacks: messagesOnly,
    forRetries: publishOnly,
    read: readWindow,
  },
  label: {
    field: "labels",
    about:
      "Labels by which the message can be found, separated by commas: " +
      `at most ${limits.labels}, each of at most ${limits.nameLength} characters.`,
    example: "billing,eu",
    text: z.string(),
    forCallbacks: true,
    forRetries: true,
    read: readLabels,
  },
  "redact-fields": {
    field: "redaction",
    about:
      "Parts of the message that no response of this API shows, separated by commas: " +
      "`body`, `header` (all headers), `header[Name]` (one header).",
    example: "body, header[Authorization]",
    text: z.string(),
    forCallbacks: messagesOnly,
    forRetries: true,
    read: parseRedaction,
  },
  "keep-response": {
    about:
      "`true`: the log keeps the response of a successful delivery, " +
      "which is its headers and the first 16 KiB of its body. Default: `false`.",
    example: "true",
    text: z.boolean(),
    forCallbacks: messagesOnly,
    forRetries: true,
    read: readBoolean,
  },
  "hide-headers": {
    about:
      "`true`: the destination receives only the forwarded headers, Content-Type and a plain " +
      "User-Agent. It then cannot verify a signature, and cannot recognize a message that arrives " +
      "twice by its id. Not for messages of workflow runs. Callbacks of the message keep their " +
      "headers. Default: `false`.",
    example: "true",
    text: z.boolean(),
    forCallbacks: messagesOnly,
    forRetries: true,
    read: readBoolean,
  },
  "ack-timeout": {
    field: "ackTimeout",
    about:
      "Lets the receiver report the outcome of an attempt later. Each delivery then has the header " +
      "Svc-Attempt. After a response with status 202 and `Svc-Ack: later`, the receiver has this time for " +
      `its report (POST /v2/attempts): from 1s to ${limits.ackTimeout / hour}h, for example 2h. The ` +
      "message keeps its slots meanwhile. Without a report in time, the attempt has failed. Not for " +
      "messages of workflow runs, except calls to third parties, and not with Hide-Headers. " +
      "Default: the ackTimeout of the queue.",
    example: "2h",
    text: z.string(),
    forCallbacks: messagesOnly,
    forRetries: true,
    read: readAckTimeout,
  },
  cron: {
    about:
      "For a schedule, the times at which it fires: a cron expression of five fields (minute, hour, day of " +
      "month, month, day of week), at most 256 characters. Times are in UTC unless CRON_TZ=<time zone> " +
      "precedes the fields. A publish request with this setting creates a schedule.",
    example: "CRON_TZ=Europe/Berlin 0 9 * * 1-5",
    text: z.string().max(256),
    forCallbacks: messagesOnly,
    forRetries: scheduleOnly,
    onlyForSchedules:
      "only valid for schedules; use POST /v2/schedules/{destination} or POST /v2/publish/{destination}",
    read: parseCron,
  },
  "schedule-id": {
    about:
      "For a schedule, its id: letters, digits, `.`, `_` and `-`, " +
      `at most ${limits.nameLength} characters. Replaces an existing schedule with this id. Ignored for ` +
      "messages.",
    example: "daily-report",
    text: z.string().min(1).max(limits.nameLength),
    forCallbacks: messagesOnly,
    forRetries: scheduleOnly,
    read: (text) => parseName("", text),
  },
  "queue-name": {
    about: "For a schedule, the queue through which its messages are sent. Only valid for schedules.",
    example: "reports",
    text: z.string().min(1).max(limits.nameLength),
    forCallbacks: messagesOnly,
    forRetries: "cannot be changed on a retry; the message goes through its queue again",
    onlyForSchedules:
      "only valid for schedules; use POST /v2/enqueue/{queue}/{destination} to send a message through a " +
      "queue",
    read: (text) => parseName("", text),
  },
};

/**
 * Names of settings that are accepted and ignored. Some of them describe the client that sends them. The
 * others are headers that this service sends with its deliveries, so that one server can deliver to the
 * publish path of another.
 */
export const ignoredSettings =
  /^(telemetry-.*|signature|message-id|attempt|retried|region|caller-ip|topic-name|workflow-invoke-count)$/;
