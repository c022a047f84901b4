import type { Bytes, HeaderList } from "../values/basics.ts";
import type { MessageInput } from "../model/message.ts";
import type { SendSettings } from "../model/sendSettings.ts";
import type { Refused } from "../values/errors.ts";
import type { Overrides } from "./overrides.ts";
import { listOverrideUrls } from "./overrides.ts";

/** The parts and settings that a request replaces when it sends a dead letter again or changes a schedule. */
type Change = { url?: string; headers?: HeaderList; body?: Bytes; overrides: Overrides };

/**
 * Returns a refusal if a message that is sent again would show a redacted part to a URL that its publisher
 * did not choose. Such a URL is another destination, or a new callback, which reports the message. Returns
 * null otherwise. The caller must not learn the part, and the owner of the other URL may be the caller.
 */
export function findRedactedRefusal(
  message: Pick<MessageInput, "redaction" | "url" | "headers" | "callback" | "failureCallback">,
  { url, headers, body, overrides }: Change,
): Refused | null {
  const { redaction } = message;
  if (!redaction) return null;
  const known = new Set([message.url, ...listCallbackUrls(message)]);
  const chosen = [...(url === undefined ? [] : [url]), ...listOverrideUrls(overrides)];
  if (chosen.every((one) => known.has(one))) return null;
  const hidden = redaction.headers;
  const hidesHeaders =
    hidden !== false && message.headers.some(([name]) => hidden === true || hidden.includes(name));
  const part =
    redaction.body && body === undefined ? "body" : hidesHeaders && headers === undefined ? "headers" : null;
  return part && { refused: "forbidden", message: `${part}: redacted, so not sent to another URL` };
}

/** Returns the URLs of the callbacks of a message, and of their callbacks. */
function listCallbackUrls({
  callback,
  failureCallback,
}: Pick<SendSettings, "callback" | "failureCallback">): string[] {
  const found: string[] = [];
  for (const one of [callback, failureCallback]) if (one) found.push(one.url, ...listCallbackUrls(one));
  return found;
}
