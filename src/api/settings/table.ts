import { z } from "zod";
import { parseCron } from "../../core/values/cron.ts";
import { parseDuration } from "../../core/values/duration.ts";
import { Refusal } from "../../core/values/errors.ts";
import { parseExpression } from "../../core/values/expression.ts";
import { limits } from "../../core/values/limits.ts";
import type { FlowControl, Method, Millis, Redaction } from "../../core/model/message.ts";
import { parseRedaction } from "../../core/model/redaction.ts";
import { memoize } from "../../core/values/memoize.ts";
import { checkName, checkUrl } from "../http/target.ts";
import { day } from "../../core/values/time.ts";

/** What the settings of one message, or of one of its callbacks, are read into. Keys are the plain names of the settings. */
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
  cron: string;
  "schedule-id": string;
  "queue-name": string;
};

export type MessageSettingName = keyof SettingValues;

/** A setting: what it is for, how it is written, and what its text means. `read` throws `Refusal` with what is wrong. */
export type SettingRow<T> = {
  about: string;
  example: string;
  /** How the text looks, for the documentation. */
  text: z.ZodType;
  /** May be set for callbacks too, as `Svc-Callback-<Name>`; a text says why not. */
  forCallbacks: true | string;
  /** May be given when a dead letter is sent again; a text says why not. */
  forRetries: true | string;
  /** Of schedules only: what others are told that have it. */
  onlyForSchedules?: string;
  read(text: string): T;
};

const methods: readonly Method[] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const messagesOnly = "is a setting of messages, not of callbacks";
const publishOnly = "belongs to a publish; several that are retried together would be taken for one, and the others lost";
const scheduleOnly = "belongs to a schedule, and this is a retry";
const callbackDelayHint = "is a setting of messages, not of callbacks; Callback-Delay delays a callback";

/**
 * Every setting that a message can have. From a row come its header under both brands, its query parameter, the same
 * for callbacks and failure callbacks, and its entry in the documentation.
 */
