import type { Filter } from "./filter.ts";
import { mostValues } from "./filter.ts";
import { birthOf } from "../values/ids.ts";
import { fingerprint } from "../values/fingerprint.ts";
import type { Envelope, Millis, Sights } from "../model/message.ts";
import { parsedUrl } from "../values/url.ts";
import { remembered } from "../values/remembered.ts";

// What all messages have, a URL, a host, a path and mostly a caller, is no mark of theirs: each would pay for rows of its own, when it
// is born and whenever something is told of it. Instead the time is marked. A sighting says that within five seconds something was told
// of a URL; whoever looks for that URL goes through those five seconds, and not through the whole log. See docs/decisions/0043.

/** Time from `from` to before `to`. */
export type Span = { from: Millis; to: Millis };

/** The time that one sighting stands for. At a thousand messages a second that is five thousand lines to go through. */
export const glance: Millis = 5_000;
const day: Millis = 24 * 60 * 60 * 1_000;

const sightOf = {
  url: (url: string) => `url:${fingerprint(url)}`,
  host: (host: string) => `host:${fingerprint(host)}`,
  path: (path: string) => `path:${fingerprint(path)}`,
  caller: (ip: string) => `caller:${fingerprint(ip)}`,
} as const;

/** Something was told, and it is not noted of which URL: too many were told of in these five seconds. */
const anything = "any";

/** Most messages go where others went, from where others came. */
const ofUrl = remembered((url) => {
  const parsed = parsedUrl(url);
  return parsed === null ? sightOf.url(url) : [sightOf.url(url), sightOf.host(parsed.host), sightOf.path(parsed.pathname)].join(" ");
});
const ofCaller = remembered((ip) => ` ${sightOf.caller(ip)}`);

/** What there is to be sighted of a message. */
export const sightsOf = ({ url, callerIp }: Pick<Envelope, "url" | "callerIp">): Sights =>
  ofUrl(url) + (callerIp === null ? "" : ofCaller(callerIp));

/** When the five seconds begin in which something with this id was told. */
export const glanceOf = (id: string): Millis => Math.floor(birthOf(id) / glance) * glance;

/** Days are counted from 1970. */
export const dayOf = (time: Millis): number => Math.floor(time / day);
export const startOfDay = (days: number): Millis => days * day;
/** All sightings of a day lie together, so that they go together. Those of earlier days come before this. */
export const ofDay = (days: number): string => `${String(days).padStart(6, "0")} `;
export const dayOfSighting = (id: string): number => Number(id.slice(0, id.indexOf(" ")));
/** Within a day all sightings of the same lie together, in the order of time. */
export const sightingPrefix = (days: number, sight: string): string => `${ofDay(days)}${sight} `;
/** A time, as it stands in them. */
export const writtenTime = (at: Millis): string => String(at).padStart(13, "0");
const sightingId = (sight: string, at: Millis): string => `${sightingPrefix(dayOf(at), sight)}${writtenTime(at)}`;

/** The sightings of what is told within the five seconds that begin then. Not given: it is not noted of what. */
export const sightingsAt = (sights: Sights | undefined, at: Millis): string[] =>
  (sights ?? anything).split(" ").map((sight) => sightingId(sight, at));

/**
 * For each part of a filter what must have been sighted, any of it, when something was told that passes. None: that may have been at any
 * time, or there is too much to go through it one by one.
 */
export function sightsWanted({ urls, hosts, paths, callerIps }: Filter): string[][] {
  const wanted = [
    urls?.map(sightOf.url),
    hosts?.map((host) => sightOf.host(host.toLowerCase())),
    paths?.map(sightOf.path),
    callerIps?.map(sightOf.caller),
  ];
  return wanted.flatMap((sights) => (sights && sights.length <= mostValues ? [[...new Set(sights), anything]] : []));
}
