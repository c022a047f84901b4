import { copyText } from "../../engine/core/caches/copyText.ts";
import { shouldNoteUse } from "../../engine/core/commands/token.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { SessionCredential } from "../../engine/core/model/consoleSession.ts";
import { type Scope, type Token, toScope } from "../../engine/core/model/rights.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { Store } from "../../engine/store/store.ts";
import { findRevoked } from "../../engine/core/accounts/revokedTokens.ts";
import type { AttemptOrigin, Attempts } from "./lockout.ts";
import type { RefusedToken } from "./tokenRefusal.ts";
import { TokenRefusal } from "./tokenRefusal.ts";
import { parseAccountId, hashToken, isSameSecret, makeReadOnlyToken } from "./token.ts";
import { BoundedMap } from "../../engine/core/caches/boundedMap.ts";
import { minute, second } from "../../engine/core/values/time.ts";

/**
 * The account that a request has proved, the token, and what the token allows. If `by` is "header", the
 * header is for this server and is not forwarded. The token is never logged. `session` is present if the
 * request belongs to a session of the console.
 */
export type Proof = {
  account: Account;
  by: "header" | "query";
  token: string;
  right: Right;
  session?: SessionIdentity;
};

/**
 * The session of a request: the name of its person, and the hash under which it is stored. `opener` is the
 * credential that opened it.
 */
export type SessionIdentity = { name: string; hash: string; opener: SessionCredential; expiresAt: Millis };

/**
 * The rights of a token: all rights of its account, its account's right to read, or the token's own scope.
 */
export type Right = "all" | "read" | Scope;

/** The tokens of a request: the Authorization header as received, and the value of the token parameter. */
export type RequestTokens = {
  authorization: string | undefined;
  parameter: string | null;
  /** Returns the client that sent the tokens. */
  from(): AttemptOrigin;
} & Look;

/** How credentials are looked up. */
export type Look = {
  /** Where a failed attempt counts. */
  attempts: Attempts;
  /** Whether the credentials are read as they are stored now, and not from a cache. */
  isFresh: boolean;
};

/**
 * How long a looked-up token is used. A change on another node takes effect within this time, even if the
 * notification of the change was lost.
 */
const cacheTime: Millis = 5 * second;
/** While the storage is unavailable, a token that was valid within this time stays valid. */
const cacheTimeInDoubt: Millis = minute;
const maxCachedTokens = 1_000;

type Authenticator = {
  /**
   * Returns the proof of a bearer token that is cached, or null. Does not ask the store. Throws `Refusal`.
   */
  getCached(authorization: string | undefined): Proof | null;
  /**
   * Looks up a token in the store and caches it. An unknown token is not counted as a failed attempt. Never
   * rejects.
   */
  lookUp(authorization: string): Promise<unknown>;
  /** Finds the account of a request. Throws `Refusal` if there is no valid token. */
  authenticate(tokens: RequestTokens): Promise<Proof>;
};

/**
 * Creates the functions that find the account of a request. The token in the header takes precedence over the
 * token in the query. If the header has an unknown bearer token and the query has a valid token, the header
 * is meant for the destination.
 */
export function createAuthenticator({ store, now }: { store: Store; now(): Millis }): Authenticator {
  const tokenCache = new TokenCache(store, now);
  const prove = async (bearer: string | undefined, tokens: RequestTokens): Promise<Proof> => {
    const { parameter, from, attempts, isFresh } = tokens;
    const byHeader = bearer === undefined ? null : await tokenCache.find(bearer, isFresh);
    if (isHolder(byHeader) && bearer !== undefined) return { ...byHeader, by: "header", token: bearer };
    const byQuery = parameter === null ? null : await tokenCache.find(parameter, isFresh);
    if (isHolder(byQuery) && parameter !== null) return { ...byQuery, by: "query", token: parameter };
    if (bearer === undefined && parameter === null) throw new Refusal("unauthorized", missingTokenMessage);
    const refused = [byHeader, byQuery].find(isRefused);
    const refusal = attempts.recordFailure(from(), new Refusal("unauthorized", unknownTokenMessage));
    throw refused ? new TokenRefusal(refusal, refused) : refusal;
  };
  return {
    getCached: (authorization) => {
      const bearer = parseBearer(authorization);
      const known = bearer === undefined ? null : tokenCache.getByToken(bearer);
      return known && bearer !== undefined ? { ...known, by: "header", token: bearer } : null;
    },
    lookUp: async (authorization) => {
      const bearer = parseBearer(authorization);
      if (bearer !== undefined) await tokenCache.find(bearer, false).catch(() => null);
    },
    authenticate: (tokens) => prove(parseBearer(tokens.authorization), tokens),
  };
}

const parseBearer = (authorization: string | undefined): string | undefined =>
  authorization === undefined ? undefined : /^Bearer +(\S+) *$/i.exec(authorization)?.[1];

const unknownTokenMessage =
  "token: not valid on this server, replaced or revoked; " +
  '"waypost credentials" prints the account\'s current token';
const missingTokenMessage =
  "token: missing; send the header Authorization: Bearer <token>, or the query parameter svc_token";

/** Reports whether a request was refused because it has no token. */
export const isWithoutToken = (error: unknown): boolean =>
  error instanceof Refusal && error.message === missingTokenMessage;

/**
 * The account of a token and its rights. `usedToken`: present if the token has its own scope; has the last
 * use of the token as far as this node knows.
 */
type Holder = Pick<Proof, "account" | "right"> & { usedToken?: Pick<Token, "account" | "id" | "usedAt"> };

/** The holder of a token. If it has none: what is known of the token, or null if it names no account. */
type Found = Holder | RefusedToken | null;