export const settingRows: { readonly [N in MessageSettingName]: SettingRow<SettingValues[N]> } = {
  method: {
    about: "The HTTP method of the delivery. Default: POST.",
    example: "PUT",
    text: z.enum(methods),
    forCallbacks: true,
    forRetries: true,
    read: (text) => methods.find((method) => method === text.toUpperCase()) ?? refuseText(text, `is none of ${methods.join(", ")}`),
  },
  delay: {
    about: "How long to wait before the first attempt. For a callback, the time starts at the attempt that it reports.",
    example: "1h30m",
    text: z.string(),
    forCallbacks: true,
    forRetries: true,
    read: readDuration,
  },
  "not-before": {
    about: "No attempt before this unix time in seconds. Wins over the delay.",
    example: "1767225600",
    text: z.int().min(0),
    forCallbacks: callbackDelayHint,
    forRetries: true,
    read: readSeconds,
  },
  retries: {
    about: "How often a failed attempt is repeated. Default: 3.",
    example: "5",
    text: z.int().min(0),
    forCallbacks: true,
    forRetries: true,
    read: (text) => (/^\d{1,20}$/.test(text) ? Number(text) : refuseText(text, "is not a whole number of 0 or more")),
  },
  "retry-delay": {
    about:
      "Milliseconds until the next attempt, as an expression in `retried`, the number of retries made so far. Functions: pow, exp, sqrt, abs, floor, ceil, round, min, max.",
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
    about: "How long the destination may take to answer. A bare number is seconds.",
    example: "30s",
    text: z.string(),
    forCallbacks: true,
    forRetries: true,
    read: (text) => readDuration(text) || refuseText(text, "leaves no time at all; give 1s or more"),
  },
  "header-forward": {
    about: "Deliver the headers of this request too, without a prefix.",
    example: "true",
    text: z.boolean(),
    forCallbacks: messagesOnly,
    forRetries: "belongs to a publish; what a retry is to send along can be given with Forward-…",
    read: readBoolean,
  },
  "flow-control-key": {
    about: "Messages with the same key share limits, whatever their destinations. Needs Flow-Control-Value.",
    example: "shop-7",
    text: z.string().min(1).max(limits.nameLength),
    forCallbacks: true,
    forRetries: true,
    read: parseKey,
  },
  "flow-control-value": {
    about:
      "The limits of the key: `parallelism` deliveries at once, `rate` deliveries begun in each `period` (default 1s, at most 7d). Those of the message that came last hold for all of the key.",
    example: "parallelism=3, rate=5, period=1m",
    text: z.string(),
    forCallbacks: true,
    forRetries: true,
    read: (text) => parseFlowControlValue(text),
  },
  callback: {
    about: "URL that is told the outcome of each attempt.",
    example: "https://example.com/callback",
    text: z.url(),
    forCallbacks: true,
    forRetries: true,
    read: readUrl,
  },
  "failure-callback": {
    about: "URL that is told when the last attempt has failed.",
    example: "https://example.com/failed",
    text: z.url(),
    forCallbacks: true,
    forRetries: true,
    read: readUrl,
  },
  "deduplication-id": {
    about: "Messages with the same id within 10 minutes, or within the Deduplication-Window of the first, are accepted once.",
    example: "order-1001",
    text: z.string().min(1).max(limits.nameLength),
    forCallbacks: messagesOnly,
    forRetries: publishOnly,
    read: (text) => (text === "" ? refuseText(text, "is empty") : checkNameLength(text)),
  },
  "content-based-deduplication": {
    about:
      "Messages with the same destination, body and forwarded headers within 10 minutes, or within the Deduplication-Window of the first, are accepted once.",
    example: "true",
    text: z.boolean(),
    forCallbacks: messagesOnly,
    forRetries: publishOnly,
    read: readBoolean,
  },
  "deduplication-window": {
    about:
      "How long a repetition of this message is known, from 1s to 7d. Default: 10m. Requires Deduplication-Id or Content-Based-Deduplication.",
    example: "1h",
    text: z.string(),
    forCallbacks: messagesOnly,
    forRetries: publishOnly,
    read: readWindow,
  },
  label: {
    about: "Marks to find the message by, separated by commas.",
    example: "billing,eu",
    text: z.string(),
    forCallbacks: true,
    forRetries: true,
    read: readLabels,
  },
  "redact-fields": {
    about: "What is hidden from every answer of this interface: `body`, `header` (all), `header[Name]`, separated by commas.",
    example: "body, header[Authorization]",
    text: z.string(),
    forCallbacks: messagesOnly,
    forRetries: true,
    read: parseRedaction,
  },
  "keep-response": {
    about: "Keep the response of a delivery that succeeded in the log: its headers, and the first 16 KiB of its body.",
    example: "true",
    text: z.boolean(),
    forCallbacks: messagesOnly,
    forRetries: true,
    read: readBoolean,
  },
  cron: {
    about: "For a schedule: when it fires. Five fields, in UTC unless a time zone precedes them. A publish that has it makes a schedule.",
    example: "CRON_TZ=Europe/Berlin 0 9 * * 1-5",
    text: z.string().max(256),
    forCallbacks: messagesOnly,
    forRetries: scheduleOnly,
    onlyForSchedules: "belongs to a schedule; POST /v2/schedules/{destination} makes one, and so does POST /v2/publish/{destination}",
    read: parseCron,
  },
  "schedule-id": {
    about: "Only for a schedule: its id. One that exists is replaced. On a message it means nothing.",
    example: "daily-report",
    text: z.string().min(1).max(limits.nameLength),
    forCallbacks: messagesOnly,
    forRetries: scheduleOnly,
    read: (text) => checkName("", text),
  },
  "queue-name": {
    about: "Only for a schedule: the queue that its messages go through.",
    example: "reports",
    text: z.string().min(1).max(limits.nameLength),
    forCallbacks: messagesOnly,
    forRetries: "cannot be changed when a message is retried; it goes through its queue again",
    onlyForSchedules: "belongs to a schedule; POST /v2/enqueue/{queue}/{destination} sends a message through a queue",
    read: (text) => checkName("", text),
  },
};

