import type { LeaseRef } from "../../engine/core/model/messageState.ts";
import type { StoredMessage, WithoutBody } from "../../engine/core/model/message.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { AttemptToken } from "../../engine/delivery/attemptToken.ts";
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
  const [found = wrongToken("svc-attempt")] = named
    ? await findAttempts(store, named.account, { tokens: [named], field: "svc-attempt" })
    : [];
  if (found instanceof Refusal) throw found;
  return found;
}

/**
 * Returns the attempts of tokens of one account, and a `Refusal` for each wrong token. `field`: where the
 * tokens come from.
 */
export async function findAttempts(
  store: Store,
  account: AccountId,
  { tokens, field }: { tokens: readonly (AttemptToken | null)[]; field: "svc-attempt" | "attempt" },
): Promise<readonly (ShownAttempt | Refusal)[]> {
  const named = tokens.filter((token) => token?.account === account);
  const keys = named.map((token) => [account, token?.messageId ?? ""] as const);
  const messages = new Map((await store.read.storedMessages(keys)).map((one) => [one.id, one]));
  // A puller may hold an attempt of a message without a key.
  const isPulled = [...messages.values()].some(({ ackKey }) => ackKey === undefined);
  const pullKey = isPulled ? (await store.read.account(account))?.pulled?.key : undefined;
  return tokens.map((token) => {
    const message = token?.account === account ? messages.get(token.messageId) : undefined;
    const key = message && (message.ackKey ?? pullKey);
    if (!token || !message || !key || !isAttemptToken(token, key)) return wrongToken(field);
    const { messageId, attempt } = token;
    return { account, messageId, attempt, message };
  });
}

const wrongToken = (field: string): Refusal =>
  new Refusal("not-found", `${field}: the token of the attempt is missing, wrong or too old`);
