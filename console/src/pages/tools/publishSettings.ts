import { readPairs } from "../../parts/words.ts";

/**
 * A setting of a message: its name in the API, its name for people, and what it does. `as`: a checkbox, a
 * time, or headers, one per line; without it, a string.
 */
export type Setting = {
  name: string;
  title: string;
  hint: string;
  example?: string;
  as?: "check" | "time" | "lines" | "method";
  isWide?: boolean;
};

type Group = { title: string; about: string; settings: readonly Setting[] };

const method: Setting = { name: "method", title: "Method", hint: "Default: POST.", as: "method" };
const delay: Setting = {
  name: "delay",
  title: "Delay",
  hint: "Time before the first attempt.",
  example: "30s, 10m, 1d12h",
};
const retries: Setting = {
  name: "retries",
  title: "Retries",
  hint: "How often a failed attempt is repeated. Default: 3.",
  example: "3",
};
const timeout: Setting = {
  name: "timeout",
  title: "Timeout",
  hint: "Time in which the destination must respond.",
  example: "30s",
};
const retryDelay: Setting = {
  name: "retry-delay",
  title: "Retry delay, in ms",
  hint: "An expression with the variable retried. Default: 12 s, then 2.5 min, 30 min, 6 h, 24 h.",
  example: "1000 * pow(2, retried)",
  isWide: true,
};
const flowControlKey: Setting = {
  name: "flow-control-key",
  title: "Flow control key",
  hint: "Messages with this key share its limits.",
};
const flowControlValue: Setting = {
  name: "flow-control-value",
  title: "Limits of the flow-control key",
  hint: "They apply to all messages of the key.",
  example: "parallelism=2, rate=10, period=1m",
};
const label: Setting = {
  name: "label",
  title: "Labels",
  hint: "To find the message, separated by commas.",
  example: "billing, eu",
};
const headers: Setting = {
  name: "forward",
  title: "Headers",
  hint: "Headers of the delivery, one per line.",
  example: "Authorization: Bearer …",
  as: "lines",
  isWide: true,
};

/** The settings of each message, in the order of the form. */
export const messageGroups: readonly Group[] = [
  {
    title: "When",
    about: "by default, immediately",
    settings: [
      delay,
      {
        name: "not-before",
        title: "Not before",
        hint: "In your time zone. Takes precedence over the delay.",
        as: "time",
      },
    ],
  },
  {
    title: "If it fails",
    about: "after the last retry, it becomes a dead letter",
    settings: [
      retries,
      timeout,
      retryDelay,
      {
        name: "ack-timeout",
        title: "Acknowledge later",
        hint: "How long the receiver may take to report the outcome after its response.",
        example: "2h",
      },
    ],
  },
  {
    title: "Queue and flow control",
    about: "parallelism and rate",
    settings: [flowControlKey, flowControlValue],
  },
  {
    title: "Only once",
    about: "a duplicate is not stored",
    settings: [
      { name: "deduplication-id", title: "Deduplication id", hint: "Later messages with it are duplicates." },
      {
        name: "deduplication-window",
        title: "Deduplication window",
        hint: "How long it is remembered. Default: 10m.",
        example: "1h",
      },
      {
        name: "content-based-deduplication",
        title: "Deduplicate by content",
        hint: "A message with the same destination, body and headers is a duplicate.",
        as: "check",
        isWide: true,
      },
    ],
  },
  {
    title: "Labels and redaction",
    about: "in lists, logs and responses",
    settings: [
      label,
      {
        name: "redact-fields",
        title: "Redact",
        hint: "Parts that no response of the API shows.",
        example: "body, header[Authorization]",
      },
      {
        name: "keep-response",
        title: "Keep the response",
        hint: "Keep the response body of a successful delivery in the log.",
        as: "check",
        isWide: true,
      },
      {
        name: "hide-headers",
        title: "Hide the headers of this server",
        hint: "Only the headers of the message arrive: no signature and no id.",
        as: "check",
        isWide: true,
      },
    ],
  },
];

/** The settings beside the body. */
export const headerSettings: readonly Setting[] = [
  headers,
  {
    name: "header-forward",
    title: "Forward all headers of the request",
    hint: "Includes the headers that have no prefix.",
    as: "check",
    isWide: true,
  },
];

