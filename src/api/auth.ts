import { hash, timingSafeEqual } from "node:crypto";
import { Refusal } from "../core/errors.ts";
import type { Account, Millis } from "../core/message.ts";
import type { Store } from "../store/store.ts";

/** Who asks, and where the token was: a header that carried it is ours, and is not forwarded. */
export type Proof = { account: Account; by: "header" | "query" };

/** Where a token can be: the Authorization header as it came, and the value of the token parameter. */
export type Tokens = { authorization: string | undefined; parameter: string | null };

/** An account is asked for again after this, so what changed on another node is known soon. */
const rememberedFor: Millis = 5_000;
const mostRemembered = 1_000;

/**
 * Finds the account of a request. The header wins. A bearer token in it that is none of ours, beside a good token in the
 * query, is the caller's own business with the destination. Throws `Refusal` when there is no good token.
 */
export function authenticator({ store, now }: { store: Store; now(): Millis }): (tokens: Tokens) => Promise<Proof> {
  const accountOf = rememberedAccounts(store, now);
  return async ({ authorization, parameter }) => {
    const bearer = authorization === undefined ? undefined : /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
    const byHeader = bearer === undefined ? null : await accountOf(bearer);
    if (byHeader) return { account: byHeader, by: "header" };
    const byQuery = parameter === null ? null : await accountOf(parameter);
    if (byQuery) return { account: byQuery, by: "query" };
    throw new Refusal(
      "unauthorized",
      bearer === undefined && parameter === null ? howTo : "token: unknown; it may have been replaced by a new one",
    );
  };
}

const howTo = "token: missing; send the header Authorization: Bearer <token>, or the query parameter svc_token";

/** Only hits are remembered: a token that is made now is good now. */
function rememberedAccounts(store: Store, now: () => Millis): (token: string) => Promise<Account | null> {
  const remembered = new Map<string, { account: Account; at: Millis }>();
  return async (token) => {
    const tokenHash = hash("sha256", token, "hex");
    const known = remembered.get(tokenHash);
    const age = now() - (known?.at ?? 0);
    if (known && age >= 0 && age < rememberedFor) return known.account;
    remembered.delete(tokenHash);
    const account = await store.read.accountByToken(tokenHash);
    if (!account || !isSame(account.tokenHash, tokenHash)) return null;
    const [oldest] = remembered.keys();
    if (remembered.size >= mostRemembered && oldest !== undefined) remembered.delete(oldest);
    remembered.set(tokenHash, { account, at: now() });
    return account;
  };
}

function isSame(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.length === b.length && timingSafeEqual(a, b);
}
