import { Refusal } from "../../core/values/errors.ts";
import { limits } from "../../core/values/limits.ts";
import type { Brand } from "../../core/model/message.ts";
import { memoize } from "../../core/values/memoize.ts";
import { parseBrandedHeader, parseBrandedName, formatHeaderName } from "../http/brand.ts";
import { readForwardedHeader } from "./forward.ts";
import { findNearest } from "../http/nearest.ts";
import type { MessageSettingName, SettingValues } from "./table.ts";
import { settingRows, ignoredSettings } from "./table.ts";
import type { Parameter } from "../http/target.ts";
import type { WorkflowSettingName, WorkflowValues } from "./workflow.ts";
import { isWorkflowSetting, workflowSettingRows } from "./workflow.ts";

/**
 * A setting as it was given. `name` is plain and in lower case; `written` is what the caller wrote, for refusals. `hasPlus`: in a query, whose
 * `+` are spaces.
 */
export type GivenSetting = { brand: Brand; name: string; value: string; written: string; hasPlus?: boolean };

/** What was given for a message or for a callback, read. Headers are those of `forward-<name>`. */
export type MessageSettings = {
  values: Partial<SettingValues>;
  /** How each was written, for refusals that come later. */
  written: { [N in MessageSettingName]?: string };
  headers: (readonly [name: string, value: string])[];
  callback: MessageSettings | null;
  failureCallback: MessageSettings | null;
  /** What was given of a workflow run. Null: nothing. */
  workflow: WorkflowSettings | null;
  /** The first setting that was given in here. */
  firstWritten: string;
};

/** What was given of a workflow run, and how each was written. */
export type WorkflowSettings = { values: Partial<WorkflowValues>; written: { [N in WorkflowSettingName]?: string } };

export type ReadSettings = { settings: MessageSettings; ignored: string[] };

/** The settings among the names and values of headers, in turn. */
export function listHeaderSettings(rawHeaders: readonly string[]): GivenSetting[] {
  const given: GivenSetting[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const written = rawHeaders[at] ?? "";
    const branded = parseBrandedHeader(written);
    if (branded) given.push({ brand: branded.brand, name: branded.name, value: (rawHeaders[at + 1] ?? "").trim(), written });
  }
  return given;
}

/** The settings among the parameters of a query string. */
export const listQuerySettings = (parameters: readonly Parameter[]): GivenSetting[] =>
  parameters.flatMap(({ name, value, written, hasPlus }) => {
    const branded = parseBrandedName(name);
    return branded ? [{ ...branded, value: value.trim(), written, hasPlus }] : [];
  });

/**
 * Reads settings. What is given in an earlier layer wins over later ones, name by name: a header over a query parameter.
 * Throws `Refusal` for one that is unknown, malformed, of a workflow run, or given twice in a layer with different values.
 * Unknown ones of the other brand are left out and named in `ignored`.
 */
export function readSettings(...layers: readonly (readonly GivenSetting[])[]): ReadSettings {
  const read = readAllSettings(...layers);
  refuseWorkflowSettings(read.settings);
  return read;
}

/** The same, with those of messages that belong to a workflow run. */
export function readAllSettings(...layers: readonly (readonly GivenSetting[])[]): ReadSettings {
  const read = readLayers(layers);
  // Clients send settings of a failure callback with a call of a run, which has none.
  if (read.settings.workflow?.values["workflow-runid"] === undefined) checkCallbacks(read.settings);
  return read;
}

/** Reads settings that are to change others: one of a callback may be alone, where there is one already. */
export function readChanges(...layers: readonly (readonly GivenSetting[])[]): ReadSettings {
  const read = readLayers(layers);
  refuseWorkflowSettings(read.settings);
  return read;
}

function readLayers(layers: readonly (readonly GivenSetting[])[]): ReadSettings {
  const settings = noSettings("");
  const ignored: string[] = [];
  for (const given of mergeLayers(layers)) if (!storeSetting(settings, given)) ignored.push(given.written.toLowerCase());
  return { settings, ignored };
}

/** Throws `Refusal` for a setting that only schedules have. */
export function refuseScheduleSettings({ values, written }: MessageSettings): void {
  for (const name of scheduleOnlyNames) {
    const why = values[name] === undefined ? undefined : settingRows[name].onlyForSchedules;
    if (why !== undefined) throw new Refusal("invalid", `${(written[name] ?? name).slice(0, 200)}: ${why}`);
  }
}

/** Throws `Refusal` for a setting of messages that belong to a workflow run; those of callbacks are nothing without. */
export function refuseWorkflowSettings({ workflow, callback, failureCallback }: MessageSettings): void {
  const [written] = Object.values(workflow?.written ?? {});
  if (written !== undefined)
    throw new Refusal("invalid", `${written.slice(0, 200)}: belongs to a message of a workflow run, which this is not; leave it out`);
  if (callback) refuseWorkflowSettings(callback);
  if (failureCallback) refuseWorkflowSettings(failureCallback);
}

