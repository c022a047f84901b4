import type { FastifyRequest } from "fastify";
import type { BrowserRequest } from "../auth/consoleRequest.ts";
import { hasConsoleCookie } from "../auth/consoleRequest.ts";
import type { Route } from "../route/route.ts";

/** The settings for reading the headers of a browser. */
export type BrowserParts = {
  publicUrl?: string;
  /**
   * The header in which a proxy names the person that it has signed in. The header counts only if `isTrusted`
   * accepts the address of the sender.
   */
  userHeader?: { name: string; isTrusted(address: string | undefined): boolean };
};

/**
 * Returns what a request shows about the page that sent it, if it may belong to a session of the console or
 * is for a route of the console.
 */
export function readBrowser(
  request: FastifyRequest,
  { access }: Pick<Route, "access">,
  { publicUrl = "", userHeader }: BrowserParts,
): BrowserRequest | undefined {
  const { headers, method, host, protocol, raw } = request;
  if (access !== "console" && !hasConsoleCookie(headers.cookie)) return undefined;
  const own = URL.parse(publicUrl);
  const read = (name: string): string | undefined => {
    const value = headers[name.toLowerCase()];
    return Array.isArray(value) ? value.join() : value;
  };
  const user = userHeader?.isTrusted(raw.socket.remoteAddress) ? read(userHeader.name) : undefined;
  return {
    method,
    host,
    isSecure: protocol === "https" || (own?.protocol === "https:" && own.host === host.toLowerCase()),
    cookie: headers.cookie,
    origin: headers.origin,
    fetchSite: read("sec-fetch-site"),
    marker: read("waypost-console"),
    user: user === undefined ? null : user.trim().slice(0, 100),
  };
}
