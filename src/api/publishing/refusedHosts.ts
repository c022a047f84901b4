import { z } from "zod";
import { findPulledOrigin } from "../../engine/core/accounts/pulledOrigins.ts";
import type { CallbackSettings } from "../../engine/core/model/sendSettings.ts";
import type { MessageInput } from "../../engine/core/model/message.ts";
import { parseUrl } from "../../engine/core/values/url.ts";
import type { PublishResult } from "../../engine/core/commands/publish.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import type { RefusedHost } from "../../engine/core/values/refusedHost.ts";
import { warningHeader } from "../http/warnings.ts";
import type { IncomingRequest, RouteContext } from "../route/route.ts";

type WarningContext = {
  incoming: Pick<IncomingRequest, "proof">;
  context: Pick<RouteContext, "findHostRefusal" | "onRefusedHost">;
};
type DeliveredUrls = Pick<MessageInput, "url" | "group" | "callback" | "failureCallback">;

/** The maximum number of hosts that one warning names, and the maximum length of each name. */
const maxNamed = 5;
const longestName = 100;

/**
 * Returns the warnings for destinations that the server refuses to deliver to, callbacks included. Messages
 * that were not accepted are skipped. No warning contains an address that a name server returned. If the
 * token has restricted rights, a warning contains only URLs that the request contained.
 */
export function makePublishWarnings(
  warningContext: WarningContext,
  inputs: readonly DeliveredUrls[],
  results: readonly PublishResult[],
): string[] {
  const { findHostRefusal } = warningContext.context;
  if (!findHostRefusal || inputs.every((input) => hasOneHost(input) && !findHostRefusal(readHost(input))))
    return [];
  return makeHostWarnings(
    warningContext,
    inputs.flatMap((input, at) => listResultDestinations(input, results[at])),
  );
}

/**
 * Returns a function that returns the warnings of one message as a part of its response. For a URL group, it
 * is called with the URL of each endpoint. `warnings` are those of the whole request. If there are none, no
 * message has any.
 */
export function createMessageWarnings(
  warningContext: WarningContext,
  warnings: readonly string[],
): MessageWarnings {
  if (warnings.length === 0) return () => noWarnings;
  return (input, url) => {
    const own = makeHostWarnings(warningContext, listDestinations({ ...input, url }, [url]));
    return own.length === 0 ? noWarnings : { warnings: own };
  };
}

/** Returns the field `warnings` of the response for one message, or no field. */
export type MessageWarnings = (input: DeliveredUrls, url: string) => { warnings?: string[] };
const noWarnings = {};

/** The text of the field `warnings` in the reference. */
export const warningsAbout =
  "Present if the server refuses to deliver to the destination, or to a callback, at present: its address " +
  "is not public. The message was accepted, and fails unless the operator allows the address or the name.";

/** The field `warnings` of what keeps destinations for later, such as a schedule, in the reference. */
export const warningsField = {
  warnings: z
    .array(z.string())
    .optional()
    .describe(
      "Present if the server refuses to deliver to a destination or callback of the request at " +
        "present: its address is not public. Messages to it are accepted, and fail unless the operator " +
        "allows the address or the name.",
    ),
};

/** Returns the parts of a response that has these warnings: a header, and a field unless there are none. */
export const showWarnings = (warnings: readonly string[]) => ({
  headers: warningHeader(warnings),
  field: warnings.length === 0 ? {} : { warnings },
});

/** Reports whether a message is delivered to one URL and has no callbacks, like most messages. */
const hasOneHost = ({ group, callback, failureCallback }: DeliveredUrls): boolean =>
  group === null && callback === null && failureCallback === null;

const readHost = ({ url }: Pick<DeliveredUrls, "url">): string => parseUrl(url)?.hostname ?? "";

/** Returns all URLs that a stored message is delivered to, or none if it was refused. */
export function listResultDestinations(
  input: DeliveredUrls,
  result: PublishResult | undefined,
): Destination[] {
  if (!result || "refused" in result) return [];
  return listDestinations(input, "each" in result ? result.each.flatMap(({ url }) => url ?? []) : []);
}

/**
 * A URL that receives deliveries. `group`: the URL group whose endpoints or default headers may contain it.
 */
export type Destination = { url: string; group: string | null };

/**
 * Returns all URLs that a message is delivered to, callbacks included. `endpoints`: the URLs of its URL
 * group.
 */
export function listDestinations(
  { url, group, ...input }: DeliveredUrls,
  endpoints: readonly string[],
): Destination[] {
  const own = group === null ? [url] : endpoints;
  return [...own, ...listNestedCallbacks(input)].map((one) => ({ url: one, group }));
}

