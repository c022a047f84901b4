import type { IdKind, Millis } from "./basics.ts";

/** Base 58 in ASCII order, so that texts of equal length sort like the numbers they represent. */
const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

const digits: ReadonlyMap<number, number> = new Map(
  [...alphabet].map((letter, value) => [letter.charCodeAt(0), value]),
);

/** The two characters of each number below 58². */
const pairs = Array.from(
  { length: 58 ** 2 },
  (_none, value) => `${alphabet[Math.floor(value / 58)]}${alphabet[value % 58]}`,
);

/**
 * Returns a number in base 58. Each step computes two characters, because a division takes longer than a
 * look-up.
 */
function base58(value: number, width: number): string {
  if (width === 1) return alphabet[value % 58] ?? "";
  const rest = width === 2 ? "" : base58(Math.floor(value / 58 ** 2), width - 2);
  return rest + pairs[value % 58 ** 2];
}

/** The last time that an id can represent in order, in the year 2286. */
export const lastIdTime: Millis = 9_999_999_999_999;

/**
 * Returns the smallest id of a kind that can be created at or after `time`. Scans by time begin there. A time
 * after `lastIdTime` counts as `lastIdTime`, because a longer number would sort before the ids of today.
 */
export function firstIdAt(kind: IdKind, time: Millis): string {
  const at = Math.min(time, lastIdTime);
  if (kind === "log" || kind === "dlq") return `${padNumber(at, 13)}-`;
  return `${kind}_${base58(Math.max(0, at), 8)}`;
}

/**
 * Returns when an id was created. The result never decreases from one id to the next of the same generator.
 */
export function readIdTime(id: string): Millis {
  const before = id.indexOf("_");
  if (before < 0) return Number(id.slice(0, 13));
  let time = 0;
  const start = before + 1;
  for (let at = start; at < start + 8 && at < id.length; at++)
    time = time * 58 + (digits.get(id.charCodeAt(at)) ?? -1);
  return time;
}

/**
 * Reports whether a string may be an id. Other texts must not reach the database: they are not ids, and some
 * databases reject them in queries.
 */
export const isId = (text: string): boolean => /^[\w-]{1,100}$/.test(text);

/** Reports whether a string may be the id of a dead letter. */
export const isDlqId = (text: string): boolean => /^\d{13}-\d{1,12}$/.test(text);

/** Reports whether a string may be the id of an entry of the audit log. */
export const isAuditId = (text: string): boolean => /^aud_\w{1,40}$/.test(text);

function padNumber(value: number, width: number): string {
  const whole = Math.max(0, Math.floor(value));
  const overflow = 10 ** width;
  return whole < overflow ? String(overflow + whole).slice(1) : String(whole);
}

/**
 * The number of ids that a generator issues per millisecond. If more are needed, it uses the next millisecond
 * early.
 */
const idsPerMillisecond = 10_000;

/**
 * Creates a generator of ids that sort by creation: time, counter, randomness. A generator never goes back in
 * time, even if its clock does.
 *
 * - `log` and `dlq` are positions: `<unix ms>-<sequence>` of fixed width, as clients know them.
 * - `sig` (a signing key) is a secret, so it is all random.
 * - Other ids are their kind, 8 characters of time, 3 of counter and 9 of randomness (52 bits).
 */
export function createIdGenerator(random: () => number): (kind: IdKind, now: Millis) => string {
  let lastTime = 0;
  let counter = 0;
  // The prefix of the current millisecond is kept, because most ids are created in a millisecond that already
  // has ids.
  let timePrefix = { at: lastTime, padded: padNumber(lastTime, 13), base58: base58(lastTime, 8) };
  const randomBelow = (below: number): number => Math.floor(random() * below);
  return (kind, now) => {
    if (kind === "sig") return `sig_${Array.from({ length: 28 }, () => alphabet[randomBelow(58)]).join("")}`;
    if (now > lastTime) {
      lastTime = now;
      counter = 0;
    } else if (++counter === idsPerMillisecond) {
      lastTime++;
      counter = 0;
    }
    if (timePrefix.at !== lastTime)
      timePrefix = { at: lastTime, padded: padNumber(lastTime, 13), base58: base58(lastTime, 8) };
    if (kind === "log" || kind === "dlq")
      return `${timePrefix.padded}-${padNumber(counter * 100_000 + randomBelow(100_000), 9)}`;
    return `${kind}_${timePrefix.base58}${base58(counter, 3)}${base58(randomBelow(58 ** 9), 9)}`;
  };
}
