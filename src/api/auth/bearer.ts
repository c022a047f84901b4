import { Refusal } from "../../core/values/errors.ts";
import type { Account, Millis } from "../../core/model/message.ts";
import type { Scope, Token } from "../../core/model/rights.ts";
import { isUseNews } from "../../core/commands/token.ts";
import { scopeOf } from "../../core/model/rights.ts";
import type { Store } from "../../store/store.ts";
import type { Lockout, TriedFrom } from "./lockout.ts";
import { accountNamedBy, hashOfToken, isSame, readOnlyTokenOf } from "./token.ts";
import { minute, second } from "../../core/values/time.ts";
import { BoundedMap } from "../../core/values/boundedMap.ts";

/**
 * Who asks, with what, and what may be done with that. A header that carries the token is ours, and is not forwarded. The
 * token is never logged.
 */
export type Proof = { account: Account; by: "header" | "query"; token: string; right: Right };

/** Those of the account itself, of its token for reading, or of one of its other tokens. */
export type Right = "all" | "read" | Scope;

/** Where a token can be: the Authorization header as it came, and the value of the token parameter. */
export type Tokens = { authorization: string | undefined; parameter: string | null; /** Where they came from. */ from(): TriedFrom };

/** An account is asked for again after this, so what changed on another node is known soon, also where word of it was lost. */
const rememberedFor: Millis = 5 * second;
/** While the storage is unavailable, a token that was valid this recently still is. */
const rememberedInDoubt: Millis = minute;
const mostRemembered = 1_000;

type Authenticator = {
  /** Whose the bearer token is when it was used a moment ago, without asking the store. Throws `Refusal`. */
  known(authorization: string | undefined): Proof | null;
  /** Asks the store whose it is, so that it is known from then on. That it is nobody's is not counted as a try. Never rejects. */
  lookUp(authorization: string): Promise<unknown>;
  /** Throws `Refusal`. */
  authenticate(tokens: Tokens): Promise<Proof>;
};

/**
 * Finds the account of a request. The header wins. A bearer token in it that is none of ours, beside a good token in the
 * query, is the caller's own business with the destination. Throws `Refusal` when there is no good token.
 */
export function authenticator({ store, now, lockout }: { store: Store; now(): Millis; lockout: Lockout }): Authenticator {
  const remembered = new RememberedAccounts(store, now);
  const prove = async (bearer: string | undefined, { parameter, from }: Tokens): Promise<Proof> => {
    const byHeader = bearer === undefined ? null : await remembered.find(bearer);
    if (byHeader && bearer !== undefined) return { ...byHeader, by: "header", token: bearer };
    const byQuery = parameter === null ? null : await remembered.find(parameter);
    if (byQuery && parameter !== null) return { ...byQuery, by: "query", token: parameter };
    if (bearer === undefined && parameter === null) throw new Refusal("unauthorized", howTo);
    throw lockout.refusalFor(from(), new Refusal("unauthorized", unknown));
  };
  return {
    known: (authorization) => {
      const bearer = bearerIn(authorization);
      const known = bearer === undefined ? null : remembered.get(hashOfToken(bearer));
      return known && bearer !== undefined ? { ...known, by: "header", token: bearer } : null;
    },
    lookUp: async (authorization) => {
      const bearer = bearerIn(authorization);
      if (bearer !== undefined) await remembered.find(bearer).catch(() => null);
    },
    authenticate: (tokens) => prove(bearerIn(tokens.authorization), tokens),
  };
}

const bearerIn = (authorization: string | undefined): string | undefined =>
  authorization === undefined ? undefined : /^Bearer +(\S+) *$/i.exec(authorization)?.[1];

const unknown =
  "token: unknown; it may be that of another server, have been replaced, or revoked: waypost credentials prints the one of the account";
const howTo = "token: missing; send the header Authorization: Bearer <token>, or the query parameter svc_token";

/** `used`: of a token with rights of its own, when it was used last, as far as it is known here. */
type Holder = Pick<Proof, "account" | "right"> & { used?: Pick<Token, "account" | "id" | "usedAt"> };

