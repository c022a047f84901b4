import { Refusal } from "../../engine/core/values/errors.ts";
import type { OwnHosts } from "./ownHosts.ts";
import { assertOwnHost, hasSameName, isLoopback } from "./ownHosts.ts";

/**
 * Who may use a route: the holder of a token, of an account's password, or of the operator's; or any caller.
 * Some routes are for callers that know the secret of a source, the webhook of a run or the token of an
 * attempt. Others are for the web console, signed in or not.
 */
export type Access = "token" | "account" | "operator" | "open" | "source" | "hook" | "attempt" | "console";

/** The parts of a request that show which page, if any, has sent it. */
export type PageRequest = {
  method: string;
  /** The access of its route. */
  access: Access;
  authorization: string | undefined;
  /** Returns the value of a header, by its name in lower case. */
  header(name: "host" | "origin" | "sec-fetch-site"): string | undefined;
};

/** The settings that decide which pages may send requests. `corsOrigins` may have `*` for all. */
export type PageSettings = { hosts: OwnHosts; corsOrigins: readonly string[] };

/**
 * Throws `Refusal` if a request proves nothing because a page of another site may have made a browser send
 * it:
 *
 * - In development, the token is public. Every request for a route that takes credentials must name a host of
 *   this server, and must not come from another site.
 * - Otherwise, only a password may be one that the browser has added by itself. It must not come from a page
 *   of another origin, such as another port of this host. A token is a secret that no other site knows. (A
 *   cookie has a stricter rule: see `checkConsoleRequest`.)
 *
 * The CORS setting allows an origin to use tokens, but not passwords.
 */
export function assertAllowedPage(request: PageRequest, { hosts, corsOrigins }: PageSettings): void {
  const { access, method, authorization = "", header } = request;
  const hasPassword = /^basic /i.test(authorization);
  if (!takesCredentials(access, method) || !(hosts.isDevelopment || hasPassword)) return;
  const host = header("host") ?? "";
  // A browser always sends its host. A program may leave it out.
  if (hosts.isDevelopment && host !== "") assertOwnHost(host, hosts);
  const origin = header("origin");
  const isAllowed = corsOrigins.includes("*") || (origin !== undefined && corsOrigins.includes(origin));
  if (isAllowed && !hasPassword) return;
  const isOther = hosts.isDevelopment ? isOtherSite : isOtherOrigin;
  if (isOther({ host, origin, site: header("sec-fetch-site") }, hosts))
    throw hasPassword ? passwordRefusal() : otherSiteRefusal(origin);
}

/** Reports whether a route takes a token or a password. The pages of the console take none. */
const takesCredentials = (access: Access, method: string): boolean =>
  access === "token" ||
  access === "account" ||
  access === "operator" ||
  (access === "console" && method !== "GET" && method !== "HEAD");

type Sender = { host: string; origin: string | undefined; site: string | undefined };

/**
 * Reports whether a page of another site has sent a request. Browsers send Sec-Fetch-Site over HTTPS and to
 * loopback. Otherwise the origin decides, which is `null` for a page that hides it. Sec-Fetch-Mode decides
 * nothing, because Node's `fetch` sends it, too.
 */
function isOtherSite({ host, origin, site }: Sender, { publicUrl }: OwnHosts): boolean {
  if (site !== undefined) return site === "cross-site";
  if (origin === undefined) return false;
  const from = URL.parse(origin)?.host ?? "";
  return (
    !isLoopback(from) && !hasSameName(from, host) && !hasSameName(from, URL.parse(publicUrl)?.host ?? "")
  );
}

/** Reports whether a page of another origin has sent a request. */
function isOtherOrigin({ host, origin, site }: Sender, { publicUrl }: OwnHosts): boolean {
  if (site !== undefined) return site !== "same-origin" && site !== "none";
  if (origin === undefined) return false;
  const own = [host, URL.parse(publicUrl)?.host ?? ""].map(withoutUsualPort);
  return origin === "null" || !own.includes(URL.parse(origin)?.host ?? "null");
}

/** A proxy that ends TLS may leave the usual port in the host, or not. */
const withoutUsualPort = (host: string): string => host.toLowerCase().replace(/:(80|443)$/, "");

function otherSiteRefusal(origin: string | undefined): Refusal {
  const named = origin === undefined || origin === "null" ? "<origin of the page>" : origin.slice(0, 200);
  return new Refusal(
    "forbidden",
    "origin: a page of another site has sent this request; send it from a program or from a page of this " +
      `server, or allow the page with --cors-origin ${named}`,
  );
}

const passwordRefusal = (): Refusal =>
  new Refusal(
    "forbidden",
    "origin: a page of another site has sent this request with a password; send it from a program or from " +
      "a page of this server",
  );
