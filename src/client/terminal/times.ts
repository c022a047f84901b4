import { parseDuration } from "../../engine/core/values/duration.ts";
import { day, hour, minute, second } from "../../engine/core/values/time.ts";
import { CommandFailed } from "./commandFailed.ts";
import type { Fields } from "./fields.ts";
import { readNumber } from "./fields.ts";

/** Returns a duration in at most two units, such as `3m 20s`. */
export function formatSpan(span: number): string {
  if (span < second) return `${Math.round(span)}ms`;
  const units = [
    [day, "d"],
    [hour, "h"],
    [minute, "m"],
    [second, "s"],
  ] as const;
  const at = units.findIndex(([size]) => span >= size);
  const [size, unit] = units[at] ?? [second, "s"];
  const [smaller, smallerUnit] = units[at + 1] ?? [0, ""];
  const rest = smaller === 0 ? 0 : Math.floor((span % size) / smaller);
  return `${Math.floor(span / size)}${unit}${rest > 0 ? ` ${rest}${smallerUnit}` : ""}`;
}

/** Returns how long ago a time was, or in how long it will be. "" if the field is absent. */
export function formatAge(fields: Fields, name: string, now: number): string {
  const time = readNumber(fields, name);
  if (time === null) return "";
  return time > now ? `in ${formatSpan(time - now)}` : `${formatSpan(now - time)} ago`;
}

/** Returns a time as a person writes it, in UTC, or "" if the field is absent. */
export function formatTime(fields: Fields, name: string): string {
  const time = readNumber(fields, name);
  return time === null || Math.abs(time) > 8.64e15 ? "" : new Date(time).toISOString();
}

/**
 * Parses a time of a flag: a duration means that long ago (`1h`), digits are Unix milliseconds, and anything
 * else is a date such as `2026-11-25T12:00Z`.
 */
export function parseTime(flag: string, text: string, now: number): number {
  if (/^\d{10,16}$/.test(text)) return Number(text);
  const span = parseDuration(text);
  if (span !== null) return now - span;
  const time = /^\d{4}-\d\d-\d\d/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(time))
    throw new CommandFailed(
      "usage",
      `${flag}: "${text}" is not a time; use a duration such as 1h, or a date such as 2026-11-25T12:00Z`,
    );
  return time;
}
