import { findPulledOrigin, readOriginHost } from "../accounts/pulledOrigins.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import { findHostWaitlist, serveHostWaitlist } from "../admission/waitlist.ts";
import type { Decision } from "../decision/command.ts";
import type { Account } from "../model/account.ts";
import { Refusal } from "../values/errors.ts";
import { limits } from "../values/limits.ts";
import type { AccountId } from "../values/basics.ts";

/** An origin of an account. `name` has been normalized. */
type NamedOrigin = { account: AccountId; name: string };

/** Declares that messages to an origin are pulled. Messages that are being sent are not affected. */
export const addPulledOrigin: Decision<NamedOrigin, { origin: string }> = {
  decide: ({ account: id, name }, draft, moment) => {
    const account = requireActiveAccount(draft.get("accounts", id));
    const { key, origins } = account.pulled ?? { key: moment.newId("sig"), origins: [] };
    const other = findPulledOrigin(account, readOriginHost(name));
    if (other === name) return { origin: name };
    if (other !== undefined)
      throw new Refusal("conflict", `origin: ${other} is pulled, and both schemes of a host are the same`);
    if (origins.length >= limits.pulledOrigins)
      throw new Refusal(
        "limit-exceeded",
        `origin: the account has ${limits.pulledOrigins} pulled origins, which is the limit; remove one`,
      );
    const changed: Account = { ...account, pulled: { key, origins: [...origins, name].toSorted() } };
    draft.put("accounts", changed);
    return { origin: name };
  },
};

/** Ends that an origin is pulled. Waiting messages are sent. Attempts that pullers hold stay held. */
export const removePulledOrigin: Decision<NamedOrigin, { deleted: boolean }> = {
  decide: ({ account: id, name }, draft, moment) => {
    const account = requireActiveAccount(draft.get("accounts", id));
    const { pulled } = account;
    const declared = findPulledOrigin(account, readOriginHost(name));
    if (!pulled || declared === undefined) return { deleted: false };
    const origins = pulled.origins.filter((origin) => origin !== declared);
    draft.put("accounts", { ...account, pulled: { ...pulled, origins } });
    // Due work, even if no message waits: other nodes then look for what their pulls wait for.
    const lane = { account: id, host: readOriginHost(name) };
    draft.put("hostWaitlists", { ...findHostWaitlist(draft, lane), ...lane, dueAt: moment.now });
    return { deleted: true };
  },
};

/**
 * Gives the first waiting messages of a host to the pullers of this node, up to `limit`. Reports whether
 * others still wait, and whether the origin is pulled.
 */
export const servePullers: Decision<
  { account: AccountId; host: string; limit: number },
  { areLeft: boolean; isPulled: boolean }
> = {
  hint: ({ account, host }) => ({ accounts: [[account]], hostWaitlists: [[account, host]] }),
  decide: ({ account, host, limit }, draft, moment) => {
    const owner = draft.get("accounts", account);
    const isPulled = owner !== undefined && findPulledOrigin(owner, host) !== undefined;
    const waitlist = findHostWaitlist(draft, { account, host });
    if (waitlist) serveHostWaitlist(draft, moment, { waitlist, limit });
    return { areLeft: findHostWaitlist(draft, { account, host }) !== undefined, isPulled };
  },
};
