// Croner is the only package that core may use. It computes from the time that it is given. It would start a
// timer only if it were given a function.
import { Cron } from "croner";
import { Refusal } from "./errors.ts";
import type { Millis } from "./basics.ts";
import { memoize } from "../caches/memoize.ts";

const maxCronLength = 256;
/** One entry takes about 70 KB, mostly a list of years that the library keeps. */
const cacheSize = 256;

/**
 * Checks a cron expression and returns the text to keep. The text has five fields, `minute hour day month
 * weekday`, or a nickname such as `@daily`. Times are in UTC unless `CRON_TZ=<IANA zone> ` or `TZ=<IANA zone>
 * ` precedes the fields. Spaces around the text are removed. Throws `Refusal` if the text is malformed,
 * longer than 256 characters, or never fires.
 */
export function parseCron(text: string): string {
  const cron = text.trim();
  if (hasImpossibleDate(cron) || nextCronTime(cron, 0) === null)
    refuse(`${quote(cron)} never fires: none of its months has such a day`);
  return cron;
}

/**
 * Returns the first whole minute after `after`, never `after` itself, at which the expression fires. Returns
 * null if it does not fire before the year 3000. Throws `Refusal` for a string that `parseCron` refuses as
 * malformed.
 *
 * Clock changes are handled as in Vixie cron. If the minute or the hour has a step or `*`, the expression
 * fires whenever local time matches, so it keeps its pace regardless of the change. Otherwise, a local time
 * that occurs twice fires only the first time. A skipped local time fires once, at the moment of the change,
 * unless that moment is on the next day.
 */
export function nextCronTime(cron: string, after: Millis): Millis | null {
  // The date is given, so the result does not depend on the present.
  return parseCached(cron).nextRun(new Date(after))?.getTime() ?? null;
}

/**
 * Returns the next `count` times of an expression that is due at `dueAt`. The first one is `dueAt`, even if
 * it is in the past, because a late firing happens once. Returns fewer times if the year 3000 comes first, or
 * if the expression cannot be read any more, for example because its time zone was removed.
 */
export function listCronTimes(
  cron: string,
  { dueAt, now, count }: { dueAt: Millis; now: Millis; count: number },
): Millis[] {
  const times = [dueAt];
  try {
    let last = Math.max(dueAt, now);
    while (times.length < count) {
      const next = nextCronTime(cron, last);
      if (next === null) break;
      times.push(next);
      last = next;
    }
  } catch {
    // The times so far are right. The next firing reports the problem.
  }
  return times;
}

const parseCached = memoize(parseExpression, cacheSize);

function parseExpression(cron: string): Cron {
  const { zone, times } = splitZone(cron);
  const name = zone === undefined ? "UTC" : parseZone(zone);
  // With an offset instead of a zone name, the library is five times as fast.
  const zoneOption = name === "UTC" ? { utcOffset: 0 } : { timezone: name };
  return new Cron(normalizeFields(times), { mode: "5-part", fixedTimeRule: "no-wildcard", ...zoneOption });
}

function splitZone(cron: string): { zone: string | undefined; times: string } {
  if (cron.length > maxCronLength) refuse(`has ${cron.length} characters; the limit is ${maxCronLength}`);
  const [, zone, times = ""] = /^(?:(?:CRON_)?TZ=(\S*)\s*)?(.*)$/s.exec(cron) ?? [];
  return { zone, times };
}

const daysOfMonths = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/**
 * Reports whether an expression names only dates that do not exist, such as the 30th of February. The library
 * would search every year up to 3000, which takes 4 ms.
 */
function hasImpossibleDate(cron: string): boolean {
  const [, , days = "*", months = "*", weekdays = "*"] = normalizeFields(splitZone(cron).times).split(" ");
  if (weekdays !== "*") return false;
  const longestMonth = Math.max(...expandField(months, 1, 12).map((month) => daysOfMonths[month - 1] ?? 0));
  return Math.min(...expandField(days, 1, 31)) > longestMonth;
}

