import type { Routes } from "../../api/schema.ts";
import { readPairs, writePairs } from "../../parts/words.ts";
import type { Draft } from "./publishSettings.ts";
import { callbacks, emptyDraft, toHeader } from "./publishSettings.ts";

type Schedule = Routes["GET /v2/schedules/{scheduleId}"]["response"];

/** A change of a schedule as the API takes it. Absent parts stay. */
export type ScheduleChange = {
  destination?: string;
  settings?: Record<string, string | readonly string[] | null>;
  body?: string;
};

/** Returns the form of an existing schedule. */
export function readScheduleDraft({ destination, method, body = "", settings = {} }: Schedule): Draft {
  const values: Record<string, string> = {};
  const headers: Record<string, Record<string, string | readonly string[]>> = {};
  for (const [written, value] of Object.entries(settings)) {
    const name = written.replace(/^svc-/i, "");
    const [, callback, header] = /^((?:(?:failure-)?callback-)*)forward-(.*)$/i.exec(name) ?? [];
    if (callback === undefined || header === undefined)
      values[name.toLowerCase()] = typeof value === "string" ? value : value.join(",");
    else (headers[callback.toLowerCase()] ??= {})[header] = value;
  }
  const { "Content-Type": type = "", ...own } = headers[""] ?? {};
  for (const [prefix, pairs] of Object.entries({ ...headers, "": own }))
    values[`${prefix}forward`] = writePairs(pairs);
  const { "queue-name": queue = "", method: _, ...rest } = values;
  return {
    ...emptyDraft,
    kind: "schedule",
    destination,
    method,
    body,
    type: typeof type === "string" ? type : type.join(", "),
    queue,
    values: rest,
  };
}

/**
 * Returns what differs between two states of the form. A callback that differs comes with all its settings,
 * because the API changes it as a whole.
 */
export function compareDrafts(before: Draft, after: Draft): ScheduleChange {
  const settings = Object.fromEntries(
    [
      compareTexts(listOwn(before), listOwn(after)),
      ...callbacks.map(({ name }) => compareCallback(name, before, after)),
    ].flatMap((changed) => Object.entries(changed)),
  );
  return {
    ...(before.destination !== after.destination && { destination: after.destination }),
    ...(Object.keys(settings).length > 0 && { settings }),
    ...(before.body !== after.body && { body: after.body }),
  };
}

type Texts = Record<string, string | readonly string[]>;
type Changed = NonNullable<ScheduleChange["settings"]>;

const isOfCallback = (name: string): boolean => /^(failure-)?callback(-|$)/.test(name);

/** Returns the settings of the message itself, by their headers. */
function listOwn({ values, method, type, queue }: Draft): Texts {
  const own = Object.entries(values).filter(([name]) => !isOfCallback(name));
  return toTexts([
    ...own,
    ["method", method],
    ["queue-name", queue],
    ["forward", [values["forward"] ?? "", type && `Content-Type: ${type}`].join("\n")],
  ]);
}

/** Returns settings by their headers. Each header that is delivered has its own entry. */
function toTexts(values: readonly (readonly [name: string, value: string])[]): Texts {
  const texts: Texts = {};
  for (const [name, value] of values) {
    if (!/(^|-)forward$/.test(name)) {
      if (value.trim() !== "") texts[toHeader(name)] = value.trim();
      continue;
    }
    for (const [header, all] of Object.entries(readPairs(value))) texts[`${toHeader(name)}-${header}`] = all;
  }
  return texts;
}

const isSame = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other);

/** Returns the texts that differ. A string that is gone is null. */
function compareTexts(before: Texts, after: Texts): Changed {
  const changed = Object.entries(after).filter(([name, value]) => !isSame(before[name], value));
  const gone = Object.keys(before).filter((name) => after[name] === undefined);
  return Object.fromEntries([...changed, ...gone.map((name) => [name, null] as const)]);
}

function compareCallback(name: string, before: Draft, after: Draft): Changed {
  const list = ({ values }: Draft): Texts =>
    toTexts(Object.entries(values).filter(([one]) => one === name || one.startsWith(`${name}-`)));
  const [old, now] = [list(before), list(after)];
  if (isSame(old, now)) return {};
  return (after.values[name] ?? "").trim() === "" ? { [toHeader(name)]: null } : now;
}
