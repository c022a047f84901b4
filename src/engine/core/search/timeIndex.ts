import type { Filter } from "./filter.ts";
import { maxFilterValues } from "./filter.ts";
import { readIdTime } from "../values/ids.ts";
import { fingerprint } from "../values/fingerprint.ts";
import type { StoredMessage } from "../model/message.ts";
import type { Millis } from "../values/basics.ts";
import type { TimeKeys } from "../model/tag.ts";
import { parseUrl } from "../values/url.ts";
import { memoize } from "../caches/memoize.ts";
import { day } from "../values/time.ts";

// Every message has a URL, a host, a path and usually a caller. Tags for these would cost every message
// several rows at its creation and at each log row. Instead, the time index records in which intervals of
// five seconds a URL occurred. A search for the URL reads only the log of these intervals, and not the whole
// log. See docs/decisions/0043.

/** A period of time, from `from` (inclusive) to `to` (exclusive). */
export type Span = { from: Millis; to: Millis };

/** The length of an interval. At 1,000 messages per second, an interval has 5,000 log rows to search. */
export const indexInterval: Millis = 5_000;

const toTimeKey = {
  url: (url: string) => `url:${fingerprint(url)}`,
  host: (host: string) => `host:${fingerprint(host)}`,
  path: (path: string) => `path:${fingerprint(path)}`,
  caller: (ip: string) => `caller:${fingerprint(ip)}`,
} as const;

/** Replaces the keys of an interval in which more different keys occurred than are recorded. */
const anyTimeKey = "any";

/** Most messages go to known URLs and come from known callers. */
const makeUrlTimeKeys = memoize((url) => {
  const parsed = parseUrl(url);
  return parsed === null
    ? toTimeKey.url(url)
    : [toTimeKey.url(url), toTimeKey.host(parsed.host), toTimeKey.path(parsed.pathname)].join(" ");
});
const makeCallerTimeKey = memoize((ip) => ` ${toTimeKey.caller(ip)}`);

/** Returns the time keys of a message. */
export const makeTimeIndexKeys = ({ url, callerIp }: Pick<StoredMessage, "url" | "callerIp">): TimeKeys =>
  makeUrlTimeKeys(url) + (callerIp === null ? "" : makeCallerTimeKey(callerIp));

/** Returns the start of the interval in which the row with this id was created. */
export const readIndexInterval = (id: string): Millis =>
  Math.floor(readIdTime(id) / indexInterval) * indexInterval;

/** Returns the number of a day, counted from 1970. */
export const toDayNumber = (time: Millis): number => Math.floor(time / day);
/** Returns the start of a day, by its number. */
export const startOfDay = (days: number): Millis => days * day;
/**
 * Returns the prefix of the ids of a day. All entries of a day are adjacent, so that they can be removed
 * together. Entries of earlier days sort before the prefix.
 */
export const dayPrefix = (days: number): string => `${String(days).padStart(6, "0")} `;
/** Returns the number of the day in the id of an entry. */
export const readTimeIndexDay = (id: string): number => Number(id.slice(0, id.indexOf(" ")));
/** Returns the prefix of the ids of a time key on a day. These ids are adjacent, in the order of time. */
export const timeIndexPrefix = (days: number, timeKey: string): string => `${dayPrefix(days)}${timeKey} `;
/** Returns a time in the form that ids have. */
export const formatIndexTime = (at: Millis): string => String(at).padStart(13, "0");
const toTimeIndexId = (timeKey: string, at: Millis): string =>
  `${timeIndexPrefix(toDayNumber(at), timeKey)}${formatIndexTime(at)}`;

/**
 * Returns the ids of the entries for time keys in the interval that begins at `at`. Without keys, returns the
 * id of the entry for any key.
 */
export const listTimeIndexIds = (timeKeys: TimeKeys | undefined, at: Millis): string[] =>
  (timeKeys ?? anyTimeKey).split(" ").map((timeKey) => toTimeIndexId(timeKey, at));

/**
 * Returns groups of time keys, one group for each part of a filter. In the interval of a matching row, at
 * least one key of every group occurred. A part of the filter has no group if it is absent, or if it has too
 * many values to look up one by one.
 */
export function listWantedTimeKeys({ urls, hosts, paths, callerIps }: Filter): string[][] {
  const keyLists = [
    urls?.map(toTimeKey.url),
    hosts?.map((host) => toTimeKey.host(host.toLowerCase())),
    paths?.map(toTimeKey.path),
    callerIps?.map(toTimeKey.caller),
  ];
  return keyLists.flatMap((timeKeys) =>
    timeKeys && timeKeys.length <= maxFilterValues ? [[...new Set(timeKeys), anyTimeKey]] : [],
  );
}

/**
 * Returns a test of whether a message may match the parts of a filter that time keys are about. It knows the
 * message by its time keys alone, so the message need not be read. Without such parts, every message may
 * match.
 */
export function createTimeKeyTest(filter: Filter): (timeKeys: TimeKeys) => boolean {
  const groups = listWantedTimeKeys(filter).map((group) => new Set(group));
  if (groups.length === 0) return () => true;
  return (timeKeys) => {
    const own = timeKeys.split(" ");
    return groups.every((group) => own.some((key) => group.has(key)));
  };
}
