import type { HeaderList } from "./basics.ts";
import { remembered } from "./remembered.ts";

/** A text as HTTP carries it in a header, where each character is a byte. What latin 1 does not have goes as UTF-8. */
export const inLatin = (text: string): string => (/[^\0-\xff]/.test(text) ? Buffer.from(text).toString("latin1") : text);

/** One list of what is delivered: what was given for the delivery replaces what came along by the same name. */
export function joinHeaders(alongside: HeaderList, given: HeaderList): HeaderList {
  if (alongside.length === 0 || given.length === 0) return [...alongside, ...given];
  const names = new Set(given.map(([name]) => name));
  return [...alongside.filter(([name]) => !names.has(name)), ...given];
}

/** Canonical form of a header name: `x-request-id` → `X-Request-Id`. */
export const canonicalName = remembered((name) => name.toLowerCase().replace(/(^|-)[a-z]/g, (letter) => letter.toUpperCase()));

/** The value of the first header of a name, in its canonical form. */
export const headerValue = (headers: HeaderList, name: string): string | undefined => headers.find(([key]) => key === name)?.[1];
