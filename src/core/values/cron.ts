// The one package that core may use. It computes on the instant it is given and starts no timer unless it is given a function.
import { Cron } from "croner";
import { Refusal } from "./errors.ts";
import type { Millis } from "./basics.ts";
import { memoize } from "./memoize.ts";

const maxCronLength = 256;
/** One takes some 70 KB, nearly all of it a list of years that the library keeps. */
const cacheSize = 256;

/**
 * Checks when a schedule is to fire, and answers the text to keep: `minute hour day month weekday`, or `@daily` and the like, after
 * `CRON_TZ=<IANA zone> ` or `TZ=<IANA zone> ` if not meant in UTC. Spaces around it are dropped. Throws `Refusal` when it is
 * malformed, longer than 256 characters, or never fires.
 */
export function parseCron(text: string): string {
  const cron = text.trim();
  if (hasImpossibleDate(cron) || nextCronTime(cron, 0) === null) refuse(`${quote(cron)} never fires: none of its months has such a day`);
  return cron;
}

/**
 * The first whole minute after that instant, never that instant itself, at which it fires; null when there is none before the
 * year 3000. Throws `Refusal` for what `parseCron` refuses as malformed.
 *
 * When clocks change, as in Vixie cron: with a step or `*` in minute or hour it fires whenever the clock on the wall says so, so
 * it keeps its pace, and passes over what the clock does. Otherwise a time that comes twice counts the first time only, and one
 * that is left out fires once, the moment the clock has moved on (unless that is the next day already).
 */
export function nextCronTime(cron: string, after: Millis): Millis | null {
  // With a date given, the answer does not depend on the present.
  return parseCached(cron).nextRun(new Date(after))?.getTime() ?? null;
}

const parseCached = memoize(parseExpression, cacheSize);

function parseExpression(cron: string): Cron {
  const { zone, times } = splitZone(cron);
  const name = zone === undefined ? "UTC" : parseZone(zone);
  // Without names of zones it is five times as fast.
  const zoneOption = name === "UTC" ? { utcOffset: 0 } : { timezone: name };
  return new Cron(normalizeFields(times), { mode: "5-part", fixedTimeRule: "no-wildcard", ...zoneOption });
}

function splitZone(cron: string): { zone: string | undefined; times: string } {
  if (cron.length > maxCronLength) refuse(`has ${cron.length} characters; at most ${maxCronLength} are read`);
  const [, zone, times = ""] = /^(?:(?:CRON_)?TZ=(\S*)\s*)?(.*)$/s.exec(cron) ?? [];
  return { zone, times };
}

const daysOfMonths = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/** Whether none of its months has such a day. The library would look for one in each year up to 3000, which takes 4 ms. */
function hasImpossibleDate(cron: string): boolean {
  const [, , days = "*", months = "*", weekdays = "*"] = normalizeFields(splitZone(cron).times).split(" ");
  if (weekdays !== "*") return false;
  const longestMonth = Math.max(...expandField(months, 1, 12).map((month) => daysOfMonths[month - 1] ?? 0));
  return Math.min(...expandField(days, 1, 31)) > longestMonth;
}

/** The numbers that a normalized field stands for. */
function expandField(normal: string, low: number, high: number): number[] {
  return normal.split(",").flatMap((item) => {
    const [range = "", step = "1"] = item.split("/");
    const [from = low, to = range === "*" ? high : from] = range === "*" ? [] : range.split("-").map(Number);
    return Array.from({ length: Math.floor((to - from) / Number(step)) + 1 }, (_, at) => from + at * Number(step));
  });
}

/** The name of a zone as the system spells it, so that the library, which remembers every zone, meets each one once. */
function parseZone(name: string): string {
  try {
    // Also understood there, but not by name, are offsets such as +01:00.
    if (/^[a-z]/i.test(name)) return new Intl.DateTimeFormat("en-US", { timeZone: name }).resolvedOptions().timeZone;
  } catch {
    // Unknown: refused below.
  }
  return refuse(`there is no time zone ${quote(name)}; expected an IANA name, as in CRON_TZ=Europe/Berlin 0 9 * * *`);
}

