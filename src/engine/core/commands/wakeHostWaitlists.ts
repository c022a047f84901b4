import type { Decision } from "../decision/command.ts";
import type { AccountId } from "../values/basics.ts";
import { findHostWaitlist, checkSoon } from "../admission/waitlist.ts";

/**
 * Makes the next claim serve the waitlists of these hosts, because their account may start deliveries again.
 */
export const wakeHostWaitlists: Decision<
  { account: AccountId; hosts: readonly string[] },
  { woken: number }
> = {
  decide: ({ account, hosts }, draft, moment) => {
    const waitlists = hosts.flatMap((host) => findHostWaitlist(draft, { account, host }) ?? []);
    for (const waitlist of waitlists) checkSoon(draft, moment, waitlist);
    return { woken: waitlists.length };
  },
};
