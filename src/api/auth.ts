import { hash, timingSafeEqual } from "node:crypto";
import { Refusal } from "../core/errors.ts";
import type { Account, Millis } from "../core/message.ts";
import type { Store } from "../store/store.ts";

/** Who asks, and with what: a header that carries the token is ours, and is not forwarded. The token is never logged. */
export type Proof = { account: Account; by: "header" | "query"; token: string };

/** Where a token can be: the Authorization header as it came, and the value of the token parameter. */
export type Tokens = { authorization: string | undefined; parameter: string | null };

/** An account is asked for again after this, so what changed on another node is known soon. */
const rememberedFor: Millis = 5_000;
const mostRemembered = 1_000;

/**
 * Finds the account of a request. The header wins. A bearer token in it that is none of ours, beside a good token in the
 * query, is the caller's own business with the destination. Throws `Refusal` when there is no good token.
 */
export function authenticator({ store, now }: { store: Store; now(): Millis }): (tokens: Tokens) => Proof | Promise<Proof> {
  const remembered = new RememberedAccounts(store, now);
  const lookUp = async (bearer: string | undefined, parameter: string | null): Promise<Proof> => {
    const byHeader = bearer === undefined ? null : await remembered.find(bearer);
    if (byHeader && bearer !== undefined) return { account: byHeader, by: "header", token: bearer };
    const byQuery = parameter === null ? null : await remembered.find(parameter);
    if (byQuery && parameter !== null) return { account: byQuery, by: "query", token: parameter };
    throw new Refusal(
      "unauthorized",
      bearer === undefined && parameter === null
        ? howTo
        : "token: unknown; it may be that of another server, or have been replaced: waypost credentials prints the one to use",
    );
  };
  return ({ authorization, parameter }) => {
    const bearer = authorization === undefined ? undefined : /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
    const known = bearer === undefined ? null : remembered.get(hashOf(bearer));
    return known && bearer !== undefined ? { account: known, by: "header", token: bearer } : lookUp(bearer, parameter);
  };
}

const howTo = "token: missing; send the header Authorization: Bearer <token>, or the query parameter svc_token";

const hashOf = (token: string): string => hash("sha256", token, "hex");

/** Only hits are remembered: a token that is made now is good now. */
class RememberedAccounts {
  readonly #store: Store;
  readonly #now: () => Millis;
  readonly #remembered = new Map<string, { account: Account; at: Millis }>();

  constructor(store: Store, now: () => Millis) {
    this.#store = store;
    this.#now = now;
  }

  /** The account of a token, if it is remembered. */
  get(tokenHash: string): Account | null {
    const known = this.#remembered.get(tokenHash);
    if (!known) return null;
    const age = this.#now() - known.at;
    if (age >= 0 && age < rememberedFor) return known.account;
    this.#remembered.delete(tokenHash);
    return null;
  }

  /** The account of a token, asked for if need be. */
  async find(token: string): Promise<Account | null> {
    const tokenHash = hashOf(token);
    const known = this.get(tokenHash);
    if (known) return known;
    const account = await this.#store.read.accountByToken(tokenHash);
    if (!account || !isSame(account.tokenHash, tokenHash)) return null;
    const [oldest] = this.#remembered.keys();
    if (this.#remembered.size >= mostRemembered && oldest !== undefined) this.#remembered.delete(oldest);
    this.#remembered.set(tokenHash, { account, at: this.#now() });
    return account;
  }
}

function isSame(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.length === b.length && timingSafeEqual(a, b);
}
