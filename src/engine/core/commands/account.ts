import { refreshAccountLimit } from "../admission/accountLimits.ts";
import { accountGate } from "../admission/gate.ts";
import type { Decision, Draft } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import { spans } from "../values/limits.ts";
import type { Account, SigningKeys, AccountChange } from "../model/account.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import { normalizeAllowedHosts } from "../accounts/allowedHosts.ts";
import { withRevoked } from "../accounts/revokedTokens.ts";
import { isRecentRotation } from "../accounts/signingKeys.ts";
import {
  requireActiveAccount,
  requireAccount,
  limitNames,
  readLimit,
  planNames,
  readPlan,
} from "../accounts/plans.ts";
import type { Terms } from "../model/accountTerms.ts";
import { carriedBalancesId } from "../accounts/usage.ts";

/**
 * Creates an account and returns it. If an account with this id exists, returns the existing account. Throws
 * `Refusal` while rows of a deleted account with this id remain, so that no other account gets these rows.
 */
export const createAccount: Decision<Omit<Account, "createdAt">, Account> = {
  decide: (account, draft, moment) => {
    const present = draft.get("accounts", account.id);
    if (present?.deletedAt !== undefined)
      throw new Refusal(
        "conflict",
        `${account.id}: an account with this id was deleted and its log is still kept; choose another id`,
      );
    if (present) return present;
    const created = { ...account, createdAt: moment.now };
    draft.put("accounts", created);
    return created;
  },
};

/**
 * Returns the account with a change. Throws `Refusal` if the number of requests for the daily warning exceeds
 * the number at which requests are refused, because the warning could never be shown.
 */
export function withChange<A extends Terms>(
  account: A,
  { limits, allowedHosts, ...change }: AccountChange,
): A {
  const changed = {
    ...account,
    ...change,
    ...(allowedHosts !== undefined && { allowedHosts: allowedHosts && normalizeAllowedHosts(allowedHosts) }),
    ...(limits && { limits: mergeLimitChanges(account.limits, limits) }),
  };
  const warned = limits?.requestsPerDay;
  const refused = readLimit(changed, "requestsPerDayHard");
  if (typeof warned === "number" && warned > refused)
    throw new Refusal(
      "invalid",
      `requestsPerDay: ${warned} exceeds requestsPerDayHard (${refused}); raise requestsPerDayHard as well`,
    );
  return changed;
}

function mergeLimitChanges(
  ownLimits: Terms["limits"],
  change: NonNullable<AccountChange["limits"]>,
): NonNullable<Terms["limits"]> {
  const changed = { ...ownLimits };
  for (const name of limitNames) {
    const value = change[name];
    if (value === null) Reflect.deleteProperty(changed, name);
    else if (value !== undefined) changed[name] = value;
  }
  return changed;
}

/**
 * Changes the given fields of an account and leaves the others, so that two callers who change different
 * fields at once do not undo each other's changes. Only the operator may change a plan that the operator has
 * set. Throws `Refusal` for other callers, and if the account does not exist.
 */
export const changeAccount: Decision<{ account: AccountId; change: AccountChange }, Account> = {
  decide: ({ account: id, change }, draft, moment) => {
    const account = requireAccount(draft.get("accounts", id));
    if (change.plan !== undefined && account.isPlanHeld && change.isPlanHeld === undefined)
      throw new Refusal(
        "forbidden",
        "plan_name: the operator has set the plan of this account; ask the operator to change it",
      );
    const isUpgrade =
      change.plan !== undefined && planNames.indexOf(change.plan) > planNames.indexOf(readPlan(account));
    const changed: Account = {
      ...withChange(account, change),
      ...(isUpgrade ? { upgradedAt: moment.now } : {}),
    };
    draft.put("accounts", changed);
    refreshAccountLimit(draft, moment, { account: id, gate: accountGate });
    return changed;
  },
};

/**
 * Replaces the password and the token of an account. The old ones stop working, and all sessions end. This is
 * allowed for a disabled account, so that a leaked token can always be revoked, but not for a deleted one.
 * `replaces` is the hash of the token that belonged to the caller's password: if several callers use the same
 * old password at once, only one of them gets new ones. Throws `Refusal`, also if the account does not exist.
 */
export const rotateToken: Decision<
  { account: AccountId; replaces?: string } & Pick<Account, "password" | "token" | "tokenHash">,
  Account
