import { Refusal } from "../values/errors.ts";
import { canonicalName } from "../values/headers.ts";
import type { Bytes, HeaderList } from "../values/basics.ts";
import type { Redaction } from "./sendSettings.ts";

/**
 * Returns SHA-256 of bytes, or of the UTF-8 of a string, in hex. The caller supplies it, because core has no
 * cryptography.
 */
export type Hash = (value: string | Bytes) => string;

/**
 * Parses what to hide: `body`, `header` or `headers` (all of them), and `header[Name]` or `headers[Name]`
 * (one header). Items are separated by commas, and spaces are allowed. Throws `Refusal` with the item that it
 * cannot read.
 */
export function parseRedaction(text: string): Redaction {
  let body = false;
  let allHeaders = false;
  const names = new Set<string>();
  for (const item of text.split(",").map((part) => part.trim())) {
    if (item === "body") body = true;
    else if (item === "header" || item === "headers") allHeaders = true;
    else names.add(parseHeaderItem(item));
  }
  return { body, headers: allHeaders || (names.size > 0 && [...names]) };
}

function parseHeaderItem(item: string): string {
  const name = /^headers?\[([^\]]*)\]$/.exec(item)?.[1]?.trim() ?? "";
  if (/^[\w!#$%&'*+.^`|~-]+$/.test(name)) return canonicalName(name);
  throw new Refusal(
    "invalid",
    `redact fields: cannot read ${JSON.stringify(item)}; ` +
      "use body, header or header[Name], separated by commas",
  );
}

/** Returns a redaction that hides what either of two redactions hides. */
export function mergeRedactions(one: Redaction | null, other: Redaction | null): Redaction | null {
  if (!one || !other) return one ?? other;
  const body = one.body || other.body;
  if (one.headers === true || other.headers === true) return { body, headers: true };
  const names = new Set([...(one.headers || []), ...(other.headers || [])]);
  return { body, headers: names.size > 0 && [...names] };
}

/** Returns the body as it may be shown. An empty body stays empty, because there is nothing to hide. */
export function redactBody(body: Bytes, redaction: Redaction | null, hash: Hash): Bytes {
  if (redaction?.body !== true || body.length === 0) return body;
  return new TextEncoder().encode(redactValue(body, hash));
}

/**
 * Returns the headers (canonical names) as they may be shown. Names and order stay; hidden values are
 * replaced.
 */
export function redactHeaders(headers: HeaderList, redaction: Redaction | null, hash: Hash): HeaderList {
  const hidden = redaction?.headers ?? false;
  if (hidden === false) return headers;
  const names = new Set(hidden === true ? headers.map(([name]) => name) : hidden);
  return headers.map(([name, value]) => [name, names.has(name) ? redactValue(value, hash) : value]);
}

/** Equal values have equal replacements. A replacement shows nothing else about its value. */
const redactValue = (value: string | Bytes, hash: Hash): string => `REDACTED:${hash(value)}`;
