import { Refusal } from "../../engine/core/values/errors.ts";
import { assertOwnHost, type OwnHosts } from "./ownHosts.ts";

/** The page that sent a request, as the request shows it. `host` is the host that the browser used. */
export type BrowserRequest = {
  method: string;
  host: string;
  isSecure: boolean;
  cookie: string | undefined;
  origin: string | undefined;
  fetchSite: string | undefined;
  /** The value of the header Waypost-Console, which a page of another origin cannot send. */
  marker: string | undefined;
  /** The name of the person, as a trusted proxy reports it. */
  user: string | null;
};

/** The kinds of console cookies: the session in an account, and that of the operator. */
export type ConsoleCookie = "session" | "operator";

/**
 * Returns the name of a cookie. Over HTTPS, the prefix makes the browser refuse a cookie that another host or
 * an insecure page has set.
 */
const consoleCookieName = (kind: ConsoleCookie, { isSecure }: Pick<BrowserRequest, "isSecure">) =>
  `${isSecure ? "__Host-" : ""}waypost-${kind}`;

/** Reports whether a Cookie header may have a cookie of the console. */
export const hasConsoleCookie = (cookie: string | undefined): boolean =>
  cookie?.includes("waypost-") ?? false;

/** Returns a Cookie header without the cookies of the console. Returns null if there are no others. */
export function withoutConsoleCookies(cookie: string): string | null {
  if (!hasConsoleCookie(cookie)) return cookie;
  const others = cookie
    .split(";")
    .filter((part) => !/^\s*(__Host-)?waypost-(session|operator)\s*=/.test(part));
  return others.join(";").trim() || null;
}

/**
 * Returns the value of a console cookie, or null. If there are several of one name, another host has set one
 * of them, and none counts.
 */
export function readConsoleCookie(request: BrowserRequest, kind: ConsoleCookie): string | null {
  const prefix = `${consoleCookieName(kind, request)}=`;
  const found = (request.cookie ?? "").split(/; */).filter((part) => part.startsWith(prefix));
  const [only, ...others] = found;
  return only === undefined || others.length > 0 ? null : only.slice(prefix.length) || null;
}

/** Returns the value of Set-Cookie. A `value` of null removes the cookie. */
export function formatConsoleCookie(
  request: Pick<BrowserRequest, "isSecure">,
  kind: ConsoleCookie,
  { value, seconds }: { value: string; seconds: number } | { value: null; seconds: 0 },
): string {
  const attributes = ["Path=/", "HttpOnly", "SameSite=Strict", `Max-Age=${seconds}`];
  if (request.isSecure) attributes.push("Secure");
  return [`${consoleCookieName(kind, request)}=${value ?? ""}`, ...attributes].join("; ");
}

/**
 * Throws `Refusal` if a request was not sent by the console itself. The name of a stranger may point here
 * (DNS rebinding), or a page of another origin may have sent the request.
 */
export function assertConsoleRequest(request: BrowserRequest, hosts: OwnHosts): void {
  assertOwnHost(request.host, hosts);
  if (!isSameOrigin(request))
    throw new Refusal("forbidden", "origin: only the console of this server may use its session");
}

/**
 * Reports whether a page of this origin has sent the request. Browsers send Sec-Fetch-Site only over HTTPS
 * and to loopback. Otherwise the origin decides, and for reads, which have none, the header that only a page
 * of this origin can send.
 */
function isSameOrigin({ method, host, origin, fetchSite, marker }: BrowserRequest): boolean {
  if (fetchSite !== undefined) return fetchSite === "same-origin";
  if (origin !== undefined) return URL.parse(origin)?.host === host.toLowerCase();
  return (method === "GET" || method === "HEAD") && marker !== undefined;
}