export const scheduleSettings: readonly Setting[] = [
  {
    name: "cron",
    title: "Cron expression",
    hint: "Minute, hour, day of month, month, day of week. In UTC without CRON_TZ.",
    example: "CRON_TZ=Europe/Berlin 30 6 * * 1-5",
    isWide: true,
  },
  {
    name: "schedule-id",
    title: "Schedule id",
    hint: "Replaces the schedule with this id. Default: a new id.",
    example: "daily-report",
  },
];

/** The settings that a schedule gets only when it is created. */
export const atCreation: ReadonlySet<string> = new Set([
  "schedule-id",
  "not-before",
  "header-forward",
  "deduplication-id",
  "deduplication-window",
  "content-based-deduplication",
]);

export const runSettings: readonly Setting[] = [
  {
    name: "workflow-runid",
    title: "Run id",
    hint: "An active run with this id is not started again. Default: a new id.",
    example: "order-1001",
  },
];

/** The two callbacks: the setting with the URL, and the prefix of the names of its settings. */
export const callbacks = [
  { name: "callback", title: "Callback", hint: "The URL that receives the result of every attempt." },
  {
    name: "failure-callback",
    title: "Failure callback",
    hint: "The URL that receives a report when the last attempt has failed.",
  },
] as const;

/** The settings that a callback has, apart from its URL. */
export const callbackSettings: readonly Setting[] = [
  method,
  delay,
  retries,
  timeout,
  retryDelay,
  flowControlKey,
  flowControlValue,
  label,
  { name: "callback", title: "Its callback", hint: "The URL that receives the result of the callback." },
  { name: "failure-callback", title: "Its failure callback", hint: "The URL if the callback itself fails." },
  headers,
];

export type Kind = "message" | "run" | "schedule";

/** The form as it is filled in. `values` has the texts of the settings by their names. */
export type Draft = {
  kind: Kind;
  destination: string;
  method: string;
  body: string;
  type: string;
  queue: string;
  values: Readonly<Record<string, string>>;
};

export const emptyDraft: Draft = {
  kind: "message",
  destination: "",
  method: "POST",
  body: "",
  type: "application/json",
  queue: "",
  values: {},
};

/** Returns a setting of a callback: its name begins with that of the callback. */
export const ofCallback = (callback: string, setting: Setting): Setting => ({
  ...setting,
  name: `${callback}-${setting.name}`,
});

/** Returns all settings that a kind of message has. */
export function listSettings(kind: Kind): Setting[] {
  const own = { message: [], run: runSettings, schedule: scheduleSettings }[kind];
  const ofCallbacks = callbacks.flatMap(({ name }) =>
    callbackSettings.map((setting) => ofCallback(name, setting)),
  );
  return [
    ...own,
    ...headerSettings,
    ...messageGroups.flatMap(({ settings }) => settings),
    ...callbacks,
    ...ofCallbacks,
  ];
}

/** Returns a header name, such as Svc-Flow-Control-Key. */
export const toHeader = (name: string): string =>
  `Svc-${name.replaceAll(/(^|-)[a-z]/g, (start) => start.toUpperCase())}`;

/** Returns the headers of a publish. An empty field is not sent. */
export function toHeaders({ kind, method: verb, type, queue, values }: Draft): Record<string, string> {
  const sent: Record<string, string> = {};
  if (type !== "") sent["Content-Type"] = type;
  if (verb !== "POST") sent["Svc-Method"] = verb;
  for (const { name, as } of listSettings(kind)) {
    const value = (values[name] ?? "").trim();
    if (value === "") continue;
    if (as === "lines")
      for (const [header, all] of Object.entries(readPairs(value)))
        sent[`${toHeader(name)}-${header}`] = all.join(", ");
    else sent[toHeader(name)] = as === "time" ? String(Math.ceil(Date.parse(value) / 1_000)) : value;
  }
  if (kind === "schedule" && queue !== "") sent["Svc-Queue-Name"] = queue;
  return sent;
}

/** Returns an item of a batch. */
export function toItem(draft: Draft): Record<string, unknown> {
  const { kind, destination, queue, body } = draft;
  return {
    destination,
    headers: toHeaders(draft),
    ...(body !== "" && { body }),
    ...(kind === "message" && queue !== "" && { queue }),
  };
}

/** Returns the path of the request that publishes one draft. */
export function toPublishPath({ kind, destination, queue }: Draft): string {
  const to = destination || "https://example.com/";
  if (kind === "run") return `/v2/trigger/${to}`;
  if (kind === "schedule") return `/v2/schedules/${to}`;
  return queue === "" ? `/v2/publish/${to}` : `/v2/enqueue/${encodeURIComponent(queue)}/${to}`;
}
