import type { CallbackSettings, FlowControl, SendSettings } from "../../engine/core/model/sendSettings.ts";
import type { HeaderList } from "../../engine/core/values/basics.ts";
import type { Schedule } from "../../engine/core/model/schedule.ts";
import type { Redaction } from "../../engine/core/model/sendSettings.ts";
import { formatDuration } from "../../engine/core/values/duration.ts";
import { formatHeaderName } from "../http/brand.ts";
import type { MessageSettingName } from "./table.ts";

type Texts = Partial<Record<MessageSettingName, string | null>>;

/**
 * Returns the settings of a schedule as headers that would set them. A setting that has its default is left
 * out. Nothing is redacted.
 */
export function writeScheduleSettings({ cron, messageInput: input }: Omit<Schedule, "body">): HeaderList {
  const { queue, delay, labels, redaction, keepResponse, hideHeaders, ackTimeout } = input;
  return [
    ...writeTexts("", {
      cron,
      "queue-name": queue,
      delay: delay === null ? null : formatDuration(delay),
      label: labels.length === 0 ? null : labels.join(", "),
      "redact-fields": redaction && writeRedaction(redaction),
      "keep-response": keepResponse ? "true" : null,
      "hide-headers": hideHeaders ? "true" : null,
      "ack-timeout": ackTimeout === undefined ? null : formatDuration(ackTimeout),
    }),
    ...writeSendSettings("", input),
  ];
}

/** `prefix` is that of the settings of a callback, or empty. */
function writeSendSettings(prefix: string, settings: SendSettings): HeaderList {
  const { method, retries, retryDelay, timeout, flowControl, callback, failureCallback } = settings;
  return [
    ...writeTexts(prefix, {
      method: method === "POST" ? null : method,
      retries: retries === null ? null : String(retries),
      "retry-delay": retryDelay,
      timeout: timeout === null ? null : formatDuration(timeout),
      "flow-control-key": flowControl && flowControl.key,
      "flow-control-value": flowControl && writeLimits(flowControl),
    }),
    ...settings.headers.map(([name, value]) => [`Svc-${prefix}Forward-${name}`, value] as const),
    ...(callback ? writeCallback(prefix, "callback", callback) : []),
    ...(failureCallback ? writeCallback(prefix, "failure-callback", failureCallback) : []),
  ];
}

function writeCallback(
  prefix: string,
  name: "callback" | "failure-callback",
  settings: CallbackSettings,
): HeaderList {
  const { url, delay, labels = [] } = settings;
  const own = `${prefix}${formatHeaderName(name)}-`;
  return [
    ...writeTexts(prefix, { [name]: url }),
    ...writeTexts(own, {
      delay: delay === undefined ? null : formatDuration(delay),
      label: labels.length === 0 ? null : labels.join(", "),
    }),
    ...writeSendSettings(own, settings),
  ];
}

const writeTexts = (prefix: string, texts: Texts): HeaderList =>
  Object.entries(texts).flatMap(([name, text]) =>
    text === null ? [] : [[`Svc-${prefix}${formatHeaderName(name)}`, text] as const],
  );

/** Returns a key's limits as their setting has them. A key without limits has the default period. */
function writeLimits({ parallelism, rate, period }: FlowControl): string {
  const limits = [
    ...(parallelism === null ? [] : [`parallelism=${parallelism}`]),
    ...(rate === null ? [] : [`rate=${rate}`]),
    ...(period === null ? [] : [`period=${formatDuration(period)}`]),
  ];
  return limits.length === 0 ? "period=1s" : limits.join(", ");
}

const writeRedaction = ({ body, headers }: Redaction): string =>
  [
    ...(body ? ["body"] : []),
    ...(headers === true ? ["header"] : (headers || []).map((name) => `header[${name}]`)),
  ].join(", ");
