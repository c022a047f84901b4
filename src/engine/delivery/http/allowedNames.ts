import { isIP } from "node:net";
import { parseUrl } from "../../core/values/url.ts";
import { isLoopbackName } from "./dns.ts";

// Names in WAYPOST_EGRESS_ALLOW: destinations that may have private addresses. A name is compared with the
// one in the URL, before it is resolved.

/** Reports whether a name in a URL is allowed by its text. */
export type IsAllowedName = (hostname: string) => boolean;

/**
 * Returns the form of a name in an allow list that URLs have: `app.internal`, or `*.internal` for all names
 * that end with `.internal`. Returns null for everything else, such as addresses in any form, networks, and
 * names of this machine, which only an address allows.
 */
export function parseAllowedName(entry: string): string | null {
  const [, wildcard = "", name = ""] = /^(\*\.)?([^/:?#@\\%*\s[\]]{1,255})$/.exec(entry.trim()) ?? [];
  const hostname = withoutDot(parseUrl(`http://${name}/`)?.hostname ?? "");
  const isName = /^[\w-]+(\.[\w-]+)*$/.test(hostname) && isIP(hostname) === 0 && !isLoopbackName(hostname);
  return isName ? `${wildcard}${hostname}` : null;
}

/** Returns a function that compares a name in a URL with allowed names. */
export function createNameCheck(names: readonly string[]): IsAllowedName {
  const exact = new Set(names.filter((name) => !name.startsWith("*.")));
  const endings = names.filter((name) => name.startsWith("*.")).map((name) => name.slice(1));
  if (names.length === 0) return () => false;
  return (hostname) => {
    // Other texts can mean another name to a resolver than they do here.
    if (!/^[\w-]+(\.[\w-]+)*\.?$/.test(hostname)) return false;
    const name = withoutDot(hostname.toLowerCase());
    return exact.has(name) || endings.some((ending) => name.length > ending.length && name.endsWith(ending));
  };
}

/** Returns a name without the dot that a complete name may end with. */
const withoutDot = (name: string): string => name.replace(/\.$/, "");
