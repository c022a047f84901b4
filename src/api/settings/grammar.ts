import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import { parseBrandedHeader, parseBrandedName, formatHeaderName } from "../http/brand.ts";
import { readForwardedHeader } from "./forward.ts";
import type { RawSetting, SettingTarget } from "./rawSetting.ts";
import { isCallback, parseTarget, shortenSetting } from "./rawSetting.ts";
import { mergeLayers } from "./layers.ts";
import { findNearest } from "../../engine/core/values/nearest.ts";
import type { MessageSettingName, SettingValues } from "./table.ts";
import { settingRows } from "./table.ts";
import type { Parameter } from "../http/target.ts";
import type { WorkflowSettingName, WorkflowValues } from "./workflow.ts";
import { isWorkflowSetting, workflowSettingRows } from "./workflow.ts";

/** The settings of a message or a callback, with their values read. `headers` come from `forward-<name>`. */
export type MessageSettings = {
  values: Partial<SettingValues>;
  /** The name of each setting as the caller wrote it, for later refusals. */
  writtenNames: { [N in MessageSettingName]?: string };
  headers: (readonly [name: string, value: string])[];
  callback: MessageSettings | null;
  failureCallback: MessageSettings | null;
  /** The settings of a workflow run. Null if the caller gave none. */
  workflow: WorkflowSettings | null;
  /** The name of the first setting of this message or callback, as the caller wrote it. */
  firstWritten: string;
};

/** The settings of a workflow run, and the name of each as the caller wrote it. */
export type WorkflowSettings = {
  values: Partial<WorkflowValues>;
  writtenNames: { [N in WorkflowSettingName]?: string };
};

/** Settings that were read. `ignored` names the unknown settings of the other brand, in lower case. */
export type ReadSettings = { settings: MessageSettings; ignored: string[] };

/** Returns the settings among headers. `rawHeaders` has names and values in turn. */
export function listHeaderSettings(rawHeaders: readonly string[]): RawSetting[] {
  const settings: RawSetting[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const writtenName = rawHeaders[at] ?? "";
    const branded = parseBrandedHeader(writtenName);
    if (branded)
      settings.push({
        brand: branded.brand,
        name: branded.name,
        value: (rawHeaders[at + 1] ?? "").trim(),
        writtenName,
      });
  }
  return settings;
}

/** Returns the settings among the parameters of a query string. */
export const listQuerySettings = (parameters: readonly Parameter[]): RawSetting[] =>
  parameters.flatMap(({ name, value, writtenName, hasPlus }) => {
    const branded = parseBrandedName(name);
    return branded ? [{ ...branded, value: value.trim(), writtenName, hasPlus }] : [];
  });

/**
 * Reads settings. An earlier layer takes precedence over a later one, name by name; for example a header over
 * a query parameter. Throws `Refusal` for a setting that is unknown, malformed, of a workflow run, or given
 * twice in one layer with different values. Unknown settings of the other brand are skipped and named in
 * `ignored`.
 */
export function readSettings(...layers: readonly (readonly RawSetting[])[]): ReadSettings {
  const read = readAllSettings(...layers);
  assertNoWorkflowSettings(read.settings);
  return read;
}

/** Reads settings like `readSettings`, but accepts the settings of a workflow run as well. */
export function readAllSettings(...layers: readonly (readonly RawSetting[])[]): ReadSettings {
  const read = readLayers(layers);
  // Clients send failure callback settings with the third-party calls of a run, although those have no
  // failure callback.
  if (read.settings.workflow?.values["workflow-runid"] === undefined) assertCallbacks(read.settings);
  return read;
}

/**
 * Reads settings that change the settings of an existing message. A callback setting may come without the URL
 * of the callback, because the message may already have that URL.
 */
export function readChanges(...layers: readonly (readonly RawSetting[])[]): ReadSettings {
  const read = readLayers(layers);
  assertNoWorkflowSettings(read.settings);
  return read;
}

function readLayers(layers: readonly (readonly RawSetting[])[]): ReadSettings {
  const settings = noSettings("");
  const ignored: string[] = [];
  for (const setting of mergeLayers(layers))
    if (!storeSetting(settings, setting)) ignored.push(setting.writtenName.toLowerCase());
  return { settings, ignored };
}

/** Throws `Refusal` for a setting that is valid only for schedules. */
export function assertNoScheduleSettings({ values, writtenNames }: MessageSettings): void {
  for (const name of scheduleOnlyNames) {
    const why = values[name] === undefined ? undefined : settingRows[name].onlyForSchedules;
    if (why !== undefined)
      throw new Refusal("invalid", `${(writtenNames[name] ?? name).slice(0, 200)}: ${why}`);
  }
}

/** Throws `Refusal` for a setting of a workflow run, also among the settings of callbacks. */
export function assertNoWorkflowSettings({ workflow, callback, failureCallback }: MessageSettings): void {
  const [writtenName] = Object.values(workflow?.writtenNames ?? {});
  if (writtenName !== undefined)
    throw new Refusal(
      "invalid",
      `${writtenName.slice(0, 200)}: only valid for messages of a workflow run; remove it`,
    );
  if (callback) assertNoWorkflowSettings(callback);
  if (failureCallback) assertNoWorkflowSettings(failureCallback);
}

/**
 * Throws `Refusal` if `posted` has a deduplication window but neither a deduplication id nor content-based
 * deduplication.
 */
export function assertNoLoneWindow(
  { values, writtenNames }: MessageSettings,
  posted: readonly RawSetting[],
): void {
  if (
    values["deduplication-window"] === undefined ||
    values["deduplication-id"] !== undefined ||
    values["content-based-deduplication"]
  )
    return;
  if (!posted.some(({ name }) => name === "deduplication-window")) return;
  const field = (writtenNames["deduplication-window"] ?? "deduplication-window").slice(0, 200);
  throw new Refusal(
    "invalid",
    `${field}: requires Deduplication-Id or Content-Based-Deduplication; give one of them, or remove it`,
  );
}

