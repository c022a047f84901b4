import { Refusal } from "../core/errors.ts";
import type { Account, Millis } from "../core/message.ts";
import type { Store } from "../store/store.ts";
import { accountNamedBy, hashOfToken, isSame, readOnlyTokenOf } from "./token.ts";

/**
 * Who asks, with what, and what may be done with that. A header that carries the token is ours, and is not forwarded. The
 * token is never logged.
 */
export type Proof = { account: Account; by: "header" | "query"; token: string; right: "all" | "read" };

/** Where a token can be: the Authorization header as it came, and the value of the token parameter. */
export type Tokens = { authorization: string | undefined; parameter: string | null };

/** An account is asked for again after this, so what changed on another node is known soon, also where word of it was lost. */
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
    if (byHeader && bearer !== undefined) return { ...byHeader, by: "header", token: bearer };
    const byQuery = parameter === null ? null : await remembered.find(parameter);
    if (byQuery && parameter !== null) return { ...byQuery, by: "query", token: parameter };
    throw new Refusal(
      "unauthorized",
      bearer === undefined && parameter === null
        ? howTo
        : "token: unknown; it may be that of another server, or have been replaced: waypost credentials prints the one to use",
    );
  };
  return ({ authorization, parameter }) => {
    const bearer = authorization === undefined ? undefined : /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
    const known = bearer === undefined ? null : remembered.get(hashOfToken(bearer));
    return known && bearer !== undefined ? { ...known, by: "header", token: bearer } : lookUp(bearer, parameter);
  };
}

const howTo = "token: missing; send the header Authorization: Bearer <token>, or the query parameter svc_token";

type Holder = Pick<Proof, "account" | "right">;

/** Only hits are remembered: a token that is made now is good now. */
class RememberedAccounts {
  readonly #store: Store;
  readonly #now: () => Millis;
  readonly #remembered = new Map<string, { holder: Holder; at: Millis }>();
  /** Counts how often all was forgotten: what was read before is out of date then. */
  #age = 0;

  constructor(store: Store, now: () => Millis) {
    this.#store = store;
    this.#now = now;
    store.onAccounts(() => {
      this.#age++;
      this.#remembered.clear();
    });
  }

  /** Whose token it is, if that is remembered. */
  get(tokenHash: string): Holder | null {
    const known = this.#remembered.get(tokenHash);
    if (!known) return null;
    const age = this.#now() - known.at;
    if (age >= 0 && age < rememberedFor) return known.holder;
    this.#remembered.delete(tokenHash);
    return null;
  }

  /** Whose token it is, asked for if need be. */
  async find(token: string): Promise<Holder | null> {
    const tokenHash = hashOfToken(token);
    const known = this.get(tokenHash);
    if (known) return known;
    const age = this.#age;
    const holder = await this.#ask(token, tokenHash);
    if (!holder || age !== this.#age) return holder;
    const [oldest] = this.#remembered.keys();
    if (this.#remembered.size >= mostRemembered && oldest !== undefined) this.#remembered.delete(oldest);
    this.#remembered.set(tokenHash, { holder, at: this.#now() });
    return holder;
  }

  /** A token that is none of those that are looked up may be the one for reading, of the account that it names. */
  async #ask(token: string, tokenHash: string): Promise<Holder | null> {
    const { read } = this.#store;
    const account = await read.accountByToken(tokenHash);
    if (account) return isSame(account.token, token) ? { account, right: "all" } : null;
    const id = accountNamedBy(token);
    const named = id === null ? null : await read.account(id);
    return named && named.deletedAt === undefined && isSame(readOnlyTokenOf(named), token) ? { account: named, right: "read" } : null;
  }
}
