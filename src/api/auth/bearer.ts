import { Refusal } from "../../core/values/errors.ts";
import type { Account, Millis } from "../../core/model/message.ts";
import type { Scope, Token } from "../../core/model/rights.ts";
import { shouldNoteUse } from "../../core/commands/token.ts";
import { toScope } from "../../core/model/rights.ts";
import type { Store } from "../../store/store.ts";
import type { Lockout, AttemptOrigin } from "./lockout.ts";
import { parseAccountId, hashToken, isSameSecret, makeReadOnlyToken } from "./token.ts";
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
export type GivenTokens = {
  authorization: string | undefined;
  parameter: string | null;
  /** Where they came from. */ from(): AttemptOrigin;
};

/** An account is asked for again after this, so what changed on another node is known soon, also where word of it was lost. */
const cacheTime: Millis = 5 * second;
/** While the storage is unavailable, a token that was valid this recently still is. */
const cacheTimeInDoubt: Millis = minute;
const maxCachedTokens = 1_000;

type Authenticator = {
  /** Whose the bearer token is when it was used a moment ago, without asking the store. Throws `Refusal`. */
  getCached(authorization: string | undefined): Proof | null;
  /** Asks the store whose it is, so that it is known from then on. That it is nobody's is not counted as a try. Never rejects. */
  lookUp(authorization: string): Promise<unknown>;
  /** Throws `Refusal`. */
  authenticate(tokens: GivenTokens): Promise<Proof>;
};

/**
 * Finds the account of a request. The header wins. A bearer token in it that is none of ours, beside a good token in the
 * query, is the caller's own business with the destination. Throws `Refusal` when there is no good token.
 */
export function createAuthenticator({ store, now, lockout }: { store: Store; now(): Millis; lockout: Lockout }): Authenticator {
  const tokenCache = new TokenCache(store, now);
  const prove = async (bearer: string | undefined, { parameter, from }: GivenTokens): Promise<Proof> => {
    const byHeader = bearer === undefined ? null : await tokenCache.find(bearer);
    if (byHeader && bearer !== undefined) return { ...byHeader, by: "header", token: bearer };
    const byQuery = parameter === null ? null : await tokenCache.find(parameter);
    if (byQuery && parameter !== null) return { ...byQuery, by: "query", token: parameter };
    if (bearer === undefined && parameter === null) throw new Refusal("unauthorized", missingTokenMessage);
    throw lockout.recordFailure(from(), new Refusal("unauthorized", unknownTokenMessage));
  };
  return {
    getCached: (authorization) => {
      const bearer = parseBearer(authorization);
      const known = bearer === undefined ? null : tokenCache.get(hashToken(bearer));
      return known && bearer !== undefined ? { ...known, by: "header", token: bearer } : null;
    },
    lookUp: async (authorization) => {
      const bearer = parseBearer(authorization);
      if (bearer !== undefined) await tokenCache.find(bearer).catch(() => null);
    },
    authenticate: (tokens) => prove(parseBearer(tokens.authorization), tokens),
  };
}

const parseBearer = (authorization: string | undefined): string | undefined =>
  authorization === undefined ? undefined : /^Bearer +(\S+) *$/i.exec(authorization)?.[1];

const unknownTokenMessage =
  "token: unknown; it may be that of another server, have been replaced, or revoked: waypost credentials prints the one of the account";
const missingTokenMessage = "token: missing; send the header Authorization: Bearer <token>, or the query parameter svc_token";

/** `used`: of a token with rights of its own, when it was used last, as far as it is known here. */
type Holder = Pick<Proof, "account" | "right"> & { usedToken?: Pick<Token, "account" | "id" | "usedAt"> };

/** Only hits are remembered: a token that is made now is good now. */
class TokenCache {
  readonly #store: Store;
  readonly #now: () => Millis;
  readonly #cached = new BoundedMap<string, { holder: Holder; at: Millis }>(maxCachedTokens);
  /** Look-ups in flight: all requests with one token share one. */
  readonly #pending = new Map<string, Promise<Holder | null>>();
  /** Counts how often all was forgotten: what was read before is out of date then. */
  #generation = 0;

