import { gainsAccountLimit, refreshAccountLimit } from "../admission/accountLimits.ts";
import { accountGate } from "../admission/gate.ts";
import { toLimiterKey } from "../admission/limiter.ts";
import type { Decision, Draft } from "../decision/command.ts";
import { RetryInNextBatch, Refusal } from "../values/errors.ts";
import { spans } from "../values/limits.ts";
import type { Account, AccountId, Millis, SigningKeys } from "../model/message.ts";
import { isRecentRotation } from "../accounts/standardWebhooks.ts";
import { requireActiveAccount, requireAccount, limitNames, readLimit, planNames, readPlan } from "../accounts/plans.ts";
import type { LimitName, Terms } from "../model/accountTerms.ts";
import { carriedBalancesId } from "../accounts/usage.ts";

/**
 * Makes an account, unless one with this id is there already. Answers the one that is there then. Throws `Refusal` while
 * anything is left of a deleted one: what it has left is nobody else's.
 */
export const createAccount: Decision<Omit<Account, "createdAt">, Account> = {
  needs: ({ id }) => ({ accounts: [[id]] }),
  decide: (account, draft, moment) => {
    const present = draft.get("accounts", account.id);
    if (present?.deletedAt !== undefined)
      throw new Refusal("conflict", `${account.id}: an account of this id was deleted, and its log is still kept; choose another id`);
    if (present) return present;
    const created = { ...account, createdAt: moment.now };
    draft.put("accounts", created);
    return created;
  },
};

/** What may be changed of an account. Of its limits as well what is given alone: null takes one back, and that of its plan holds again. */
export type AccountChange = Partial<
  Pick<Account, "customerId" | "plan" | "isPlanHeld" | "state" | "budget" | "reservedPrice" | "hasProductionPack" | "signsStandard">
> & { limits?: { readonly [L in LimitName]?: number | null } };

/**
 * The same account, with what is given changed, and the rest as it is. Throws `Refusal` for a daily warning that is given beyond the
 * requests that are refused: nobody would ever see it.
 */
export function withChange<A extends Terms>(account: A, { limits, ...change }: AccountChange): A {
  const changed = { ...account, ...change, ...(limits && { limits: mergeLimitChanges(account.limits, limits) }) };
  const warned = limits?.requestsPerDay;
  const refused = readLimit(changed, "requestsPerDayHard");
  if (typeof warned === "number" && warned > refused)
    throw new Refusal("invalid", `requestsPerDay: ${warned} is more than requestsPerDayHard, which is ${refused}; raise that as well`);
  return changed;
}

function mergeLimitChanges(ownLimits: Terms["limits"], change: NonNullable<AccountChange["limits"]>): NonNullable<Terms["limits"]> {
  const changed = { ...ownLimits };
  for (const name of limitNames) {
    const given = change[name];
    if (given === null) Reflect.deleteProperty(changed, name);
    else if (given !== undefined) changed[name] = given;
  }
  return changed;
}

/**
 * Changes what is given, and leaves the rest as it is, so that two who change different things at once undo nothing of each
 * other. A plan that is held is changed only by whoever holds it. Throws `Refusal`, also when there is no such account.
 */
export const changeAccount: Decision<{ account: AccountId; change: AccountChange }, Account> = {
  needs: ({ account }) => ({ accounts: [[account]], limiters: [toLimiterKey({ account, gate: accountGate })] }),
  decide: ({ account: id, change }, draft, moment) => {
    const account = requireAccount(draft.get("accounts", id));
    if (change.plan !== undefined && account.isPlanHeld && change.isPlanHeld === undefined)
      throw new Refusal("forbidden", "plan_name: the plan of this account is set by whoever runs the server");
    const isUpgrade = change.plan !== undefined && planNames.indexOf(change.plan) > planNames.indexOf(readPlan(account));
    const changed: Account = { ...withChange(account, change), ...(isUpgrade ? { upgradedAt: moment.now } : {}) };
    // Others of the batch have not seen the flows by which a limit counts that there was not before.
    if (gainsAccountLimit(account, changed) && !draft.isAlone()) throw new RetryInNextBatch();
    draft.put("accounts", changed);
    refreshAccountLimit(draft, moment, { account: id, gate: accountGate });
    return changed;
  },
};

