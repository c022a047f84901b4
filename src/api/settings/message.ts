import { Refusal } from "../../engine/core/values/errors.ts";
import type { Brand, Bytes, HeaderList } from "../../engine/core/values/basics.ts";
import type { CallbackSettings, FlowControl, SendSettings } from "../../engine/core/model/sendSettings.ts";
import type { MessageInput } from "../../engine/core/model/message.ts";
import type { Overrides } from "../../engine/core/deadLetters/overrides.ts";
import { defaultCallback } from "../../engine/core/deadLetters/overrides.ts";
import { noMessageSettings } from "../../engine/core/model/message.ts";
import { noSendSettings } from "../../engine/core/model/sendSettings.ts";
import { limits } from "../../engine/core/values/limits.ts";
import { canonicalName, headerValue, joinHeaders } from "../../engine/core/values/headers.ts";
import { makeDeduplicationKey } from "./deduplicationKey.ts";
import { readForwardedHeader } from "./forward.ts";
import type { RawSetting } from "./rawSetting.ts";
import type { MessageSettings } from "./grammar.ts";
import { readAllSettings } from "./grammar.ts";
import type { MessageSettingName, SettingValues } from "./table.ts";
import { isUrl } from "../http/target.ts";
import { settingRows } from "./table.ts";

type MessageOverrides = Pick<Overrides, "delay" | "notBefore" | "labels" | "redaction">;
type FieldOverrides = Omit<
  Overrides,
  keyof MessageOverrides | "flowControl" | "callback" | "failureCallback"
>;

/**
 * The parts of a publish request. `content`: the headers that describe the body. `senderHeaders` returns the
 * headers that are delivered with `header-forward`.
 */
export type PostedMessage = {
  brand: Brand;
  /** A URL, or the name of a URL group. `query` is appended to the URL of each endpoint of the group. */
  destination: string;
  query?: string | null;
  queue?: string | null;
  body: Bytes;
  content: HeaderList;
  senderHeaders(): HeaderList;
  callerIp: string | null;
  settings: MessageSettings;
};

/** Returns the message that a publish request describes. Throws `Refusal` if its headers are too large. */
export function toMessageInput({
  brand,
  destination,
  query = null,
  queue,
  body,
  content,
  senderHeaders,
  callerIp,
  settings,
}: PostedMessage): MessageInput {
  const { values } = settings;
  const alongside = values["header-forward"]
    ? joinHeaders(content, excludeContent(senderHeaders(), content))
    : content;
  const sending = toSendSettings(settings, joinHeaders(alongside, withOneType(content, settings.headers)));
  assertHeaderBytes(sending);
  const toUrl = isUrl(destination);
  const input: MessageInput = {
    ...sending,
    ...noMessageSettings,
    brand,
    url: toUrl ? destination : "",
    group: toUrl ? null : destination,
    queue: queue ?? null,
    body,
    deduplication: makeDeduplicationKey(settings.values, {
      destination: query === null ? destination : `${destination}?${query}`,
      body,
      headers: sending.headers,
    }),
    callerIp,
  };
  copyValues(input, messageFields, values);
  const deduplicationId = values["deduplication-id"];
  if (deduplicationId !== undefined) input.deduplicationId = deduplicationId;
  if (values["keep-response"]) input.keepResponse = true;
  if (values["hide-headers"]) input.hideHeaders = true;
  if (query !== null) input.query = query;
  return input;
}

type FieldName = keyof MessageInput;

/** The settings that are fields of a message, with their fields: those of all requests, and of messages. */
const sendFields = new Map<string, FieldName>();
const messageFields = new Map<string, FieldName>();
for (const name of Object.keys(settingRows) as MessageSettingName[]) {
  const { field } = settingRows[name];
  if (field !== undefined) (field in noSendSettings ? sendFields : messageFields).set(name, field);
}

/**
 * Copies the given values to the fields of a message. The type of `SettingRow` checks that a field can have
 * the values of its setting.
 */
function copyValues(
  to: Partial<Record<FieldName, unknown>>,
  fields: ReadonlyMap<string, FieldName>,
  values: Partial<SettingValues>,
): void {
  // Most messages have few settings, or none.
  for (const name in values) {
    const field = fields.get(name);
    if (field !== undefined) to[field] = values[name as MessageSettingName];
  }
}

/**
 * Returns the headers that describe a body, from headers that were given in JSON: names and values in turn.
 */
export function listContentHeaders(headers: readonly string[]): HeaderList {
  const found: (readonly [name: string, value: string])[] = [];
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const name = headers[at] ?? "";
    const header = isContentHeader(name)
      ? readForwardedHeader(name, name.toLowerCase(), (headers[at + 1] ?? "").trim())
      : null;
    if (header) found.push(header);
  }
  return found;
}

const isContentHeader = (name: string): boolean => {
  const canonical = canonicalName(name);
  return canonical === "Content-Type" || canonical === "Content-Encoding";
};

/**
 * Returns `forwarded` with at most one content type, and without one if `content` has it. The content type of
 * the request takes precedence over `forward-content-type`, which is for requests without one.
 */
function withOneType(content: HeaderList, forwarded: HeaderList): HeaderList {
  if (forwarded.length === 0) return forwarded;
  let hasType = headerValue(content, "Content-Type") !== undefined;
  return forwarded.filter(([name]) => {
    if (name !== "Content-Type") return true;
    const isFirst = !hasType;
    hasType = true;
    return isFirst;
  });
}

const excludeContent = (senderHeaders: HeaderList, content: HeaderList): HeaderList =>
  senderHeaders.filter(([name]) => !content.some(([other]) => other === name));

