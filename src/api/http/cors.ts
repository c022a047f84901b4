import type { IncomingHttpHeaders } from "node:http";
import { isAccountPath } from "./problems.ts";

/** Response headers that a page in a browser may read, besides those that it always may. */
const exposedHeaders = [
  ...["Allow", "Retry-After", "Waypost-Ignored", "Waypost-Warning", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"],
  ...["Burst-RateLimit-Limit", "Burst-RateLimit-Remaining", "Burst-RateLimit-Reset"],
].join(", ");

/** How long a browser may remember the answer to a preflight request, in seconds. Browsers use at most two hours. */
const preflightMaxAge = 7_200;

/**
 * Returns the headers by which a browser lets a page of another origin read an answer. `origins`: those that may, or `*` for all.
 * Requests that take a password get none, and no cookies are ever allowed.
 */
export function corsHeaders(origins: readonly string[], path: string, origin: string | undefined): Record<string, string> {
  if (origins.length === 0 || isAccountPath(path)) return {};
  const isOpen = origins.includes("*");
  if (!isOpen && (origin === undefined || !origins.includes(origin))) return { Vary: "Origin" };
  return {
    "Access-Control-Allow-Origin": isOpen ? "*" : (origin ?? "*"),
    "Access-Control-Expose-Headers": exposedHeaders,
    ...(isOpen ? {} : { Vary: "Origin" }),
  };
}

/** Reports whether a request asks what a page may send, before the page sends it. */
export const isPreflight = (method: string, { origin, "access-control-request-method": asked }: IncomingHttpHeaders): boolean =>
  method === "OPTIONS" && origin !== undefined && asked !== undefined;

/** Returns the headers of the answer to a preflight request: the methods there are, and whatever headers were asked for. */
export function preflightHeaders(methods: readonly string[], headers: IncomingHttpHeaders): Record<string, string> {
  const asked = headers["access-control-request-headers"];
  return {
    "Access-Control-Allow-Methods": methods.join(", "),
    ...(asked !== undefined && headerNames.test(asked) ? { "Access-Control-Allow-Headers": asked } : {}),
    "Access-Control-Max-Age": String(preflightMaxAge),
    Vary: "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
  };
}

/** Names of headers with commas between them. */
const headerNames = /^[\w!#$%&'*+.^`|~-]+( *, *[\w!#$%&'*+.^`|~-]+)*$/;

/** Reports whether one of these headers, names and values in turn, is `Origin`. Browsers send it. */
export const hasOrigin = (rawHeaders: readonly string[]): boolean =>
  rawHeaders.some((name, at) => at % 2 === 0 && name.length === 6 && name.toLowerCase() === "origin");