/** Only hits are remembered: a token that is made now is good now. */
class RememberedAccounts {
  readonly #store: Store;
  readonly #now: () => Millis;
  readonly #remembered = new BoundedMap<string, { holder: Holder; at: Millis }>(mostRemembered);
  /** Look-ups in flight: all requests with one token share one. */
  readonly #asking = new Map<string, Promise<Holder | null>>();
  /** Counts how often all was forgotten: what was read before is out of date then. */
  #age = 0;

  constructor(store: Store, now: () => Millis) {
    this.#store = store;
    this.#now = now;
    store.onAccounts(() => {
      this.#age++;
      this.#remembered.clear();
      // Whoever asks from now on must not share what was read before the change.
      this.#asking.clear();
    });
  }

  /** Whose token it is, if that is remembered. */
  get(tokenHash: string): Holder | null {
    return this.#within(tokenHash, this.#store.isInDoubt() ? rememberedInDoubt : rememberedFor);
  }

  #within(tokenHash: string, limit: Millis): Holder | null {
    const known = this.#remembered.get(tokenHash);
    if (!known) return null;
    const age = this.#now() - known.at;
    if (age >= 0 && age < limit) return this.#current(known.holder);
    if (age < 0 || age >= rememberedInDoubt) this.#remembered.delete(tokenHash);
    return null;
  }

  /** Whose token it is, asked for if need be. Throws `Refusal`: unavailable if the storage cannot tell and nothing recent is remembered. */
  async find(token: string): Promise<Holder | null> {
    const tokenHash = hashOfToken(token);
    const known = this.get(tokenHash);
    if (known) return known;
    try {
      const asked = await this.#askOnce(token, tokenHash);
      return asked && this.#current(asked);
    } catch (error) {
      const recent = error instanceof Refusal && error.code === "unavailable" ? this.#within(tokenHash, rememberedInDoubt) : null;
      if (recent === null) throw error;
      return recent;
    }
  }

  #askOnce(token: string, tokenHash: string): Promise<Holder | null> {
    const asking = this.#asking.get(tokenHash);
    if (asking) return asking;
    const asked = this.#askAndRemember(token, tokenHash).finally(() => {
      if (this.#asking.get(tokenHash) === asked) this.#asking.delete(tokenHash);
    });
    this.#asking.set(tokenHash, asked);
    return asked;
  }

  async #askAndRemember(token: string, tokenHash: string): Promise<Holder | null> {
    const age = this.#age;
    const holder = await this.#ask(token, tokenHash);
    if (age !== this.#age) return holder;
    if (!holder) {
      this.#remembered.delete(tokenHash);
      return null;
    }
    this.#remembered.renew(tokenHash, { holder, at: this.#now() });
    return holder;
  }

  /** A token that is none of those that are looked up may be the one for reading, of the account that it names. */
  async #ask(token: string, tokenHash: string): Promise<Holder | null> {
    const { read } = this.#store;
    const account = await read.accountByToken(tokenHash);
    if (account) return isSame(account.token, token) ? { account, right: "all" } : null;
    const id = accountNamedBy(token);
    const named = id === null ? null : await read.account(id);
    if (named && named.deletedAt === undefined && isSame(readOnlyTokenOf(named), token)) return { account: named, right: "read" };
    const scoped = await read.tokenByHash(tokenHash);
    const owner = scoped && (scoped.account === named?.id ? named : await read.account(scoped.account));
    return scoped && owner && owner.deletedAt === undefined ? { account: owner, right: scopeOf(scoped), used: scoped } : null;
  }

  /** The same, if it has not ended by itself. Of a token with rights of its own it is noted that it was used. */
  #current(holder: Holder): Holder {
    const { right, used } = holder;
    if (used === undefined || typeof right !== "object") return holder;
    const now = this.#now();
    if (right.expiresAt !== null && right.expiresAt <= now)
      throw new Refusal("unauthorized", `token: it ended at ${new Date(right.expiresAt).toISOString()}; make another one`);
    if (!isUseNews(used, now)) return holder;
    holder.used = { ...used, usedAt: now };
    // Whether it could be noted makes no difference to the request.
    this.#store.execute("noteTokenUse", { account: used.account, id: used.id }, { canWait: true }).catch(() => undefined);
    return holder;
  }
}
