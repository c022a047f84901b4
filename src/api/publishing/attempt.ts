import type { LeaseRef } from "../../engine/core/model/messageState.ts";
import type { StoredMessage, WithoutBody } from "../../engine/core/model/message.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { isAttemptToken, parseAttemptToken } from "../../engine/delivery/attemptToken.ts";
import type { Store } from "../../engine/store/store.ts";

/** An attempt whose token was shown, and its message. */
export type ShownAttempt = LeaseRef & { message: WithoutBody<StoredMessage> };

/** Returns the token of an attempt among the headers of a request, names and values in turn. */
export function readAttemptToken(rawHeaders: readonly string[]): string | undefined {
  for (let at = 0; at + 1 < rawHeaders.length; at += 2)
    if (/^(?:svc|upstash)-attempt$/i.test(rawHeaders[at] ?? "")) return rawHeaders[at + 1];
  return undefined;
}

/**
 * Returns the attempt of a token. The token is the only credential of a caller. Throws `Refusal`, with the
 * same text for every reason, so that it reveals nothing.
 */
export async function findAttempt(store: Store, token: string | undefined): Promise<ShownAttempt> {
  const named = parseAttemptToken(token ?? "");
  const message = named && (await store.read.storedMessage(named.account, named.messageId));
  // A puller may hold an attempt of a message without a key.
  const key = message?.ackKey ?? (message && (await store.read.account(named.account))?.pulled?.key);
  if (!named || !message || !key || !isAttemptToken(named, key))
    throw new Refusal("not-found", "svc-attempt: the token of the attempt is missing, wrong or too old");
  const { account, messageId, attempt } = named;
  return { account, messageId, attempt, message };
}
