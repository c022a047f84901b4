import type { IncomingHttpHeaders } from "node:http";
import { isAccountPath } from "./problems.ts";

/** Response headers that a page in a browser may read, in addition to those that it may always read. */
const exposedHeaders = [
  "Allow",
  "Retry-After",
  "Waypost-Ignored",
  "X-Request-Id",
  "Waypost-Warning",
  "RateLimit-Limit",
  "RateLimit-Remaining",
  "RateLimit-Reset",
  "Burst-RateLimit-Limit",
  "Burst-RateLimit-Remaining",
  "Burst-RateLimit-Reset",
].join(", ");

/**
 * How long a browser may cache the answer to a preflight request, in seconds. Browsers cache it for at most 2
 * hours.
 */
const preflightMaxAge = 7_200;

/**
 * Returns the headers with which a browser lets a page of another origin read a response. `origins` lists the
 * allowed origins, or has `*` for all. Requests with a password get no such headers, and cookies are never
 * allowed.
 */
export function corsHeaders(
  origins: readonly string[],
  path: string,
  origin: string | undefined,
): Record<string, string> {
  if (origins.length === 0 || isAccountPath(path)) return {};
  const isOpen = origins.includes("*");
  if (!isOpen && (origin === undefined || !origins.includes(origin))) return { Vary: "Origin" };
  return {
    "Access-Control-Allow-Origin": isOpen ? "*" : (origin ?? "*"),
    "Access-Control-Expose-Headers": exposedHeaders,
    ...(isOpen ? {} : { Vary: "Origin" }),
  };
}

/** Reports whether a request is a preflight, which asks what a page may send. */
export const isPreflight = (
  method: string,
  { origin, "access-control-request-method": requestedMethod }: IncomingHttpHeaders,
): boolean => method === "OPTIONS" && origin !== undefined && requestedMethod !== undefined;

/**
 * Returns the headers of the answer to a preflight request. They allow the existing methods and all requested
 * headers.
 */
export function preflightHeaders(
  methods: readonly string[],
  headers: IncomingHttpHeaders,
): Record<string, string> {
  const requestedHeaders = headers["access-control-request-headers"];
  return {
    "Access-Control-Allow-Methods": methods.join(", "),
    ...(requestedHeaders !== undefined && headerNames.test(requestedHeaders)
      ? { "Access-Control-Allow-Headers": requestedHeaders }
      : {}),
    "Access-Control-Max-Age": String(preflightMaxAge),
    Vary: "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
  };
}

/** Header names separated by commas. */
const headerNames = /^[\w!#$%&'*+.^`|~-]+( *, *[\w!#$%&'*+.^`|~-]+)*$/;

/**
 * Reports whether one of these headers is `Origin`, which browsers send. `rawHeaders` alternates names and
 * values.
 */
export const hasOrigin = (rawHeaders: readonly string[]): boolean =>
  rawHeaders.some((name, at) => at % 2 === 0 && name.length === 6 && name.toLowerCase() === "origin");
