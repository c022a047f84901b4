import type { Account, RevokedToken } from "../model/account.ts";
import type { Token } from "../model/rights.ts";

/** The number of revoked tokens that an account remembers. */
const maxRevoked = 20;
/** The rights of a revoked token are kept unless its destinations are longer than this together. */
const maxDestinationsLength = 1_000;

/** Returns what an account remembers of a token. Its rights help to create its successor. */
export const toRevoked = ({ id, hash, name, verbs, destinations }: Token): RevokedToken => ({
  ...{ hash, id, name },
  ...(destinations.join("").length <= maxDestinationsLength && { rights: { verbs, destinations } }),
});

/**
 * Returns an account that remembers a token that is no longer valid, so that requests with it differ from
 * those with a token that never existed. A deleted account remembers nothing.
 */
export const withRevoked = <A extends Account>(account: A, token: RevokedToken): A =>
  account.deletedAt === undefined
    ? { ...account, revoked: [...(account.revoked ?? []).slice(1 - maxRevoked), token] }
    : account;

/** Returns the revoked token of an account with this hash, or null. */
export const findRevoked = ({ revoked }: Pick<Account, "revoked">, hash: string): RevokedToken | null =>
  revoked?.find((one) => one.hash === hash) ?? null;
