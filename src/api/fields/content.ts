import { isUtf8 } from "node:buffer";
import type { Redaction } from "../../engine/core/model/sendSettings.ts";
import { redactBody, redactHeaders } from "../../engine/core/model/redaction.ts";
import { headerMap } from "../../engine/core/sending/callback.ts";
import { base64 } from "../../engine/core/values/base64.ts";
import type { Bytes, HeaderList } from "../../engine/core/values/basics.ts";
import { sha256 } from "../http/sha256.ts";

/** Returns headers as they may be shown: names to lists of values. */
export const readHeaders = (headers: HeaderList, redaction: Redaction | null): Record<string, string[]> =>
  headerMap(redactHeaders(headers, redaction, sha256));

/**
 * Returns a body, as it may be shown, if it is UTF-8 and not empty. `digest` is the hash of the whole body if
 * only its beginning is kept.
 */
export function readText(body: Bytes, redaction: Redaction | null, digest?: string): string | null {
  if (body.length === 0) return null;
  const shown = redactBody(body, redaction, makeHash(digest));
  return isUtf8(shown) ? Buffer.from(shown.buffer, shown.byteOffset, shown.byteLength).toString() : null;
}

/** Returns a body in base64 if it may be shown and is not UTF-8. */
export const readBase64 = (body: Bytes, redaction: Redaction | null): string | null =>
  redaction?.body === true || isUtf8(body) ? null : base64(body);

/** Returns a body as text if it is UTF-8, or else in base64. Returns no field for an empty body. */
export function bodyFields(body: Bytes): { text?: string; base64?: string } {
  const text = readText(body, null);
  if (text !== null) return { text };
  return body.length === 0 ? {} : { base64: base64(body) };
}

/**
 * Returns the hash function for a body. For a cut body it returns `digest`, the stored hash of the whole
 * body.
 */
export const makeHash = (digest: string | undefined): typeof sha256 =>
  digest === undefined ? sha256 : () => digest;

type Cut = { digest?: string | undefined; cut?: true | undefined };

/**
 * Reports whether a response is shown only in part. This is not so for a hidden body: its hash covers
 * everything that was read, even if the log keeps only the beginning.
 */
export const isCut = ({ digest, cut }: Cut, redaction: Redaction | null): boolean =>
  cut === true || (digest !== undefined && redaction?.body !== true);