/** Throws `Refusal` for a deduplication window that was `asked` for where there is nothing to deduplicate by. */
export function refuseLoneWindow({ values, written }: MessageSettings, asked: readonly GivenSetting[]): void {
  if (values["deduplication-window"] === undefined || values["deduplication-id"] !== undefined || values["content-based-deduplication"])
    return;
  if (!asked.some(({ name }) => name === "deduplication-window")) return;
  const field = (written["deduplication-window"] ?? "deduplication-window").slice(0, 200);
  throw new Refusal("invalid", `${field}: requires Deduplication-Id or Content-Based-Deduplication; give one, or leave it out`);
}

const scheduleOnlyNames = (Object.keys(settingRows) as MessageSettingName[]).filter(
  (name) => settingRows[name].onlyForSchedules !== undefined,
);

const noSettings = (firstWritten: string): MessageSettings => ({
  values: {},
  written: {},
  headers: [],
  callback: null,
  failureCallback: null,
  workflow: null,
  firstWritten,
});

/**
 * Each setting once, from the first layer that has it. Forwarded headers may come repeatedly. Those of a callback, often a credential, are
 * meant for the URL that their layer gives it, and do not go to another one.
 */
function mergeLayers(layers: readonly (readonly GivenSetting[])[]): readonly GivenSetting[] {
  const [first = [], ...others] = layers.filter((layer) => layer.length > 0);
  const all = mergeLayer(first);
  const taken = new Map<string, string>();
  let previous = all;
  for (const layer of others) {
    for (const { name, value } of previous) taken.set(name, value).set(overriddenNames[name] ?? name, value);
    const given = mergeLayer(layer);
    const replaced = given.filter(({ name, value }) => isCallback(parseTarget(name)) && taken.has(name) && taken.get(name) !== value);
    const isForOther = (settingName: string): boolean => replaced.some(({ name }) => settingName.startsWith(`${name}-forward-`));
    previous = given.filter(({ name }) => !taken.has(name) && !isForOther(name));
    all.push(...previous);
  }
  return all;
}

/** What settles the same question by another name: a delay that is asked for holds, whatever a later layer has for all. */
const overriddenNames: Readonly<Partial<Record<string, string>>> = {
  delay: "not-before",
  "content-based-deduplication": "deduplication-id",
};

function mergeLayer(all: readonly GivenSetting[]): GivenSetting[] {
  const positions = new Map<string, number>();
  const kept: GivenSetting[] = [];
  for (const given of all) {
    if (given.name.length > longestName)
      throw new Refusal("invalid", `${shortenSetting(given)}: the name is longer than ${longestName} characters`);
    const { isForward, isIgnored } = parseTarget(given.name);
    const position = isForward || isIgnored ? undefined : positions.get(given.name);
    const other = position === undefined ? undefined : kept[position];
    if (position !== undefined && other) kept[position] = mergeValues(other, given);
    else positions.set(given.name, kept.push(given) - 1);
  }
  return kept;
}

/** Two settings of one name as one. Throws `Refusal` where they differ and are no lists. */
function mergeValues(one: GivenSetting, other: GivenSetting): GivenSetting {
  if (one.value === other.value) return one;
  if (listSettings.has(one.name)) return { ...one, value: `${one.value},${other.value}` };
  const both = one.written === other.written ? "given twice" : `given as ${one.written} too`;
  throw new Refusal("invalid", `${shortenSetting(other)}: ${both}, with different values; leave one out`);
}

/** Settings whose values are lists with commas: as with any such header (RFC 9110, 5.3), several are one. */
const listSettings: ReadonlySet<string> = new Set<MessageSettingName | WorkflowSettingName>(["label", "redact-fields", "feature-set"]);

/** Of a setting, with room for the longest name of a header behind its prefixes. */
const longestName = 2 * limits.nameLength;

/** What the name of a setting says: of which callback it is, from the outermost one on, and what is said of that. */
type SettingTarget = { callbacks: readonly ("callback" | "failureCallback")[]; name: string; isForward: boolean; isIgnored: boolean };

const parseTarget = memoize((fullName): SettingTarget => {
  const callbacks: ("callback" | "failureCallback")[] = [];
  let name = fullName;
  for (;;) {
    const [prefix] = /^(failure-)?callback-/.exec(name) ?? [];
    if (prefix === undefined) return { callbacks, name, isForward: name.startsWith("forward-"), isIgnored: ignoredSettings.test(fullName) };
    callbacks.push(prefix === "callback-" ? "callback" : "failureCallback");
    name = name.slice(prefix.length);
  }
});