function toSendSettings(settings: MessageSettings, headers: HeaderList): SendSettings {
  const { values, callback, failureCallback } = settings;
  const sending: SendSettings = {
    ...noSendSettings,
    headers,
    flowControl: readFlowControl(settings),
    callback: readCallback(values.callback, callback),
    failureCallback: readCallback(values["failure-callback"], failureCallback),
  };
  copyValues(sending, sendFields, values);
  return sending;
}

/** Returns the flow-control key with its limits. Throws `Refusal` if only one of them is given. */
function readFlowControl({ values, writtenNames }: MessageSettings): FlowControl | null {
  const key = values["flow-control-key"];
  const limits = values["flow-control-value"];
  if (key === undefined && limits === undefined) return null;
  if (limits === undefined)
    throw new Refusal(
      "invalid",
      `${writtenNames["flow-control-key"]}: requires Flow-Control-Value, for example parallelism=10`,
    );
  if (key === undefined)
    throw new Refusal("invalid", `${writtenNames["flow-control-value"]}: requires Flow-Control-Key`);
  return { key, ...limits };
}

function readCallback(url: string | undefined, settings: MessageSettings | null): CallbackSettings | null {
  if (url === undefined) return null;
  return settings
    ? { url, ...toSendSettings(settings, settings.headers), ...readCallbackExtras(settings) }
    : defaultCallback(url);
}

/** Returns the failure callback among the headers of a post; null if it has none. Reads no other setting. */
export function readFailureCallback(posted: readonly RawSetting[]): CallbackSettings | null {
  const callbackSettings = posted.filter(({ name }) => name.startsWith("failure-callback"));
  if (!callbackSettings.some(({ name }) => name === "failure-callback")) return null;
  const { values, failureCallback } = readAllSettings(callbackSettings).settings;
  return readCallback(values["failure-callback"], failureCallback);
}

/** Returns the settings of a callback that a message input keeps outside its send settings. */
const readCallbackExtras = ({
  values: { delay, label },
}: MessageSettings): Pick<CallbackSettings, "delay" | "labels"> => ({
  ...(delay === undefined ? {} : { delay }),
  ...(label === undefined ? {} : { labels: label }),
});

/**
 * Throws `Refusal` if the forwarded headers of a message are too large. The HTTP server bounds the headers of
 * a request; headers in a body, as in a batch, are bounded only here.
 */
function assertHeaderBytes(sending: SendSettings): void {
  const bytes = sumHeaderBytes(sending);
  if (bytes > limits.headerBytes)
    throw new Refusal(
      "invalid",
      `headers: ${bytes} bytes of forwarded headers, the limit is ${limits.headerBytes}`,
    );
}

/**
 * Returns the bytes of all forwarded headers, callbacks included. Values are Latin-1, so a character is a
 * byte.
 */
function sumHeaderBytes({ headers, callback, failureCallback }: SendSettings): number {
  let bytes =
    (callback ? sumHeaderBytes(callback) : 0) + (failureCallback ? sumHeaderBytes(failureCallback) : 0);
  for (const [name, value] of headers) bytes += name.length + value.length;
  return bytes;
}

/**
 * Returns only the settings that a request gives, because a retry of a dead letter changes only these. Throws
 * `Refusal` for a setting that a retry cannot change.
 */
export function readOverrides(settings: MessageSettings): Overrides {
  const { values, writtenNames } = settings;
  for (const name of Object.keys(values) as MessageSettingName[]) {
    const { forRetries } = settingRows[name];
    if (forRetries !== true) throw new Refusal("invalid", `${writtenNames[name] ?? name}: ${forRetries}`);
  }
  return {
    ...readSendOverrides(settings),
    ...readMessageOverrides(values),
    ...(values["keep-response"] === undefined ? {} : { keepResponse: values["keep-response"] }),
    ...(values["hide-headers"] === undefined ? {} : { hideHeaders: values["hide-headers"] }),
  };
}

/** Returns the settings that are fields of messages only, as far as they are given. */
export function readMessageOverrides(values: Partial<SettingValues>): MessageOverrides {
  const found: MessageOverrides = {};
  copyValues(found, messageFields, values);
  return found;
}

/** Returns the settings that are fields of every request, as far as they are given. */
export function readFieldOverrides(values: Partial<SettingValues>): FieldOverrides {
  const found: FieldOverrides = {};
  copyValues(found, sendFields, values);
  return found;
}

/** Returns the flow-control key and limits, as far as they are given. Empty if none is. */
export function readFlowControlOverrides(values: Partial<SettingValues>): Pick<Overrides, "flowControl"> {
  const key = values["flow-control-key"];
  const flowControl = { ...(key === undefined ? {} : { key }), ...values["flow-control-value"] };
  return Object.keys(flowControl).length === 0 ? {} : { flowControl };
}

function readSendOverrides({ values, headers, callback, failureCallback }: MessageSettings): Overrides {
  return {
    ...readFieldOverrides(values),
    ...readFlowControlOverrides(values),
    ...(headers.length === 0 ? {} : { headers }),
    ...readCallbackOverrides("callback", values.callback, callback),
    ...readCallbackOverrides("failureCallback", values["failure-callback"], failureCallback),
  };
}

function readCallbackOverrides(
  name: "callback" | "failureCallback",
  url: string | undefined,
  settings: MessageSettings | null,
): Overrides {
  if (url === undefined && !settings) return {};
  return {
    [name]: {
      ...(url === undefined ? {} : { url }),
      ...(settings ? { ...readSendOverrides(settings), ...readCallbackExtras(settings) } : {}),
    },
  };
}
