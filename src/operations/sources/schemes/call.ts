import type { Bytes, Millis } from "../../../engine/core/values/basics.ts";
import { CallRejection } from "./verificationResult.ts";

/**
 * A call to a source, as received. `url` is the full public URL that the sender called. `headers` alternates
 * names and values as sent. `now` is the time of receipt by this server's clock.
 */
export type WebhookCall = {
  method: string;
  url: string;
  headers: readonly string[];
  body: Bytes;
  now: Millis;
};

/**
 * Returns the value of a header, or null if it is missing. Rejects a header with several different values,
 * because it must be certain which of them was verified.
 */
export function readHeader(call: WebhookCall, name: string): string | null {
  const lowerName = name.toLowerCase();
  let found: string | null = null;
  for (let at = 0; at + 1 < call.headers.length; at += 2) {
    const value = call.headers[at + 1] ?? "";
    if (call.headers[at]?.toLowerCase() !== lowerName) continue;
    if (found !== null && found !== value)
      throw new CallRejection(`${name}: sent more than once with different values`);
    found = value;
  }
  if (found !== null && found.length > longestHeader)
    throw new CallRejection(`${name}: ${found.length} characters exceed the limit of ${longestHeader}`);
  return found;
}

/**
 * Rejects a call with two different ids of its event, even if the event is known by its signature. The
 * destination may use either id.
 */
export function assertOneId(call: WebhookCall, ...names: readonly string[]): void {
  for (const name of names) readHeader(call, name);
}

/** Returns the value of a required header. Rejects the call if it is missing or empty. */
export function requireHeader(call: WebhookCall, name: string): string {
  const value = readHeader(call, name);
  if (value === null || value === "")
    throw new CallRejection(`${name}: missing; check that the service of this source sent the call`);
  return value;
}

/** Returns the query parameters of a call. */
export const parseCallQuery = (call: WebhookCall): URLSearchParams =>
  new URLSearchParams(URL.parse(call.url)?.search ?? "");

/** Returns the body as a JSON object, or null if it is anything else. */
export function parseJsonBody(call: WebhookCall): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(utf8.decode(call.body));
    return isRecord(value) ? value : null;
  } catch {
    return null;
  }
}

/** Reports whether a value is an object with readable members. */
export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The maximum length of a header that is read, in characters. Signatures have a few hundred. */
const longestHeader = 8 * 1024;

const utf8 = new TextDecoder("utf-8", { fatal: true });