/** Whether a text can be a flow control key: databases keep it as it is, so it can have nothing that one of them would change. */
export const isValidKey = (text: string): boolean => text !== "" && text.length <= limits.nameLength && !/\p{Cc}|\p{Surrogate}/u.test(text);

/** Reads a flow control key. Throws `Refusal`. */
export function parseKey(text: string): string {
  if (text === "") return refuseText(text, "is empty");
  return isValidKey(checkNameLength(text)) ? text : refuseText(text, "has control characters, or is no valid Unicode");
}

/**
 * Names that are taken and not looked at: what clients say of themselves, and what this service itself sends along, so
 * that one server can deliver to the publish address of another.
 */
export const ignoredSettings = /^(telemetry-.*|signature|message-id|retried|region|caller-ip|topic-name|workflow-invoke-count)$/;

/** Refuses the text of a setting, of which no more is shown than can be taken in. */
export function refuseText(text: string, problem: string): never {
  throw new Refusal("invalid", `${JSON.stringify(text.length > 100 ? `${text.slice(0, 100)}…` : text)} ${problem}`);
}

function readDuration(text: string): Millis {
  return parseDuration(text) ?? refuseText(text, "is not a duration; write it like 30s, 10m, 2h or 1d12h");
}

function readWindow(text: string): Millis {
  const window = readDuration(text);
  if (window > 0 && window <= limits.deduplicationWindow) return window;
  return refuseText(text, `is not between 1s and ${limits.deduplicationWindow / day}d`);
}

/** Unix seconds, rounded as clients do; up to the year 9999. */
function readSeconds(text: string): Millis {
  const seconds = /^\d{1,12}(\.\d{1,20})?$/.test(text) ? Math.round(Number(text)) : Number.NaN;
  return seconds <= 253_402_300_799 ? seconds * 1000 : refuseText(text, "is not a unix time in seconds");
}

/** `parallelism=3, rate=5, period=1m`: any of them, in any order. Those of a key come with each of its messages. */
const parseFlowControlValue = memoize((text): Readonly<Omit<FlowControl, "key">> => {
  const found = new Map<string, number>();
  for (const piece of text.split(",")) {
    const [, name = "", value = ""] = /^\s*(\w+)\s*=\s*(\w+)\s*$/.exec(piece) ?? refuseText(text, expectedLimits);
    if (found.has(name)) refuseText(text, `has ${name} twice`);
    if (name === "period") found.set(name, parseDuration(value) || refuseText(text, "has a period that is not a duration of 1s or more"));
    else if (name !== "parallelism" && name !== "rate") refuseText(text, expectedLimits);
    else found.set(name, parseCount(value) ?? refuseText(text, `has a ${name} that is not a whole number of 1 or more`));
  }
  return { parallelism: found.get("parallelism") ?? null, rate: found.get("rate") ?? null, period: found.get("period") ?? null };
});

const parseCount = (text: string): number | null => (/^[1-9]\d{0,11}$/.test(text) ? Number(text) : null);

const expectedLimits = "is not of the form parallelism=3, rate=5, period=1m; any of them may be left out";

/** Reads `true` or `false` in any case, because Python writes `True`. Throws `Refusal`. */
export function readBoolean(text: string): boolean {
  const lower = text.toLowerCase();
  return lower === "true" || (lower === "false" ? false : refuseText(text, "is neither true nor false"));
}

/** Reads a URL that can be called. Throws `Refusal`. */
export function readUrl(text: string): string {
  checkUrl("", text);
  return text;
}

function readLabels(text: string): string[] {
  const labels = text
    .split(",")
    .map((label) => label.trim())
    .filter((label) => label !== "");
  if (labels.length > limits.labels) throw new Refusal("invalid", `has ${labels.length} labels, the limit is ${limits.labels}`);
  return [...new Set(labels.map(checkNameLength))];
}

function checkNameLength(text: string): string {
  return text.length <= limits.nameLength ? text : refuseText(text, `is longer than ${limits.nameLength} characters`);
}
