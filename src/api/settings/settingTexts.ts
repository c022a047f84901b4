import { formatDuration, longestDuration, parseDuration } from "../../engine/core/values/duration.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import type { FlowControl } from "../../engine/core/model/sendSettings.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { memoize } from "../../engine/core/caches/memoize.ts";
import { day, second } from "../../engine/core/values/time.ts";
import { assertUrl } from "../http/target.ts";

// The values that the texts of settings mean. All functions throw `Refusal` for any other text.

/**
 * Throws `Refusal` for the text of a setting. The message shows at most the first 100 characters of the text.
 */
export function refuseText(text: string, problem: string): never {
  throw new Refusal(
    "invalid",
    `${JSON.stringify(text.length > 100 ? `${text.slice(0, 100)}…` : text)} ${problem}`,
  );
}

/**
 * Reports whether a string can be a flow-control key: 1 to `limits.nameLength` characters. Control characters
 * and lone surrogates are not allowed, because a database could not store them unchanged.
 */
export const isValidKey = (text: string): boolean =>
  text !== "" && text.length <= limits.nameLength && !/\p{Cc}|\p{Surrogate}/u.test(text);

/** Returns a string that is a valid flow-control key. Throws `Refusal` for any other text. */
export function parseKey(text: string): string {
  if (text === "") return refuseText(text, "is empty");
  return isValidKey(checkNameLength(text))
    ? text
    : refuseText(text, "contains control characters or is not valid Unicode");
}

/** Returns a duration in milliseconds. */
export function readDuration(text: string): Millis {
  const example = /^\d+$/.test(text)
    ? "a number alone is in seconds; write milliseconds as 50ms"
    : "use a value such as 30s, 1.5h or 50ms";
  return (
    parseDuration(text) ?? refuseText(text, `is not a duration of at most ${longestDuration}; ${example}`)
  );
}

/** Returns a deduplication window in milliseconds. */
export function readWindow(text: string): Millis {
  const window = readDuration(text);
  if (window > 0 && window <= limits.deduplicationWindow) return window;
  return refuseText(text, `is not between 1ms and ${limits.deduplicationWindow / day}d`);
}

/** Returns the time in which a receiver must report an outcome, in milliseconds. */
export function readAckTimeout(text: string): Millis {
  const timeout = readDuration(text);
  return isAckTimeout(text)
    ? timeout
    : refuseText(text, `is not between 1s and ${formatDuration(limits.ackTimeout)}`);
}

/** Reports whether a string is a duration for which a receiver may hold an attempt. */
export function isAckTimeout(text: string): boolean {
  const timeout = parseDuration(text);
  return timeout !== null && timeout >= second && timeout <= limits.ackTimeout;
}

/** Reads a Unix time in seconds, up to the year 9999. Fractions are rounded to a second, as clients do. */
export function readSeconds(text: string): Millis {
  const seconds = /^\d{1,12}(\.\d{1,20})?$/.test(text) ? Math.round(Number(text)) : Number.NaN;
  return seconds <= 253_402_300_799 ? seconds * 1000 : refuseText(text, "is not a Unix time in seconds");
}

/**
 * Reads limits such as `parallelism=3, rate=5, period=1m`; each is optional, in any order. Cached, because
 * every message of a key has them.
 */
export const parseFlowControlValue = memoize((text): Readonly<Omit<FlowControl, "key">> => {
  const found = new Map<string, number>();
  for (const piece of text.split(",")) {
    const [, name = "", value = ""] =
      /^\s*(\w+)\s*=\s*([\w.]+)\s*$/.exec(piece) ?? refuseText(text, expectedLimits);
    if (found.has(name)) refuseText(text, `has ${name} twice`);
    if (name === "period")
      found.set(
        name,
        parseDuration(value) || refuseText(text, `has a period that is not a duration from ${periods}`),
      );
    else if (name !== "parallelism" && name !== "rate") refuseText(text, expectedLimits);
    else
      found.set(
        name,
        parseCount(value) ?? refuseText(text, `has a ${name} that is not a whole number of 1 or more`),
      );
  }
  return {
    parallelism: found.get("parallelism") ?? null,
    rate: found.get("rate") ?? null,
    period: found.get("period") ?? null,
  };
});

const periods = `1ms to ${formatDuration(limits.period)}`;

const parseCount = (text: string): number | null => (/^[1-9]\d{0,11}$/.test(text) ? Number(text) : null);

const expectedLimits = "is invalid; use parallelism=3, rate=5, period=1m (each is optional)";

/** Reads `true` or `false` in any case, because Python writes `True`. Throws `Refusal`. */
export function readBoolean(text: string): boolean {
  const lower = text.toLowerCase();
  return lower === "true" || (lower === "false" ? false : refuseText(text, "is neither true nor false"));
}

/** Returns a URL that can be called. Throws `Refusal` for any other text. */
export function readUrl(text: string): string {
  assertUrl("", text);
  return text;
}

/** Returns labels that were separated by commas, without duplicates. */
export function readLabels(text: string): string[] {
  const labels = text
    .split(",")
    .map((label) => label.trim())
    .filter((label) => label !== "");
  if (labels.length > limits.labels)
    throw new Refusal("invalid", `has ${labels.length} labels, the limit is ${limits.labels}`);
  return [...new Set(labels.map(checkNameLength))];
}

/** Returns the text if it is not longer than a name may be. */
export function checkNameLength(text: string): string {
  return text.length <= limits.nameLength
    ? text
    : refuseText(text, `is longer than ${limits.nameLength} characters`);
}