const isHolder = (found: Found): found is Holder => found !== null && "right" in found;
const isRefused = (found: Found): found is RefusedToken => found !== null && !isHolder(found);

/** Returns what is known of a token without a holder. `named` is the account that the token names. */
function describeRefused(named: Account | null, tokenHash: string): RefusedToken | null {
  if (!named || named.deletedAt !== undefined) return null;
  const revoked = findRevoked(named, tokenHash);
  return revoked
    ? { account: named.id, id: revoked.id, reason: "revoked" }
    : { account: named.id, id: "unknown", reason: "unauthorized" };
}

/** Caches valid tokens only, so a new token is valid at once. */
class TokenCache {
  readonly #store: Store;
  readonly #now: () => Millis;
  readonly #cached = new BoundedMap<string, { holder: Holder; at: Millis }>(maxCachedTokens);
  /**
   * The hashes of tokens that were found in the cache. Most requests repeat a token, and a hash takes longer
   * than a look-up. A string that is not a valid token is never kept. The time shows only whether the whole
   * token was sent before.
   */
  readonly #hashes = new BoundedMap<string, string>(maxCachedTokens);
  /** Look-ups in flight. All requests with one token share one look-up. */
  readonly #pending = new Map<string, Promise<Found>>();
  /**
   * Incremented when the cache is cleared. A look-up that began before the cache was cleared is out of date
   * and must not be cached.
   */
  #generation = 0;

  constructor(store: Store, now: () => Millis) {
    this.#store = store;
    this.#now = now;
    store.onAccounts(() => {
      this.#generation++;
      this.#cached.clear();
      this.#hashes.clear();
      // A later request must not share a look-up that began before the change.
      this.#pending.clear();
    });
  }

  /** Like `get`, for the token itself. */
  getByToken(token: string): Holder | null {
    const knownHash = this.#hashes.get(token);
    const tokenHash = knownHash ?? hashToken(token);
    const holder = this.get(tokenHash);
    if (holder && knownHash === undefined) this.#hashes.set(copyText(token), tokenHash);
    if (!holder && knownHash !== undefined) this.#hashes.delete(token);
    return holder;
  }

  /** Returns the holder of a token if it is cached, otherwise null. */
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

  /**
   * Returns the holder of a token, from the cache unless `isFresh`, or from the store. If there is none,
   * returns what is known of the token, or null if it names no account. Throws `Refusal`:
   * "unavailable" if the storage does not answer and no recent look-up is cached.
   */
  async find(token: string, isFresh: boolean): Promise<Found> {
    const tokenHash = hashToken(token);
    const known = isFresh ? null : this.get(tokenHash);
    if (known) return known;
    try {
      const found = await this.#lookUpOnce(token, tokenHash);
      return isHolder(found) ? this.#checkHolder(found) : found;
    } catch (error) {
      const recent =
        error instanceof Refusal && error.code === "unavailable"
          ? this.#getWithin(tokenHash, cacheTimeInDoubt)
          : null;
      if (recent === null) throw error;
      return recent;
    }
  }

  #lookUpOnce(token: string, tokenHash: string): Promise<Found> {
    const asking = this.#pending.get(tokenHash);
    if (asking) return asking;
    const lookUp = this.#lookUpAndCache(token, tokenHash).finally(() => {
      if (this.#pending.get(tokenHash) === lookUp) this.#pending.delete(tokenHash);
    });
    this.#pending.set(tokenHash, lookUp);
    return lookUp;
  }

  async #lookUpAndCache(token: string, tokenHash: string): Promise<Found> {
    const generation = this.#generation;
    const holder = await this.#lookUp(token, tokenHash);
    if (generation !== this.#generation) return holder;
    if (!isHolder(holder)) {
      this.#cached.delete(tokenHash);
      return holder;
    }
    this.#cached.renew(tokenHash, { holder, at: this.#now() });
    return holder;
  }

  /**
   * Looks up a token in the store. A token that is not stored may be the read-only token of the account that
   * it names.
   */
  async #lookUp(token: string, tokenHash: string): Promise<Found> {
    const { read } = this.#store;
    const account = await read.accountByToken(tokenHash);
    if (account) return isSameSecret(account.token, token) ? { account, right: "all" } : null;
    const id = parseAccountId(token);
    const named = id === null ? null : await read.account(id);
    if (named && named.deletedAt === undefined && isSameSecret(makeReadOnlyToken(named), token))
      return { account: named, right: "read" };
    const scoped = await read.tokenByHash(tokenHash);
    const owner = scoped && (scoped.account === named?.id ? named : await read.account(scoped.account));
    return scoped && owner && owner.deletedAt === undefined
      ? { account: owner, right: toScope(scoped), usedToken: scoped }
      : describeRefused(named, tokenHash);
  }

  /**
   * Returns the holder if its token has not expired, otherwise throws `Refusal`. Records the use of a token
   * that has its own scope.
   */
  #checkHolder(holder: Holder): Holder {
    const { right, usedToken } = holder;
    if (usedToken === undefined || typeof right !== "object") return holder;
    const now = this.#now();
    if (right.expiresAt !== null && right.expiresAt <= now) {
      const message = `token: expired at ${new Date(right.expiresAt).toISOString()}; create another`;
      const { account, id } = usedToken;
      throw new TokenRefusal(new Refusal("unauthorized", message), { account, id, reason: "expired" });
    }
    if (!shouldNoteUse(usedToken, now)) return holder;
    holder.usedToken = { ...usedToken, usedAt: now };
    // The request succeeds even if the use could not be recorded.
    this.#store
      .execute("noteTokenUse", { account: usedToken.account, id: usedToken.id }, { canWait: true })
      .catch(() => undefined);
    return holder;
  }
}
