import type { Problem } from "./problems.ts";
import { isAccountPath } from "./problems.ts";

/** Returns the value of `Waypost-Ignored`: the settings that were ignored. */
export const formatIgnored = (names: readonly string[]): string =>
  [...new Set(names)]
    .slice(0, 50)
    .map((name) => name.slice(0, 100).replace(/[^\w-]/g, "?"))
    .join(", ");

/** The dates since when something is deprecated and when it is removed, and a page with its replacement. */
export type Deprecation = { since: string; sunset: string; link: string };

/** Returns the headers of every response of a deprecated route (RFC 9745, RFC 8594). */
export const deprecationHeaders = ({ since, sunset, link }: Deprecation): Record<string, string> => ({
  Deprecation: `@${Date.parse(since) / 1000}`,
  Sunset: new Date(sunset).toUTCString(),
  Link: `<${link}>; rel="deprecation"; type="text/html"`,
});

/** Returns the headers of a refusal: how to authenticate, and when to retry. */
export function problemHeaders(
  path: string,
  { status, headers, retryAfter: ownRetryAfter }: Problem,
): Record<string, string> {
  const scheme = isAccountPath(path) ? 'Basic realm="waypost", charset="UTF-8"' : "Bearer";
  const retryAfter = ownRetryAfter ?? (status === 503 || (status === 429 && !headers) ? 1 : undefined);
  return {
    ...headers,
    ...(status === 401 && { "WWW-Authenticate": scheme }),
    ...(retryAfter !== undefined && { "Retry-After": String(retryAfter) }),
  };
}
