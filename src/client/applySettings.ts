import { createHash } from "node:crypto";
import { findNearest } from "../engine/core/values/nearest.ts";
import { formatDuration, parseDuration } from "../engine/core/values/duration.ts";
import type { Given, Reader } from "./applyFile.ts";
import { WrongValue, readEntries } from "./applyFile.ts";
import type { GivenValue } from "./applyValues.ts";
import { isReference } from "./applyValues.ts";
import type { Fields } from "./terminal/fields.ts";

/** The settings of a resource in the file, by their names in lower case without a brand. Null removes one. */
export type GivenSettings = ReadonlyMap<string, GivenSetting>;
type GivenSetting = { written: string; values: readonly GivenValue[] | null };

type ToNormal = (text: string) => string;

const asIs: ToNormal = (text) => text;
const asLower: ToNormal = (text) => text.toLowerCase();
const asDuration: ToNormal = (text) => {
  const duration = parseDuration(text);
  return duration === null ? text : formatDuration(duration);
};
const splitItems = (text: string): string[] =>
  text
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "");
const asItems: ToNormal = (text) => [...new Set(splitItems(text))].join(",");
const asLimits: ToNormal = (text) =>
  splitItems(text)
    .map((item) => item.replaceAll(/\s/g, ""))
    .map((item) => (item.startsWith("period=") ? `period=${asDuration(item.slice(7))}` : item))
    .toSorted()
    .join(",");
const asRedaction: ToNormal = (text) =>
  [...new Set(splitItems(text).map((item) => item.replace(/^headers/, "header").toLowerCase()))]
    .toSorted()
    .join(",");

/**
 * Every setting of a message, with what gives two texts of the same meaning the same form. A server shows the
 * settings of a schedule in its own form.
 */
export const settingForms: Readonly<Record<string, ToNormal>> = {
  method: (text) => text.toUpperCase(),
  delay: asDuration,
  "not-before": asIs,
  retries: (text) => (/^\d{1,20}$/.test(text) ? String(Number(text)) : text),
  "retry-delay": asIs,
  timeout: asDuration,
  "header-forward": asLower,
  "flow-control-key": asIs,
  "flow-control-value": asLimits,
  callback: asIs,
  "failure-callback": asIs,
  "deduplication-id": asIs,
  "content-based-deduplication": asLower,
  "deduplication-window": asDuration,
  label: asItems,
  "redact-fields": asRedaction,
  "keep-response": asLower,
  "hide-headers": asLower,
  "ack-timeout": asDuration,
  cron: asIs,
  "schedule-id": asIs,
  "queue-name": asIs,
};

/** The settings that a schedule of the file cannot have, each with what to use instead. */
export const notForSchedules: Readonly<Record<string, string>> = {
  cron: "use the key cron of the schedule",
  "schedule-id": "the name in the file is the id",
  "not-before": "a schedule has no first time; remove it",
  "header-forward": "use Svc-Forward-… to deliver a header",
  "deduplication-id": "the id already prevents a second schedule; remove it",
  "content-based-deduplication": "the id already prevents a second schedule; remove it",
  "deduplication-window": "the id already prevents a second schedule; remove it",
};

const callbackPrefix = /^(?:(?:failure-)?callback-)+/;

/** Returns a setting's name in lower case, without its brand. Null: it is not a setting. */
const toName = (written: string): string | null =>
  /^(?:svc|upstash)-(.+)$/.exec(written.toLowerCase())?.[1] ?? null;

/** Returns a setting's name without the callbacks that it belongs to. */
const withoutCallbacks = (name: string): string =>
  Object.hasOwn(settingForms, name) ? name : name.replace(callbackPrefix, "");

/**
 * Returns the group of a setting. A server replaces the settings of a group together: those of a callback,
 * and the key and the limits of flow control.
 */
const groupOf = (name: string): string =>
  /^(?:failure-)?callback(?=-|$)/.exec(name)?.[0] ??
  (name.startsWith("flow-control-") ? "flow-control" : name);

/** Returns a reader of settings. `refused` has those that the resource cannot have. */
export const settingsReader =
  (readValue: Reader<GivenValue>, refused: Readonly<Record<string, string>> = {}): Reader<GivenSettings> =>
  (given) => {
    const settings = new Map<string, GivenSetting>();
    for (const [written, value] of readEntries(given)) {
      const name = checkName(written, value, refused);
      if (settings.has(name)) throw new WrongValue(value, "is given twice, under both brands; remove one");
      settings.set(name, { written, values: readSettingValues(value, readValue) });
    }
    for (const [name, { values }] of settings) {
      const group = groupOf(name);
      const head = group === "flow-control" ? "flow-control-key" : group;
      if (values !== null && !settings.get(head)?.values)
        throw new WrongValue(given, `${name} requires Svc-${toHeader(head)}; a server keeps both together`);
    }
    return settings;
  };

const toHeader = (name: string): string =>
  name.replaceAll(/(^|-)([a-z])/g, (_, dash: string, letter: string) => dash + letter.toUpperCase());

