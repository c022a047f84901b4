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

/** The units in nanoseconds. Both micro signs are included. */
const units: ReadonlyMap<string, bigint> = new Map([
  ["ns", 1n],
  ["us", 1_000n],
  ["\u00b5s", 1_000n],
  ["\u03bcs", 1_000n],
  ["ms", 1_000_000n],
  ...(
    [
      ["s", second],
      ["m", minute],
      ["h", hour],
      ["d", day],
      ["w", 7 * day],
      ["mo", 30 * day],
      ["y", 365 * day],
    ] as const
  ).map(([unit, millis]) => [unit, BigInt(millis) * 1_000_000n] as const),
]);

/**
 * Parses a duration such as `50s`, `1d10h30m`, `50ms` or `1.5h`: numbers, each with a unit (ms, s, m, h, d,
 * w, mo, y; `mo` is 30 days, `y` is 365). The smaller units of Go, ns and us, are accepted too. A number
 * alone is seconds. The result is rounded up to milliseconds, so that nothing happens early. Returns null if
 * the text is malformed, exceeds 100 years, or has more than 64 characters.
 */
export function parseDuration(text: string): Millis | null {
  if (text.length > maxTextLength) return null;
  const items = matchItems(
    /^\d+(\.\d+)?$/.test(text) ? `${text}s` : text,
    /(?=\.?\d)(\d*)(?:\.(\d*))?(ns|us|\u00b5s|\u03bcs|ms|mo|[smhdwy])/gy,
  );
  if (items === null) return null;
  const nanos = items.reduce(
    (total, [, whole = "", part = "", unit = ""]) => total + toNanoseconds(whole, part, unit),
    0n,
  );
  return bounded(Number((nanos + 999_999n) / 1_000_000n));
}

/** Returns a duration as `parseDuration` reads it, such as `1d12h` or `1s500ms`. */
export function formatDuration(duration: Millis): string {
  let rest = duration;
  let text = "";
  for (const [unit, length] of formattedUnits) {
    const count = Math.floor(rest / length);
    rest -= count * length;
    if (count > 0) text += `${count}${unit}`;
  }
  return text === "" ? "0s" : text;
}

const formattedUnits = [
  ["d", day],
  ["h", hour],
  ["m", minute],
  ["s", second],
  ["ms", 1],
] as const;

const toNanoseconds = (whole: string, part: string, unit: string): bigint =>
  (BigInt(whole + part) * (units.get(unit) ?? 0n)) / 10n ** BigInt(part.length);

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