/** Whether it is the URL of a callback, or of a callback of one. */
const isCallback = ({ name }: SettingTarget): boolean => name === "callback" || name === "failure-callback";

/** Puts a setting where it belongs. False when it is unknown and may be. */
function storeSetting(root: MessageSettings, given: GivenSetting): boolean {
  const target = parseTarget(given.name);
  if (target.isIgnored) return true;
  const settings = findOrCreateSettings(root, target, given);
  const { name, isForward } = target;
  const depth = target.callbacks.length;
  if (isForward) {
    const header = readForwardedHeader(given.written, name.slice("forward-".length), given.value);
    if (header) settings.headers.push(header);
    return true;
  }
  if (isWorkflowSetting(name)) {
    if (depth > 0 && !workflowSettingRows[name].forCallbacks)
      throw new Refusal("invalid", `${shortenSetting(given)}: is said of messages, not of callbacks`);
    setWorkflowValue((settings.workflow ??= { values: {}, written: {} }), name, given);
    return true;
  }
  if (!isSetting(name)) return refuseOrIgnore(given, name);
  const { forCallbacks } = settingRows[name];
  if (depth > 0 && forCallbacks !== true) throw new Refusal("invalid", `${shortenSetting(given)}: ${forCallbacks}`);
  setValue(settings, name, given);
  return true;
}

/** The settings of the callback that is meant, and of those on the way to it, which are made where there are none. Throws `Refusal`. */
function findOrCreateSettings(root: MessageSettings, target: SettingTarget, given: GivenSetting): MessageSettings {
  const { callbacks } = target;
  const levels = callbacks.length + (isCallback(target) ? 1 : 0);
  if (levels > limits.callbackDepth)
    throw new Refusal("invalid", `${shortenSetting(given)}: callbacks of callbacks go ${limits.callbackDepth} levels deep at most`);
  return callbacks.reduce((settings, child) => (settings[child] ??= noSettings(given.written)), root);
}

const isSetting = (name: string): name is MessageSettingName => Object.hasOwn(settingRows, name);

function refuseOrIgnore(given: GivenSetting, name: string): boolean {
  if (given.brand !== "svc") return false;
  const suggestion = findNearest(name, [...Object.keys(settingRows), ...Object.keys(workflowSettingRows)]);
  const before = given.written.slice(0, given.written.length - name.length);
  const hint = suggestion === null ? "" : `; did you mean ${before}${/[A-Z]/.test(before) ? formatHeaderName(suggestion) : suggestion}?`;
  throw new Refusal("invalid", `${shortenSetting(given)}: there is no such setting${hint}`);
}

function setValue<N extends MessageSettingName>({ values, written }: MessageSettings, name: N, given: GivenSetting): void {
  values[name] = readValue(settingRows[name].read, given);
  written[name] = given.written;
}

function setWorkflowValue<N extends WorkflowSettingName>({ values, written }: WorkflowSettings, name: N, given: GivenSetting): void {
  values[name] = readValue(workflowSettingRows[name].read, given);
  written[name] = given.written;
}

function readValue<T>(read: (text: string) => T, given: GivenSetting): T {
  if (given.value.length > limits.headerBytes)
    throw new Refusal("invalid", `${shortenSetting(given)}: ${given.value.length} characters, the limit is ${limits.headerBytes}`);
  try {
    return read(decodeHeaderText(given.value));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const hint = given.hasPlus ? "; a + in a query is a space, write %2B for a plus" : "";
    throw new Refusal(error.code, `${shortenSetting(given)}: ${error.message.replace(/^(retry delay|redact fields|cron)?: /, "")}${hint}`);
  }
}

/** Header values arrive as latin 1. Text that is UTF-8 underneath was meant as that. */
export function decodeHeaderText(value: string): string {
  if (/^[\0-\x7f]*$/.test(value) || /[^\0-\xff]/.test(value)) return value;
  const bytes = Buffer.from(value, "latin1");
  const text = bytes.toString("utf8");
  return text.includes("\ufffd") ? value : text;
}

/** A callback's settings are nothing without its URL. */
function checkCallbacks(settings: MessageSettings): void {
  for (const [child, name] of [
    [settings.callback, "callback"],
    [settings.failureCallback, "failure-callback"],
  ] as const) {
    if (!child) continue;
    if (settings.values[name] === undefined) {
      const missing = child.firstWritten.slice(0, child.firstWritten.toLowerCase().lastIndexOf(name) + name.length);
      throw new Refusal(
        "invalid",
        `${child.firstWritten.slice(0, 200)}: there is no ${missing.slice(0, 200)} with a URL that it could apply to`,
      );
    }
    checkCallbacks(child);
  }
}

const shortenSetting = ({ written }: GivenSetting): string => written.slice(0, 200);
