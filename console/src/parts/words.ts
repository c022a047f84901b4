const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

const whole = new Intl.NumberFormat("en-US");
const short = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

/** Returns a number with separators, such as 1,284. */
export const formatCount = (value: number): string => whole.format(value);

/** Returns a span in at most two units, such as `42 s`, `1 h 12 min` or `3 d`. */
export function formatSpan(millis: number): string {
  const value = Math.max(0, millis);
  if (value < second) return `${Math.round(value)} ms`;
  if (value < 10 * second) return `${short.format(value / second)} s`;
  if (value < minute) return `${Math.round(value / second)} s`;
  if (value < hour) return withRest([value, minute, "min"], [second, "s"], value < 10 * minute);
  if (value < day) return withRest([value, hour, "h"], [minute, "min"], true);
  return withRest([value, day, "d"], [hour, "h"], value < 10 * day);
}

function withRest(
  [value, unit, name]: [number, number, string],
  [restUnit, restName]: [number, string],
  hasRest: boolean,
): string {
  const full = Math.floor(value / unit);
  const rest = Math.floor((value % unit) / restUnit);
  return hasRest && rest > 0 ? `${full} ${name} ${rest} ${restName}` : `${full} ${name}`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayAndClock = new Intl.DateTimeFormat("en-GB", {
  weekday: "short",
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});
const toTheSecond = {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
} as const;
const exact = new Intl.DateTimeFormat("en-GB", { ...toTheSecond, fractionalSecondDigits: 3 });
const wholeSeconds = new Intl.DateTimeFormat("en-GB", toTheSecond);

const millisClock = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
});

/** Returns a time of day with its milliseconds. */
export const formatTimeOfDay = (time: number): string => millisClock.format(time);

/** Returns a time of day, with the date if it is half a day away: the same time tomorrow is not now. */
export const formatClock = (time: number, now: number): string =>
  Math.abs(now - time) < day / 2 ? clock.format(time) : dayAndClock.format(time);

/** Returns a time exactly, for a title. */
export const formatExact = (time: number): string => exact.format(time);

/** Returns the date and the time of a schedule, which has no milliseconds. */
export const formatScheduled = (time: number): string => wholeSeconds.format(time);

/** Returns how long ahead a time is, or null if it is more than a day ahead. */
export const formatAhead = (time: number, now: number): string | null =>
  time - now < day ? formatRelative(time, now) : null;

/** Returns how long ago or ahead a time is, up to a day, and then its date. */
export const formatRelative = (time: number, now: number): string =>
  Math.abs(time - now) < day ? formatDistance(time, now) : dayAndClock.format(time);

/** Returns how long ago or ahead a time is. */
export function formatDistance(time: number, now: number): string {
  const distance = time - now;
  if (Math.abs(distance) < second) return "now";
  return distance > 0 ? `in ${formatSpan(distance)}` : `${formatSpan(-distance)} ago`;
}

/** Replaces the times in a sentence of the server by times of day. */
export const withClocks = (text: string, now: number): string =>
  text.replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (time) => formatClock(Date.parse(time), now));

/**
 * Returns the error of a group of failures. Groups leave out all numbers, but each has one status, which is
 * put back.
 */
export const fillStatus = (error: string, status: number | undefined): string =>
  status === undefined ? error : error.replace(/ status …$/, ` status ${status}`);

/** Returns a body that the log has as base64 as text. A redacted body is text already. */
export function decodeBody(body: string): string {
  try {
    return new TextDecoder().decode(Uint8Array.from(atob(body), (letter) => letter.codePointAt(0) ?? 0));
  } catch {
    return body;
  }
}

/** From this number, a limit of the server on anything but bytes means none. */
export const noCountFrom = 1_000_000_000;

/** From this number of bytes, a limit of the server means none. */
export const noLimitFrom: number = 2 ** 48;

/** Returns a size such as `1.0 MiB`. */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = bytes / 1024;
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at++;
  }
  return `${value.toFixed(1)} ${units[at]}`;
}

/** Shortens an id in its middle: `msg_7HpZ…m2c`. */
export const shortId = (id: string): string => (id.length <= 16 ? id : `${id.slice(0, 8)}…${id.slice(-3)}`);

/** Returns a count with the word for it, such as `1 message` or `3 messages`. */
export const formatMany = (count: number, word: string, words = `${word}s`): string =>
  `${formatCount(count)} ${count === 1 ? word : words}`;

/** Returns how a count differs from an earlier one: `+20 %`, `×3.5`, `as many` or `new`. */
export function compareCounts(count: number, before: number): string {
  if (before === 0) return count === 0 ? "as many" : "new";
  const share = count / before;
  if (share >= 2) return `×${short.format(share)}`;
  const percent = Math.round(100 * (share - 1));
  return percent === 0 ? "as many" : `${percent > 0 ? "+" : "−"}${Math.abs(percent)} %`;
}

/** Splits a URL into what is read first and the rest. A string that is not a URL is all host. */
export function splitUrl(url: string): { host: string; path: string } {
  const [, host = url, path = ""] = /^https?:\/\/([^/?#]*)(.*)$/s.exec(url) ?? [];
  return { host, path: path === "/" ? "" : path };
}

/** Returns the text of an error. */
export const toMessage = (error: unknown): string =>
  error instanceof Error ? error.message : "unknown error";

/** Returns a string of a form. A file counts as none. */
export function readField(given: FormData, name: string): string {
  const value = given.get(name);
  return typeof value === "string" ? value : "";
}

/** Returns headers or settings as text: one per line, with its name before a colon. */
export const writePairs = (pairs: Readonly<Record<string, string | readonly string[]>>): string =>
  Object.entries(pairs)
    .flatMap(([name, values]) => [values].flat().map((value) => `${name}: ${value}`))
    .join("\n");

/** Reads headers or settings, one per line. A name can have several lines. */
export function readPairs(text: string): Record<string, string[]> {
  const pairs: Record<string, string[]> = {};
  for (const line of text.split("\n").filter((one) => one.trim() !== "")) {
    const [, name = line, value = ""] = /^([^:]*):(.*)$/s.exec(line) ?? [];
    pairs[name.trim()] = [...(pairs[name.trim()] ?? []), value.trim()];
  }
  return pairs;
}