function listNestedCallbacks({
  callback,
  failureCallback,
}: Pick<CallbackSettings, "callback" | "failureCallback">): string[] {
  const found: string[] = [];
  for (const one of [callback, failureCallback]) if (one) found.push(one.url, ...listNestedCallbacks(one));
  return found;
}

/**
 * Returns the warnings for destinations that the server refuses to deliver to. Each host is named once. To a
 * pulled origin the server sends nothing.
 */
export function makeHostWarnings(
  { incoming: { proof }, context: { findHostRefusal, onRefusedHost } }: WarningContext,
  destinations: readonly Destination[],
): string[] {
  if (!findHostRefusal) return [];
  const isBound = typeof proof?.right === "object";
  const checked = new Set<string>();
  const hosts = new Map<string, RefusedHost>();
  const groups = new Set<string>();
  for (const { url, group } of destinations) {
    const host = readHost({ url });
    const key = isBound ? `${host} ${group ?? ""}` : host;
    if (checked.has(key)) continue;
    checked.add(key);
    const refused = findHostRefusal(host);
    const place = parseUrl(url)?.host ?? host;
    if (!refused || (proof && findPulledOrigin(proof.account, place) !== undefined)) continue;
    if (proof) onRefusedHost?.(proof.account.id, place, refused);
    if (isBound && group !== null) groups.add(group);
    else if (!isBound || !refused.isResolved) hosts.set(host, refused);
  }
  return [...formatGroupWarnings([...groups]), ...formatHostWarnings([...hosts])];
}

/** Notes the refused hosts of a message, for the conditions of its account. No response shows them. */
export function noteRefusedHosts(
  { findHostRefusal, onRefusedHost }: WarningContext["context"],
  account: AccountId,
  destinations: readonly Destination[],
): void {
  for (const { url } of destinations) {
    const host = readHost({ url });
    const refused = findHostRefusal?.(host);
    if (refused) onRefusedHost?.(account, parseUrl(url)?.host ?? host, refused);
  }
}

/** Returns why a host is refused, as a part of a condition. */
export const describeRefusal = ({ allow, isResolved }: RefusedHost): string =>
  allow !== null
    ? `its address is not public; allow it with WAYPOST_EGRESS_ALLOW=${allow}` +
      (isResolved ? loopbackAdvice : "")
    : isResolved
      ? "its address is not public"
      : "it is a link-local or metadata address";

/** Added to advice to allow a name. It is the same for every address, because the address is not shown. */
const loopbackAdvice = "; a loopback address needs its own entry";

const formatGroupWarnings = (groups: readonly string[]): string[] =>
  groups.length === 0
    ? []
    : [`destination: an endpoint of the URL group ${formatNames(groups)} is not public and is refused`];

function formatHostWarnings(hosts: readonly (readonly [host: string, refused: RefusedHost])[]): string[] {
  const advised = hosts.filter(([, { allow }]) => allow !== null);
  const others = hosts.filter(([, { allow, isResolved }]) => allow === null && !isResolved);
  const resolved = hosts.filter(([, { allow, isResolved }]) => allow === null && isResolved);
  const allow = [...new Set(advised.slice(0, maxNamed).map(([, refused]) => refused.allow))].join(",");
  return [
    ...(advised.length === 0
      ? []
      : [
          `destination: ${formatHosts(advised)} not public and refused: ` +
            `allow with WAYPOST_EGRESS_ALLOW=${allow}` +
            (advised.some(([, { isResolved }]) => isResolved) ? loopbackAdvice : ""),
        ]),
    ...(others.length === 0
      ? []
      : [`destination: ${formatHosts(others)} refused, as a link-local or metadata address`]),
    ...(resolved.length === 0
      ? []
      : [
          `destination: ${formatHosts(resolved)} not public and refused: ` +
            "allow the address with WAYPOST_EGRESS_ALLOW",
        ]),
  ];
}

/** Returns hosts with a verb: `10.0.0.1 is`, or `10.0.0.1, app.internal and 3 more are`. */
const formatHosts = (hosts: readonly (readonly [host: string, refused: RefusedHost])[]): string =>
  `${formatNames(hosts.map(([host]) => host))} ${hosts.length === 1 ? "is" : "are"}`;

function formatNames(names: readonly string[]): string {
  const more = names.length > maxNamed ? ` and ${names.length - maxNamed} more` : "";
  return `${names.slice(0, maxNamed).map(shortenName).join(", ")}${more}`;
}

const shortenName = (name: string): string =>
  name.length > longestName ? `${name.slice(0, longestName)}...` : name;