type Field = { name: string; low: number; high: number; words: readonly string[] };

const fields: readonly Field[] = [
  { name: "minute", low: 0, high: 59, words: [] },
  { name: "hour", low: 0, high: 23, words: [] },
  { name: "day of the month", low: 1, high: 31, words: [] },
  { name: "month", low: 1, high: 12, words: ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"] },
  { name: "weekday", low: 0, high: 6, words: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

const expectedFields = 'expected five fields: minute hour day month weekday, as in "0 9 * * 1-5"';
const nicknames = ["@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"];

/** The fields in plain numbers, checked here so that a refusal can name the field and its bounds. */
function normalizeFields(times: string): string {
  if (times === "") return refuse(`is empty; ${expectedFields}`);
  if (times.startsWith("@")) {
    return nicknames.includes(times.toLowerCase())
      ? times
      : refuse(`${quote(times)} is not known; ${expectedFields}, or ${nicknames.join(" ")}`);
  }
  const texts = times.split(/[ \t]+/);
  if (texts.length !== fields.length)
    refuse(`${quote(times)} has ${texts.length} ${texts.length === 1 ? "field" : "fields"}; ${expectedFields}`);
  return fields.map((field, at) => normalizeField(texts[at] ?? "", field)).join(" ");
}

function normalizeField(text: string, field: Field): string {
  const items = text.split(",").map((item) => normalizeItem(item, field));
  // In a list with a star the rest says nothing.
  return items.includes("*") ? "*" : items.join(",");
}

/** One item of a list: a star, a number or a range; with a step, a number alone begins a range to the end. */
function normalizeItem(item: string, field: Field): string {
  const match = /^(?:[*?]|([a-z\d]+)(?:-([a-z\d]+))?)(?:\/(\d+))?$/i.exec(item);
  if (match === null) {
    return refuse(`the ${field.name} ${quote(item)} is malformed; expected *, a number, a range (1-5), a step (*/15), or a list of these`);
  }
  const [, from, to, step] = match;
  const stepSuffix = step === undefined ? "" : `/${parseStep(step, field)}`;
  if (from === undefined) return `*${stepSuffix}`;
  const low = parseNumber(from, field);
  if (to === undefined) return step === undefined ? `${low}` : `${low}-${Math.max(low, field.high)}${stepSuffix}`;
  const high = parseRangeEnd(to, field);
  if (high < low) refuse(`the ${field.name} ${quote(item)} ends before it begins; write what goes past the end as a list of two ranges`);
  return `${low}-${high}${stepSuffix}`;
}

function parseStep(text: string, field: Field): number {
  const maxStep = field.high - field.low + 1;
  const step = Number(text);
  return step >= 1 && step <= maxStep ? step : refuse(`the step of the ${field.name} must be 1 to ${maxStep}, not ${quote(text)}`);
}

/** Sunday is 0, and 7 where it ends a range by name: `fri-sun`. */
function parseRangeEnd(text: string, field: Field): number {
  return text.toLowerCase() === "sun" && field.words.includes("sun") ? 7 : parseNumber(text, field);
}

function parseNumber(text: string, { name, low, high, words }: Field): number {
  const word = words.indexOf(text.toLowerCase());
  if (word >= 0) return low + word;
  // Sunday has two numbers, 0 and 7.
  const maxNumber = words.includes("sun") ? 7 : high;
  const number = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (number >= low && number <= maxNumber) return number;
  const orNames = words.length === 0 ? "" : ` or ${words[0]} to ${words.at(-1)}`;
  return refuse(`the ${name} must be ${low} to ${maxNumber}${orNames}, not ${quote(text)}`);
}

const quote = (text: string): string => JSON.stringify(text);

function refuse(reason: string): never {
  throw new Refusal("invalid", `cron: ${reason}`);
}