> = {
  decide: ({ account: id, replaces, ...secrets }, draft) => {
    const account = requireAccount(draft.get("accounts", id));
    if (isDeleted(account))
      throw new Refusal("unauthorized", "account: deleted; it cannot get a new password");
    if (replaces !== undefined && replaces !== account.tokenHash)
      throw new Refusal("unauthorized", "account: this password was just replaced; use the new one");
    const { sessions: _ended, ...rest } = account;
    const replaced = { hash: account.tokenHash, id: "main", name: "" };
    const changed = { ...withRevoked(rest, replaced), ...secrets };
    draft.put("accounts", changed);
    return changed;
  },
};

/**
 * Deletes a disabled account. Its row stays until its log has expired (see `removeAccount`), without
 * credentials and without its owner. Throws `Refusal` for an active account.
 */
export const deleteAccount: Decision<{ account: AccountId }, Account> = {
  decide: ({ account: id }, draft, moment) => {
    const account = requireAccount(draft.get("accounts", id));
    if (account.state !== "passive")
      throw new Refusal("invalid", `${id}: the account is active; disable it before you delete it`);
    const {
      customerId: _customer,
      lastRotation: _rotation,
      sessions: _ended,
      revoked: _revoked,
      ...rest
    } = account;
    // No text has this hash, and an empty password or token is never accepted.
    const deleted: Account = {
      ...rest,
      name: "",
      password: "",
      token: "",
      tokenHash: `deleted ${id}`,
      deletedAt: moment.now,
    };
    draft.put("accounts", deleted);
    dropCounts(draft, id);
    return deleted;
  },
};

/** Reports whether an account was deleted. */
export const isDeleted = ({ deletedAt }: Terms): boolean => deletedAt !== undefined;

/**
 * Returns the earliest time at which the row of a deleted account may be removed. By then, none of its
 * deliveries can report an outcome any more. Null: the account was not deleted.
 */
export const removableAt = ({ deletedAt }: Terms): Millis | null =>
  deletedAt === undefined ? null : deletedAt + spans.afterDeletion;

/**
 * Removes the row of a deleted account once its `removableAt` has passed. The caller has checked that nothing
 * else of the account is left. Nothing can be added: the account has no credentials, and the report of a
 * message that is gone changes nothing.
 *
 * Does nothing unless another account remains. A store without an account counts as new, and the server would
 * create a first account in it.
 */
export const removeAccount: Decision<{ account: AccountId; remaining: AccountId }, { removed: boolean }> = {
  decide: ({ account: id, remaining }, draft, moment) => {
    const account = draft.get("accounts", id);
    const at = account ? removableAt(account) : null;
    const other = draft.get("accounts", remaining);
    if (at === null || moment.now < at || other === undefined || isDeleted(other)) return { removed: false };
    if (draft.get("usage", id, carriedBalancesId)) draft.drop("usage", id, carriedBalancesId);
    dropCounts(draft, id);
    draft.drop("accounts", id);
    return { removed: true };
  },
};

/** Removes the rows that count the requests of an account. */
function dropCounts(draft: Draft, account: AccountId): void {
  for (const table of ["dayCounts", "secondCounts"] as const)
    if (draft.get(table, account)) draft.drop(table, account);
}

/**
 * Rotates the signing keys: the next key becomes the current one, and a new key becomes the next one.
 * Receivers that know only the old pair can still verify signatures, because their next key is now the
 * current key. After a second rotation they could not. A second rotation within a day is therefore refused
 * unless it is forced. Throws `Refusal`.
 */
export const rotateKeys: Decision<{ account: AccountId; force?: boolean }, SigningKeys> = {
  decide: ({ account: id, force = false }, draft, moment) => {
    const account = requireActiveAccount(draft.get("accounts", id));
    if (!force) assertMayRotate(account, moment.now);
    const { current: key, next: current } = account.signingKeys;
    const signingKeys = { current, next: moment.newId("sig") };
    draft.put("accounts", { ...account, signingKeys, lastRotation: { at: moment.now, key } });
    return signingKeys;
  },
};

function assertMayRotate({ lastRotation }: Account, now: Millis): void {
  if (!lastRotation || !isRecentRotation(lastRotation.at, now)) return;
  const last = new Date(lastRotation.at).toISOString();
  const after = new Date(lastRotation.at + spans.rotation).toISOString();
  throw new Refusal(
    "conflict",
    `keys: already rotated at ${last}; another rotation would lock out receivers that have older keys`,
    { remedy: { remedy: "rotate-later", after } },
  );
}