/** Returns the numbers that a normalized field matches. */
function expandField(normal: string, low: number, high: number): number[] {
  return normal.split(",").flatMap((item) => {
    const [range = "", step = "1"] = item.split("/");
    const [from = low, to = range === "*" ? high : from] = range === "*" ? [] : range.split("-").map(Number);
    return Array.from(
      { length: Math.floor((to - from) / Number(step)) + 1 },
      (_, at) => from + at * Number(step),
    );
  });
}

/**
 * Returns the name of a zone as the system spells it. The library caches every spelling of a zone, so each
 * zone must reach it in only one spelling.
 */
function parseZone(name: string): string {
  try {
    // The system also accepts offsets such as +01:00, which are not names.
    if (/^[a-z]/i.test(name))
      return new Intl.DateTimeFormat("en-US", { timeZone: name }).resolvedOptions().timeZone;
  } catch {
    // An unknown name is refused below.
  }
  return refuse(`unknown time zone ${quote(name)}; use an IANA name, as in CRON_TZ=Europe/Berlin 0 9 * * *`);
}

type Field = { name: string; low: number; high: number; words: readonly string[] };

const fields: readonly Field[] = [
  { name: "minute", low: 0, high: 59, words: [] },
  { name: "hour", low: 0, high: 23, words: [] },
  { name: "day of the month", low: 1, high: 31, words: [] },
  {
    name: "month",
    low: 1,
    high: 12,
    words: ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
  },
  { name: "weekday", low: 0, high: 6, words: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

const expectedFields = 'expected five fields: minute hour day month weekday, as in "0 9 * * 1-5"';
const nicknames = ["@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"];

/**
 * Returns the fields in plain numbers. The fields are checked here so that a refusal can name the field and
 * its bounds.
 */
function normalizeFields(times: string): string {
  if (times === "") return refuse(`is empty; ${expectedFields}`);
  if (times.startsWith("@")) {
    return nicknames.includes(times.toLowerCase())
      ? times
      : refuse(`${quote(times)} is not supported; ${expectedFields}, or ${nicknames.join(" ")}`);
  }
  const texts = times.split(/[ \t]+/);
  if (texts.length !== fields.length)
    refuse(
      `${quote(times)} has ${texts.length} ${texts.length === 1 ? "field" : "fields"}; ${expectedFields}`,
    );
  return fields.map((field, at) => normalizeField(texts[at] ?? "", field)).join(" ");
}

function normalizeField(text: string, field: Field): string {
  const items = text.split(",").map((item) => normalizeItem(item, field));
  // A star makes the other items of a list redundant.
  return items.includes("*") ? "*" : items.join(",");
}

/**
 * Normalizes one item of a list: a star, a number or a range. A number with a step is a range from that
 * number to the end of the field: for minutes, `5/20` is `5-59/20`.
 */
function normalizeItem(item: string, field: Field): string {
  const match = /^(?:[*?]|([a-z\d]+)(?:-([a-z\d]+))?)(?:\/(\d+))?$/i.exec(item);
  if (match === null) {
    return refuse(
      `the ${field.name} ${quote(item)} is malformed; ` +
        "expected *, a number, a range (1-5), a step (*/15), or a list of these",
    );
  }
  const [, from, to, step] = match;
  const stepSuffix = step === undefined ? "" : `/${parseStep(step, field)}`;
  if (from === undefined) return `*${stepSuffix}`;
  const low = parseNumber(from, field);
  if (to === undefined)
    return step === undefined ? `${low}` : `${low}-${Math.max(low, field.high)}${stepSuffix}`;
  const high = parseRangeEnd(to, field);
  if (high < low)
    refuse(`the ${field.name} ${quote(item)} ends before it begins; use a list of two ranges instead`);
  return `${low}-${high}${stepSuffix}`;
}

function parseStep(text: string, field: Field): number {
  const maxStep = field.high - field.low + 1;
  const step = Number(text);
  return step >= 1 && step <= maxStep
    ? step
    : refuse(`the step of the ${field.name} must be 1 to ${maxStep}, not ${quote(text)}`);
}

/** Returns the end of a range. Sunday is 0, but 7 if it ends a range by name, as in `fri-sun`. */
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
