import type { Filter } from "./filter.ts";
import { maxFilterValues } from "./filter.ts";
import { readIdTime } from "../values/ids.ts";
import { fingerprint } from "../values/fingerprint.ts";
import type { StoredMessage, Millis, TimeKeys } from "../model/message.ts";
import { parseUrl } from "../values/url.ts";
import { memoize } from "../values/memoize.ts";
import { day } from "../values/time.ts";

// What all messages have, a URL, a host, a path and mostly a caller, is no mark of theirs: each would pay for rows of its own, when it
// is born and whenever something is told of it. Instead the time is marked. A sighting says that within five seconds something was told
// of a URL; whoever looks for that URL goes through those five seconds, and not through the whole log. See docs/decisions/0043.

/** Time from `from` to before `to`. */
export type Span = { from: Millis; to: Millis };

/** The time that one sighting stands for. At a thousand messages a second that is five thousand lines to go through. */
export const indexInterval: Millis = 5_000;

const toTimeKey = {
  url: (url: string) => `url:${fingerprint(url)}`,
  host: (host: string) => `host:${fingerprint(host)}`,
  path: (path: string) => `path:${fingerprint(path)}`,
  caller: (ip: string) => `caller:${fingerprint(ip)}`,
} as const;

/** Something was told, and it is not noted of which URL: too many were told of in these five seconds. */
const anyTimeKey = "any";

/** Most messages go where others went, from where others came. */
const makeUrlTimeKeys = memoize((url) => {
  const parsed = parseUrl(url);
  return parsed === null
    ? toTimeKey.url(url)
    : [toTimeKey.url(url), toTimeKey.host(parsed.host), toTimeKey.path(parsed.pathname)].join(" ");
});
const makeCallerTimeKey = memoize((ip) => ` ${toTimeKey.caller(ip)}`);

/** What there is to be sighted of a message. */
export const makeTimeIndexKeys = ({ url, callerIp }: Pick<StoredMessage, "url" | "callerIp">): TimeKeys =>
  makeUrlTimeKeys(url) + (callerIp === null ? "" : makeCallerTimeKey(callerIp));

/** When the five seconds begin in which something with this id was told. */
export const readIndexInterval = (id: string): Millis => Math.floor(readIdTime(id) / indexInterval) * indexInterval;

/** Days are counted from 1970. */
export const toDayNumber = (time: Millis): number => Math.floor(time / day);
export const startOfDay = (days: number): Millis => days * day;
/** All sightings of a day lie together, so that they go together. Those of earlier days come before this. */
export const dayPrefix = (days: number): string => `${String(days).padStart(6, "0")} `;
export const readTimeIndexDay = (id: string): number => Number(id.slice(0, id.indexOf(" ")));
/** Within a day all sightings of the same lie together, in the order of time. */
export const timeIndexPrefix = (days: number, timeKey: string): string => `${dayPrefix(days)}${timeKey} `;
/** A time, as it stands in them. */
export const formatIndexTime = (at: Millis): string => String(at).padStart(13, "0");
const toTimeIndexId = (timeKey: string, at: Millis): string => `${timeIndexPrefix(toDayNumber(at), timeKey)}${formatIndexTime(at)}`;

/** The sightings of what is told within the five seconds that begin then. Not given: it is not noted of what. */
export const listTimeIndexIds = (timeKeys: TimeKeys | undefined, at: Millis): string[] =>
  (timeKeys ?? anyTimeKey).split(" ").map((timeKey) => toTimeIndexId(timeKey, at));

/**
 * For each part of a filter what must have been sighted, any of it, when something was told that passes. None: that may have been at any
 * time, or there is too much to go through it one by one.
 */
export function listWantedTimeKeys({ urls, hosts, paths, callerIps }: Filter): string[][] {
  const wanted = [
    urls?.map(toTimeKey.url),
    hosts?.map((host) => toTimeKey.host(host.toLowerCase())),
    paths?.map(toTimeKey.path),
    callerIps?.map(toTimeKey.caller),
  ];
  return wanted.flatMap((timeKeys) => (timeKeys && timeKeys.length <= maxFilterValues ? [[...new Set(timeKeys), anyTimeKey]] : []));
}
