import type { Account } from "../model/account.ts";
import { Refusal, throwIfRefused } from "../values/errors.ts";
import { parseUrl } from "../values/url.ts";
import type { Refused } from "../values/errors.ts";

// The hosts that an account may send to. The operator sets them. Without a list, every host is allowed.

/** The largest number of hosts in a list. */
export const maxAllowedHosts = 200;

const hostHelp = "use a host such as api.example.com, or *.example.com for all its subdomains";

/**
 * Returns the hosts in the form that URLs have, each once. Throws `Refusal` if one of them is not a host, or
 * if there are too many or none.
 */
export function normalizeAllowedHosts(hosts: readonly string[]): string[] {
  if (hosts.length === 0)
    throw new Refusal("invalid", "allowedHosts: is empty; give hosts, or null to allow every host");
  if (hosts.length > maxAllowedHosts)
    throw new Refusal(
      "invalid",
      `allowedHosts: ${hosts.length} exceeds the limit of ${maxAllowedHosts}; a host can begin with "*."`,
    );
  return [...new Set(hosts.map(normalizeHost))];
}

function normalizeHost(text: string): string {
  const [, wildcard = "", host = ""] = /^(\*\.)?([^/?#@\\*\s]{1,255})$/.exec(text) ?? [];
  const url = parseUrl(`http://${host}/`);
  const isName = url !== null && !/^[\d.]+$|\]$/.test(url.hostname);
  if (!url || url.host !== url.hostname || (wildcard !== "" && !(isName && url.hostname.includes("."))))
    throw new Refusal(
      "invalid",
      `allowedHosts: ${JSON.stringify(text.slice(0, 100))} is not a host without a port; ${hostHelp}`,
    );
  return `${wildcard}${url.hostname}`;
}

/** Reports whether a list of allowed hosts contains the host of a URL. */
function isAllowed(hosts: readonly string[], url: string): boolean {
  const hostname = parseUrl(url)?.hostname;
  // A URL that cannot be parsed is never requested.
  if (hostname === undefined) return true;
  return hosts.some((host) => (host.startsWith("*.") ? hostname.endsWith(host.slice(1)) : hostname === host));
}

/** Reports whether an account may send to a URL. */
export const maySendTo = ({ allowedHosts }: Pick<Account, "allowedHosts">, url: string): boolean =>
  !allowedHosts || isAllowed(allowedHosts, url);

/** The maximum number of allowed hosts that an error names. */
const maxNamed = 5;

/**
 * Returns a refusal if an account may not send to one of the URLs, or null. `group` is the URL group that the
 * URLs are endpoints of; the error does not name them, because its reader need not know them.
 */
export function findHostRefusal(
  account: Pick<Account, "allowedHosts">,
  urls: readonly string[],
  group: string | null = null,
): Refused | null {
  const { allowedHosts } = account;
  if (!allowedHosts) return null;
  const refused = urls.find((url) => !isAllowed(allowedHosts, url));
  if (refused === undefined) return null;
  const host = `the host ${parseUrl(refused)?.hostname.slice(0, 100)}`;
  const subject = group === null ? host : `the host of an endpoint of the URL group ${group}`;
  const named = allowedHosts.slice(0, maxNamed).concat(allowedHosts.length > maxNamed ? ["…"] : []);
  return {
    refused: "forbidden",
    message: `destination: ${subject} is not allowed for this account; use one of ${named.join(", ")}`,
    remedy: { remedy: "allow-host" },
  };
}

/** Throws `Refusal` if an account may not send to one of the URLs. */
export function assertHostsAllowed(account: Pick<Account, "allowedHosts">, urls: readonly string[]): void {
  throwIfRefused(findHostRefusal(account, urls));
}

/**
 * Returns why a stored message must not be sent, as a part of its delivery. The operator may have changed the
 * list after the message was accepted.
 */
export const findForbiddenHost = (
  account: Pick<Account, "allowedHosts">,
  url: string,
): { unsendable: string } | null =>
  maySendTo(account, url)
    ? null
    : { unsendable: `the host ${parseUrl(url)?.hostname.slice(0, 100)} is not allowed for this account` };
