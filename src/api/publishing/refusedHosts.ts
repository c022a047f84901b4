import type { CallbackSettings, Letter } from "../../core/model/message.ts";
import { parsedUrl } from "../../core/values/url.ts";
import type { PublishResult } from "../../core/commands/publish.ts";
import type { RefusedHost } from "../../core/values/refusedHost.ts";
import type { Incoming, Parts } from "../route/route.ts";

type Asked = { incoming: Pick<Incoming, "proof">; parts: Pick<Parts, "refusedHost"> };
type Told = Pick<Letter, "url" | "group" | "callback" | "failureCallback">;

/** A sentence names at most five hosts, with at most 100 characters of each. */
const mostNamed = 5;
const longestName = 100;

/**
 * Returns the warnings for destinations that the server refuses to deliver to, callbacks included. Messages that
 * were not accepted are skipped. No warning contains an address that a name server has said. For a token with its own rights, it contains no
 * URL that the request did not contain.
 */
export function refusedHostWarnings(asked: Asked, letters: readonly Told[], results: readonly PublishResult[]): string[] {
  return warningsOf(
    asked,
    letters.flatMap((letter, at) => destinationsOf(letter, results[at])),
  );
}

function destinationsOf(letter: Told, result: PublishResult | undefined): Destination[] {
  if (!result || "refused" in result) return [];
  return destinationsOfLetter(letter, "each" in result ? result.each.flatMap(({ url }) => url ?? []) : []);
}

/** A URL that is delivered to. `group`: the URL group whose endpoints or default headers it can be from. */
type Destination = { url: string; group: string | null };

/** Returns all URLs that a message is delivered to, callbacks included. `endpoints`: those of its URL group. */
export function destinationsOfLetter({ url, group, ...letter }: Told, endpoints: readonly string[]): Destination[] {
  const own = group === null ? [url] : endpoints;
  return [...own, ...callbacksOf(letter)].map((one) => ({ url: one, group }));
}

function callbacksOf({ callback, failureCallback }: Pick<CallbackSettings, "callback" | "failureCallback">): string[] {
  const found: string[] = [];
  for (const one of [callback, failureCallback]) if (one) found.push(one.url, ...callbacksOf(one));
  return found;
}

/** Returns the warnings for the destinations that the server refuses to deliver to: each host once. */
export function warningsOf({ incoming, parts: { refusedHost } }: Asked, destinations: readonly Destination[]): string[] {
  if (!refusedHost) return [];
  const isBound = typeof incoming.proof?.right === "object";
  const looked = new Set<string>();
  const hosts = new Map<string, RefusedHost>();
  const groups = new Set<string>();
  for (const { url, group } of destinations) {
    const host = parsedUrl(url)?.hostname ?? "";
    const key = isBound ? `${host} ${group ?? ""}` : host;
    if (looked.has(key)) continue;
    looked.add(key);
    const refused = refusedHost(host);
    if (!refused) continue;
    if (isBound && group !== null) groups.add(group);
    else if (!isBound || !refused.isResolved) hosts.set(host, refused);
  }
  return [...ofGroups([...groups]), ...ofHosts([...hosts])];
}

const ofGroups = (groups: readonly string[]): string[] =>
  groups.length === 0 ? [] : [`destination: an endpoint of the URL group ${listed(groups)} is not public and is refused`];

function ofHosts(hosts: readonly (readonly [host: string, refused: RefusedHost])[]): string[] {
  const advised = hosts.filter(([, { allow, isResolved }]) => allow !== null && !isResolved);
  const others = hosts.filter(([, { allow, isResolved }]) => allow === null && !isResolved);
  const resolved = hosts.filter(([, { isResolved }]) => isResolved);
  const allow = [...new Set(advised.slice(0, mostNamed).map(([, refused]) => refused.allow))].join(",");
  return [
    ...(advised.length === 0 ? [] : [`destination: ${named(advised)} not public and refused: allow with WAYPOST_EGRESS_ALLOW=${allow}`]),
    ...(others.length === 0 ? [] : [`destination: ${named(others)} refused, as a link-local or metadata address`]),
    ...(resolved.length === 0
      ? []
      : [`destination: ${named(resolved)} not public and refused: allow the address with WAYPOST_EGRESS_ALLOW`]),
  ];
}

/** `10.0.0.1 is`, or `10.0.0.1, app.internal and 3 more are`. */
const named = (hosts: readonly (readonly [host: string, refused: RefusedHost])[]): string =>
  `${listed(hosts.map(([host]) => host))} ${hosts.length === 1 ? "is" : "are"}`;

function listed(names: readonly string[]): string {
  const more = names.length > mostNamed ? ` and ${names.length - mostNamed} more` : "";
  return `${names.slice(0, mostNamed).map(shortened).join(", ")}${more}`;
}

const shortened = (name: string): string => (name.length > longestName ? `${name.slice(0, longestName)}...` : name);
