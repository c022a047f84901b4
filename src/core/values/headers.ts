import type { HeaderList } from "./basics.ts";
import { memoize } from "./memoize.ts";

/** A text as HTTP carries it in a header, where each character is a byte. What latin 1 does not have goes as UTF-8. */
export const toLatin1 = (text: string): string => (/[^\0-\xff]/.test(text) ? Buffer.from(text).toString("latin1") : text);

/** One list of what is delivered: what was given for the delivery replaces what came along by the same name. */
export function joinHeaders(forwarded: HeaderList, overriding: HeaderList): HeaderList {
  if (forwarded.length === 0 || overriding.length === 0) return [...forwarded, ...overriding];
  const names = new Set(overriding.map(([name]) => name));
  return [...forwarded.filter(([name]) => !names.has(name)), ...overriding];
}

/** Canonical form of a header name: `x-request-id` → `X-Request-Id`. */
export const canonicalName = memoize((name) => name.toLowerCase().replace(/(^|-)[a-z]/g, (letter) => letter.toUpperCase()));

/** The value of the first header of a name, in its canonical form. */
export const headerValue = (headers: HeaderList, name: string): string | undefined => headers.find(([key]) => key === name)?.[1];
