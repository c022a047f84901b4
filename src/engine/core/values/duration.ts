import type { Millis } from "./basics.ts";
import { day, hour, minute, second } from "./time.ts";

/** The longest duration, far below the value at which whole milliseconds lose precision. */
const maxDuration: Millis = 100 * 365 * day;
/** The longest duration as `parseDuration` reads it. */
export const longestDuration = "100y";

/**
 * Longer texts are not parsed. A string that is longer than this has superfluous digits, as in `0000…01s`.
 */
const maxTextLength = 64;

const units: ReadonlyMap<string, Millis> = new Map([
  ["s", second],
  ["m", minute],
  ["h", hour],
  ["d", day],
  ["w", 7 * day],
  ["mo", 30 * day],
  ["y", 365 * day],
]);

/**
 * Parses a duration such as `50s` or `1d10h30m`: whole numbers, each with a unit (s, m, h, d, w, mo, y; `mo`
 * is 30 days, `y` is 365). Digits alone are seconds. Returns null if the text is malformed, exceeds 100
 * years, or has more than 64 characters.
 */
export function parseDuration(text: string): Millis | null {
  if (text.length > maxTextLength) return null;
  if (/^\d+$/.test(text)) return bounded(Number(text) * second);
  const items = matchItems(text, /(\d+)(mo|[smhdwy])/gy);
  if (items === null) return null;
  return bounded(
    items.reduce(
      (total, [, digits = "", unit = ""]) => total + Number(digits) * (units.get(unit) ?? Number.NaN),
      0,
    ),
  );
}

/** Returns a duration as `parseDuration` reads it, such as `1d12h`. It is rounded up to whole seconds. */
export function formatDuration(duration: Millis): string {
  let rest = Math.ceil(duration / second) * second;
  let text = "";
  for (const unit of ["d", "h", "m", "s"]) {
    const length = units.get(unit) ?? Number.NaN;
    const count = Math.floor(rest / length);
    rest -= count * length;
    if (count > 0) text += `${count}${unit}`;
  }
  return text === "" ? "0s" : text;
}

/** The units in nanoseconds. Both micro signs are included. */
const goUnits: ReadonlyMap<string, bigint> = new Map([
  ["ns", 1n],
  ["us", 1_000n],
  ["\u00b5s", 1_000n],
  ["\u03bcs", 1_000n],
  ["ms", 1_000_000n],
  ["s", 1_000_000_000n],
  ["m", 60_000_000_000n],
  ["h", 3_600_000_000_000n],
  ["d", 86_400_000_000_000n],
]);

/**
 * Parses a duration as Go prints it, such as `6m5s` or `1h0.5s`. The units are ns, us, µs, μs, ms, s, m and
 * h, and also d, which some clients send. Fractions of a nanosecond are dropped, as in Go. The result is
 * rounded up to milliseconds, so that nothing happens early. Returns null if the text is malformed, signed,
 * exceeds 100 years, or has more than 64 characters.
 */
export function parseGoDuration(text: string): Millis | null {
  if (text.length > maxTextLength) return null;
  if (text === "0") return 0;
  const items = matchItems(text, /(?=\.?\d)(\d*)(?:\.(\d*))?(ns|us|\u00b5s|\u03bcs|ms|[smhd])/gy);
  if (items === null) return null;
  const nanos = items.reduce(
    (total, [, whole = "", part = "", unit = ""]) => total + toNanoseconds(whole, part, unit),
    0n,
  );
  return bounded(Number((nanos + 999_999n) / 1_000_000n));
}

const toNanoseconds = (whole: string, part: string, unit: string): bigint =>
  (BigInt(whole + part) * (goUnits.get(unit) ?? 0n)) / 10n ** BigInt(part.length);

/**
 * Returns the items of a string from end to end; null if text is left over or there is no item. The pattern
 * must be sticky (`gy`).
 */
function matchItems(text: string, pattern: RegExp): RegExpExecArray[] | null {
  const items = [...text.matchAll(pattern)];
  const read = items.reduce((length, [item]) => length + item.length, 0);
  return read === text.length && items.length > 0 ? items : null;
}

const bounded = (duration: Millis): Millis | null => (duration <= maxDuration ? duration : null);
