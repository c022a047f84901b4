import type { HeaderList } from "./basics.ts";
import { memoize } from "../caches/memoize.ts";

/**
 * Returns a string as HTTP carries it in a header, with one byte per character. A string with characters
 * outside Latin-1 is encoded as UTF-8.
 */
export const toLatin1 = (text: string): string =>
  /[^\0-\xff]/.test(text) ? Buffer.from(text).toString("latin1") : text;

/** Joins two header lists. A name in `overriding` replaces the headers of that name in `forwarded`. */
export function joinHeaders(forwarded: HeaderList, overriding: HeaderList): HeaderList {
  if (forwarded.length === 0 || overriding.length === 0) return [...forwarded, ...overriding];
  const names = new Set(overriding.map(([name]) => name));
  return [...forwarded.filter(([name]) => !names.has(name)), ...overriding];
}

/** Returns the canonical form of a header name: `x-request-id` becomes `X-Request-Id`. */
export const canonicalName = memoize((name) =>
  name.toLowerCase().replace(/(^|-)[a-z]/g, (letter) => letter.toUpperCase()),
);

/** Returns the value of the first header of a canonical name. */
export const headerValue = (headers: HeaderList, name: string): string | undefined =>
  headers.find(([key]) => key === name)?.[1];

/** Headers of one connection, and headers that every delivery sets itself. They are never forwarded. */
export const connectionHeaders: readonly string[] = [
  "host",
  "content-length",
  "transfer-encoding",
  "connection",
  "keep-alive",
  "upgrade",
  "te",
  "trailer",
  "expect",
  "http2-settings",
  "proxy-connection",
  "proxy-authenticate",
  "proxy-authorization",
];