function checkName(written: string, value: Given, refused: Readonly<Record<string, string>>): string {
  const name = toName(written);
  if (name === null) throw new WrongValue(value, "is not a setting; use Svc-Forward-… to deliver a header");
  const own = withoutCallbacks(name);
  if (own.startsWith("forward-") && own !== "forward-") return name;
  if (!Object.hasOwn(settingForms, own)) {
    const nearest = findNearest(own, Object.keys(settingForms));
    const advice = nearest === null ? "" : `; did you mean Svc-${toHeader(nearest)}?`;
    throw new WrongValue(value, `unknown setting${advice}`);
  }
  if (Object.hasOwn(refused, own)) throw new WrongValue(value, `not valid here; ${refused[own]}`);
  return name;
}

function readSettingValues(given: Given, readValue: Reader<GivenValue>): GivenValue[] | null {
  if (given.kind === "word" && given.value === null) return null;
  const items = given.kind === "list" && !isReference(given) ? given.items : [given];
  if (items.length === 0) throw new WrongValue(given, "is empty; null removes a setting");
  return items.map((item) => {
    const { text, isSecret } = readValue(item);
    return { text: text.trim(), isSecret };
  });
}

/** A difference between the file and the server. Null: there is no value. */
export type Difference = { field: string; before: string | null; after: string | null };

/** The settings to send, null for one that is removed, and the differences that they make. */
export type SettingChanges = {
  differences: Difference[];
  settings: Record<string, string | string[] | null>;
};

type Known = { written: string; texts: readonly string[] };

/**
 * Compares the settings of the file with those that a server shows. Settings that the file does not have are
 * ignored, except those of a callback that it has, because a server replaces a callback as a whole.
 */
export function compareSettings(given: GivenSettings, shown: Fields): SettingChanges {
  const known = new Map(
    Object.entries(shown).map(([written, value]) => [
      toName(written) ?? written,
      { written, texts: (Array.isArray(value) ? value : [value]).map(String) } satisfies Known,
    ]),
  );
  const changes: SettingChanges = { differences: [], settings: {} };
  for (const group of new Set([...given.keys()].map(groupOf))) {
    const names = [...new Set([...given.keys(), ...known.keys()])].filter((name) => groupOf(name) === group);
    const different = names.filter((name) => !isSame(name, given.get(name), known.get(name)));
    for (const name of different) changes.differences.push(describe(name, given.get(name), known.get(name)));
    for (const name of different.length === 0 ? [] : names) {
      const setting = given.get(name);
      if (setting) changes.settings[setting.written] = setting.values && toTexts(setting.values);
    }
  }
  return changes;
}

/** Returns the settings of the file, with those that a server shows and the file lacks. */
export function mergeSettings(given: GivenSettings, shown: Fields): Record<string, unknown> {
  const groups = new Set([...given.keys()].map(groupOf));
  const kept = Object.entries(shown).filter(([written]) => !groups.has(groupOf(toName(written) ?? written)));
  return { ...Object.fromEntries(kept), ...listSettings(given) };
}

/** Returns the settings of the file that have a value. */
export const listSettings = (given: GivenSettings): Record<string, string | string[]> =>
  Object.fromEntries(
    [...given.values()].flatMap(({ written, values }) => (values ? [[written, toTexts(values)]] : [])),
  );

const toTexts = (values: readonly GivenValue[]): string | string[] => {
  const texts = values.map(({ text }) => text);
  const [only] = texts;
  return only !== undefined && texts.length === 1 ? only : texts;
};

/** The texts that mean the same as no setting. */
const defaults: Readonly<Record<string, string>> = {
  method: "POST",
  "keep-response": "false",
  "hide-headers": "false",
};

function isSame(name: string, given: GivenSetting | undefined, known: Known | undefined): boolean {
  const form = settingForms[withoutCallbacks(name)] ?? asIs;
  const toForms = (texts: readonly string[]): string[] =>
    texts.map((text) => form(text.trim())).filter((text) => text !== defaults[withoutCallbacks(name)]);
  const wanted = toForms((given?.values ?? []).map(({ text }) => text));
  const present = toForms(known?.texts ?? []);
  if (name === "redact-fields" && given?.values)
    return wanted.every((text) =>
      splitItems(text).every((item) => splitItems(present.join(",")).includes(item)),
    );
  return wanted.length === present.length && wanted.every((text, at) => matches(text, present[at] ?? ""));
}

/** Reports whether a server shows this value, openly or as the hash that replaces a hidden one. */
export const matches = (text: string | Buffer, shown: string): boolean =>
  shown === text.toString() || shown === `REDACTED:${createHash("sha256").update(text).digest("hex")}`;

/** The values of forwarded headers and of secrets are not printed. */
function describe(name: string, given: GivenSetting | undefined, known: Known | undefined): Difference {
  const isHidden =
    withoutCallbacks(name).startsWith("forward-") || given?.values?.some(({ isSecret }) => isSecret) === true;
  const show = (texts: readonly string[] | undefined): string | null =>
    texts === undefined || texts.length === 0 ? null : isHidden ? hidden : texts.join(", ");
  return {
    field: given?.written ?? known?.written ?? name,
    before: show(known?.texts),
    after: show(given?.values?.map(({ text }) => text)),
  };
}

/** Printed instead of a value that may be secret. */
export const hidden = "(not shown)";