/**
 * Gives an account a new password and a new token; the old ones end with this. A passive account gets them as well, so that
 * a leaked token can always be stopped; a deleted one does not. `replaces`: the hash of the token that went with the password
 * by which it is asked, so that of several who ask at once with an old one, one alone gets new ones. Throws `Refusal`, also when there is no such account.
 */
export const rotateToken: Decision<{ account: AccountId; replaces?: string } & Pick<Account, "password" | "token" | "tokenHash">, Account> =
  {
    needs: ({ account }) => ({ accounts: [[account]] }),
    decide: ({ account: id, replaces, ...secrets }, draft) => {
      const account = requireAccount(draft.get("accounts", id));
      if (isDeleted(account)) throw new Refusal("unauthorized", "account: it was deleted, and gets no new password");
      if (replaces !== undefined && replaces !== account.tokenHash)
        throw new Refusal("unauthorized", "account: the password was replaced by a new one a moment ago");
      const changed = { ...account, ...secrets };
      draft.put("accounts", changed);
      return changed;
    },
  };

/**
 * Leaves of a passive account what its log needs until it has gone (see `removeAccount`): the row, with nothing that anybody could prove it by, nor
 * whose it was. Throws `Refusal` for one that is active.
 */
export const deleteAccount: Decision<{ account: AccountId }, Account> = {
  needs: ({ account }) => ({ accounts: [[account]], dayCounts: [[account]], secondCounts: [[account]] }),
  decide: ({ account: id }, draft, moment) => {
    const account = requireAccount(draft.get("accounts", id));
    if (account.state !== "passive") throw new Refusal("invalid", `${id}: the account is active; disable it before it is deleted`);
    const { customerId: _customer, lastRotation: _rotation, ...rest } = account;
    // No text has such a hash, and no password or token is empty.
    const deleted: Account = { ...rest, name: "", password: "", token: "", tokenHash: `deleted ${id}`, deletedAt: moment.now };
    draft.put("accounts", deleted);
    dropCounts(draft, id);
    return deleted;
  },
};

export const isDeleted = ({ deletedAt }: Terms): boolean => deletedAt !== undefined;

/** When the row of a deleted account may go at the earliest: nothing of what it had under way is heard of any more. Null: it is not deleted. */
export const removableAt = ({ deletedAt }: Terms): Millis | null => (deletedAt === undefined ? null : deletedAt + spans.afterDeletion);

/**
 * Removes the row that deletion has left of an account, once its time has come. Whoever asks has seen that nothing else of it is
 * left; and nothing can come: nobody can prove to be its holder, and a report of a message that is gone changes nothing. Only beside
 * another account that is not deleted: a store without a row of any account is a new one, which makes its first account by itself.
 */
export const removeAccount: Decision<{ account: AccountId; remaining: AccountId }, { removed: boolean }> = {
  needs: ({ account, remaining }) => ({
    accounts: [[account], [remaining]],
    dayCounts: [[account]],
    secondCounts: [[account]],
    usage: [[account, carriedBalancesId]],
  }),
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

/** What counts the requests of an account. */
function dropCounts(draft: Draft, account: AccountId): void {
  for (const table of ["dayCounts", "secondCounts"] as const) if (draft.get(table, account)) draft.drop(table, account);
}

/**
 * Next becomes current, a new one becomes next. Receivers that know the old pair still verify, with their next; after a
 * second rotation they would not. So one that follows within a day is refused, unless it is forced. Throws `Refusal`.
 */
export const rotateKeys: Decision<{ account: AccountId; force?: boolean }, SigningKeys> = {
  needs: ({ account }) => ({ accounts: [[account]] }),
  decide: ({ account: id, force = false }, draft, moment) => {
    const account = requireActiveAccount(draft.get("accounts", id));
    if (!force) checkRotation(account, moment.now);
    const { current: key, next: current } = account.signingKeys;
    const signingKeys = { current, next: moment.newId("sig") };
    draft.put("accounts", { ...account, signingKeys, lastRotation: { at: moment.now, key } });
    return signingKeys;
  },
};

function checkRotation({ lastRotation }: Account, now: Millis): void {
  if (!lastRotation || !isRecentRotation(lastRotation.at, now)) return;
  const [last, next] = [lastRotation.at, lastRotation.at + spans.rotation].map((at) => new Date(at).toISOString());
  throw new Refusal(
    "conflict",
    `keys: they were rotated at ${last} already; receivers that have the keys from before that would be locked out by another rotation. ` +
      `Give them those of GET /v2/keys, and rotate again from ${next} on; force=true rotates now`,
  );
}
