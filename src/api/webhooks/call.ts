import type { Bytes, Millis } from "../../core/model/message.ts";
import { CallRejection } from "./verificationResult.ts";

/**
 * A call to a source, as it came. `url` is the full public URL that the sender called. `headers` are raw: name, value, in turn.
 * `now` is when it came, by our clock.
 */
export type WebhookCall = { method: string; url: string; headers: readonly string[]; body: Bytes; now: Millis };

/** The value of a header, or null without one. Rejects one that came with several values: which of them was verified must be certain. */
export function readHeader(call: WebhookCall, name: string): string | null {
  const wanted = name.toLowerCase();
  let found: string | null = null;
  for (let at = 0; at + 1 < call.headers.length; at += 2) {
    const value = call.headers[at + 1] ?? "";
    if (call.headers[at]?.toLowerCase() !== wanted) continue;
    if (found !== null && found !== value) throw new CallRejection(`${name}: came more than once, with different values`);
    found = value;
  }
  if (found !== null && found.length > longestHeader)
    throw new CallRejection(`${name}: ${found.length} characters, of which the limit is ${longestHeader}`);
  return found;
}

/** Rejects a call with two ids of its event, although an event is known by its signature: the destination may go by either. */
export function checkOneId(call: WebhookCall, ...names: readonly string[]): void {
  for (const name of names) readHeader(call, name);
}

/** The value of a header that must be there. */
export function requireHeader(call: WebhookCall, name: string): string {
  const value = readHeader(call, name);
  if (value === null || value === "")
    throw new CallRejection(`${name}: missing; was the call sent by the service that this source is for?`);
  return value;
}

/** The parameters of the query of a call. */
export const parseCallQuery = (call: WebhookCall): URLSearchParams => new URLSearchParams(URL.parse(call.url)?.search ?? "");

/** The body as a JSON object, or null when it is anything else. */
export function parseJsonBody(call: WebhookCall): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(utf8.decode(call.body));
    return isRecord(value) ? value : null;
  } catch {
    return null;
  }
}

/** Whether a value is an object whose members can be asked for. */
export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** No header that is looked at may be longer, in characters: signatures take a few hundred. */
const longestHeader = 8 * 1024;

const utf8 = new TextDecoder("utf-8", { fatal: true });