  constructor(store: Store, now: () => Millis) {
    this.#store = store;
    this.#now = now;
    store.onAccounts(() => {
      this.#generation++;
      this.#cached.clear();
      // Whoever asks from now on must not share what was read before the change.
      this.#pending.clear();
    });
  }

  /** Whose token it is, if that is remembered. */
  get(tokenHash: string): Holder | null {
    return this.#getWithin(tokenHash, this.#store.isInDoubt() ? cacheTimeInDoubt : cacheTime);
  }

  #getWithin(tokenHash: string, limit: Millis): Holder | null {
    const known = this.#cached.get(tokenHash);
    if (!known) return null;
    const age = this.#now() - known.at;
    if (age >= 0 && age < limit) return this.#checkHolder(known.holder);
    if (age < 0 || age >= cacheTimeInDoubt) this.#cached.delete(tokenHash);
    return null;
  }

  /** Whose token it is, asked for if need be. Throws `Refusal`: unavailable if the storage cannot tell and nothing recent is remembered. */
  async find(token: string): Promise<Holder | null> {
    const tokenHash = hashToken(token);
    const known = this.get(tokenHash);
    if (known) return known;
    try {
      const found = await this.#lookUpOnce(token, tokenHash);
      return found && this.#checkHolder(found);
    } catch (error) {
      const recent = error instanceof Refusal && error.code === "unavailable" ? this.#getWithin(tokenHash, cacheTimeInDoubt) : null;
      if (recent === null) throw error;
      return recent;
    }
  }

  #lookUpOnce(token: string, tokenHash: string): Promise<Holder | null> {
    const asking = this.#pending.get(tokenHash);
    if (asking) return asking;
    const asked = this.#lookUpAndCache(token, tokenHash).finally(() => {
      if (this.#pending.get(tokenHash) === asked) this.#pending.delete(tokenHash);
    });
    this.#pending.set(tokenHash, asked);
    return asked;
  }

  async #lookUpAndCache(token: string, tokenHash: string): Promise<Holder | null> {
    const generation = this.#generation;
    const holder = await this.#lookUp(token, tokenHash);
    if (generation !== this.#generation) return holder;
    if (!holder) {
      this.#cached.delete(tokenHash);
      return null;
    }
    this.#cached.renew(tokenHash, { holder, at: this.#now() });
    return holder;
  }

  /** A token that is none of those that are looked up may be the one for reading, of the account that it names. */
  async #lookUp(token: string, tokenHash: string): Promise<Holder | null> {
    const { read } = this.#store;
    const account = await read.accountByToken(tokenHash);
    if (account) return isSameSecret(account.token, token) ? { account, right: "all" } : null;
    const id = parseAccountId(token);
    const named = id === null ? null : await read.account(id);
    if (named && named.deletedAt === undefined && isSameSecret(makeReadOnlyToken(named), token)) return { account: named, right: "read" };
    const scoped = await read.tokenByHash(tokenHash);
    const owner = scoped && (scoped.account === named?.id ? named : await read.account(scoped.account));
    return scoped && owner && owner.deletedAt === undefined ? { account: owner, right: toScope(scoped), usedToken: scoped } : null;
  }

  /** The same, if it has not ended by itself. Of a token with rights of its own it is noted that it was used. */
  #checkHolder(holder: Holder): Holder {
    const { right, usedToken } = holder;
    if (usedToken === undefined || typeof right !== "object") return holder;
    const now = this.#now();
    if (right.expiresAt !== null && right.expiresAt <= now)
      throw new Refusal("unauthorized", `token: it ended at ${new Date(right.expiresAt).toISOString()}; make another one`);
    if (!shouldNoteUse(usedToken, now)) return holder;
    holder.usedToken = { ...usedToken, usedAt: now };
    // Whether it could be noted makes no difference to the request.
    this.#store.execute("noteTokenUse", { account: usedToken.account, id: usedToken.id }, { canWait: true }).catch(() => undefined);
    return holder;
  }
}