const scheduleOnlyNames = (Object.keys(settingRows) as MessageSettingName[]).filter(
  (name) => settingRows[name].onlyForSchedules !== undefined,
);

const noSettings = (firstWritten: string): MessageSettings => ({
  values: {},
  writtenNames: {},
  headers: [],
  callback: null,
  failureCallback: null,
  workflow: null,
  firstWritten,
});

/**
 * Stores a setting in the message or the callback that it is for. Returns false for an unknown setting of the
 * other brand. Throws `Refusal` for a setting that is unknown or not valid there.
 */
function storeSetting(root: MessageSettings, setting: RawSetting): boolean {
  const target = parseTarget(setting.name);
  if (target.isIgnored) return true;
  const settings = findOrCreateSettings(root, target, setting);
  const { name, isForward } = target;
  const depth = target.callbacks.length;
  if (isForward) {
    const header = readForwardedHeader(setting.writtenName, name.slice("forward-".length), setting.value);
    if (header) settings.headers.push(header);
    return true;
  }
  if (isWorkflowSetting(name)) {
    if (depth > 0 && !workflowSettingRows[name].forCallbacks)
      throw new Refusal(
        "invalid",
        `${shortenSetting(setting)}: not valid for callbacks; set it on the message`,
      );
    setWorkflowValue((settings.workflow ??= { values: {}, writtenNames: {} }), name, setting);
    return true;
  }
  if (!isSetting(name)) return refuseOrIgnore(setting, name);
  const { forCallbacks } = settingRows[name];
  if (depth > 0 && forCallbacks !== true)
    throw new Refusal("invalid", `${shortenSetting(setting)}: ${forCallbacks}`);
  setValue(settings, name, setting);
  return true;
}

/**
 * Returns the settings of the message or the callback that a setting is for. Creates the settings of
 * callbacks on the path to it if they are missing. Throws `Refusal` if callbacks are nested too deep.
 */
function findOrCreateSettings(
  root: MessageSettings,
  target: SettingTarget,
  setting: RawSetting,
): MessageSettings {
  const { callbacks } = target;
  const levels = callbacks.length + (isCallback(target) ? 1 : 0);
  if (levels > limits.callbackDepth)
    throw new Refusal(
      "invalid",
      `${shortenSetting(setting)}: callbacks can be nested at most ${limits.callbackDepth} levels deep`,
    );
  return callbacks.reduce((settings, child) => (settings[child] ??= noSettings(setting.writtenName)), root);
}

const isSetting = (name: string): name is MessageSettingName => Object.hasOwn(settingRows, name);

function refuseOrIgnore(setting: RawSetting, name: string): boolean {
  if (setting.brand !== "svc") return false;
  const suggestion = findNearest(name, [...Object.keys(settingRows), ...Object.keys(workflowSettingRows)]);
  const before = setting.writtenName.slice(0, setting.writtenName.length - name.length);
  const hint =
    suggestion === null
      ? ""
      : `; did you mean ${before}${/[A-Z]/.test(before) ? formatHeaderName(suggestion) : suggestion}?`;
  throw new Refusal("invalid", `${shortenSetting(setting)}: unknown setting${hint}`);
}

function setValue<N extends MessageSettingName>(
  { values, writtenNames }: MessageSettings,
  name: N,
  setting: RawSetting,
): void {
  values[name] = readValue(settingRows[name].read, setting);
  writtenNames[name] = setting.writtenName;
}

function setWorkflowValue<N extends WorkflowSettingName>(
  { values, writtenNames }: WorkflowSettings,
  name: N,
  setting: RawSetting,
): void {
  values[name] = readValue(workflowSettingRows[name].read, setting);
  writtenNames[name] = setting.writtenName;
}

function readValue<T>(read: (text: string) => T, setting: RawSetting): T {
  if (setting.value.length > limits.headerBytes)
    throw new Refusal(
      "invalid",
      `${shortenSetting(setting)}: ${setting.value.length} characters, the limit is ${limits.headerBytes}`,
    );
  try {
    return read(decodeHeaderText(setting.value));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const hint = setting.hasPlus ? " (in a query string, + is a space: write %2B)" : "";
    throw new Refusal(
      error.code,
      `${shortenSetting(setting)}: ` +
        `${error.message.replace(/^(retry delay|redact fields|cron)?: /, "")}${hint}`,
    );
  }
}

/**
 * Returns the text of a header value, which arrives as Latin-1. If its bytes are valid UTF-8, they are read
 * as UTF-8, because clients send UTF-8.
 */
export function decodeHeaderText(value: string): string {
  if (/^[\0-\x7f]*$/.test(value) || /[^\0-\xff]/.test(value)) return value;
  const bytes = Buffer.from(value, "latin1");
  const text = bytes.toString("utf8");
  return text.includes("\ufffd") ? value : text;
}

/** Throws `Refusal` if a callback has settings and no URL. `path` has the callbacks that it is nested in. */
function assertCallbacks(settings: MessageSettings, path = ""): void {
  for (const [child, name] of [
    [settings.callback, "callback"],
    [settings.failureCallback, "failure-callback"],
  ] as const) {
    if (!child) continue;
    const { firstWritten } = child;
    if (settings.values[name] === undefined) {
      const end = firstWritten.toLowerCase().indexOf(path + name) + path.length + name.length;
      const missing = firstWritten.slice(0, end);
      throw new Refusal("invalid", `${firstWritten.slice(0, 200)}: requires ${missing}`);
    }
    assertCallbacks(child, `${path}${name}-`);
  }
}
