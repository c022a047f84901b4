import { Refusal } from "../values/errors.ts";
import { canonicalName } from "../values/headers.ts";
import type { Bytes, HeaderList, Redaction } from "./message.ts";

/** SHA-256 in hex, of bytes or of text as UTF-8. Given by the caller, because core has no cryptography of its own. */
export type Hash = (value: string | Bytes) => string;

/**
 * Reads what to hide: `body`, `header` or `headers` (all of them), `header[Name]` or `headers[Name]` (one), separated by commas,
 * spaces allowed. Throws `Refusal` with the item it cannot read.
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
  throw new Refusal("invalid", `redact fields: cannot read ${JSON.stringify(item)}; use body, header or header[Name], separated by commas`);
}

/** Hides what either of two hides. */
export function mergeRedactions(one: Redaction | null, other: Redaction | null): Redaction | null {
  if (!one || !other) return one ?? other;
  const body = one.body || other.body;
  if (one.headers === true || other.headers === true) return { body, headers: true };
  const names = new Set([...(one.headers || []), ...(other.headers || [])]);
  return { body, headers: names.size > 0 && [...names] };
}

/** The body as it may be shown. An empty one stays empty: there is nothing to hide. */
export function redactBody(body: Bytes, redaction: Redaction | null, hash: Hash): Bytes {
  if (redaction?.body !== true || body.length === 0) return body;
  return new TextEncoder().encode(redactValue(body, hash));
}

/** The headers (names in canonical form) as they may be shown: names and order stay, values are replaced. */
export function redactHeaders(headers: HeaderList, redaction: Redaction | null, hash: Hash): HeaderList {
  const hidden = redaction?.headers ?? false;
  if (hidden === false) return headers;
  const names = new Set(hidden === true ? headers.map(([name]) => name) : hidden);
  return headers.map(([name, value]) => [name, names.has(name) ? redactValue(value, hash) : value]);
}

/** Equal values show as equal, and nothing else shows. */
const redactValue = (value: string | Bytes, hash: Hash): string => `REDACTED:${hash(value)}`;
