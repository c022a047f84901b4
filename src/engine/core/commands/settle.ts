import type { Decision } from "../decision/command.ts";
import { findLeased } from "../admission/lease.ts";
import { checkSoon, findHostWaitlist, serveHostWaitlist } from "../admission/waitlist.ts";
import { applyOutcome, listAwaited, serveAwaited } from "../attempts/applyOutcome.ts";
import type { Settled } from "../attempts/applyOutcome.ts";
import type { Outcome } from "../model/attempt.ts";

/**
 * Records the outcome of one attempt: the message is delivered, retried or failed, and its callbacks are
 * created. The waitlists of the gates that the message leaves are served.
 */
export const settle: Decision<Outcome, Settled> = {
  hint: ({ account, messageId, host }) => ({
    accounts: [[account]],
    messages: [[account, messageId]],
    hostWaitlists: [[account, host]],
  }),
  decide: (outcome, draft, moment) => {
    const state = findLeased(draft, moment, outcome);
    const account = draft.get("accounts", outcome.account);
    const isBehind = draft.capacity.hasBacklog(outcome.account);
    const limiters = isBehind ? [] : listAwaited(draft, state);
    const settled: Settled =
      state && account ? applyOutcome(draft, moment, { account, state, outcome }) : { became: "late" };
    const waitlist = findHostWaitlist(draft, outcome);
    if (waitlist && isBehind) checkSoon(draft, moment, waitlist);
    else if (waitlist) serveHostWaitlist(draft, moment, { waitlist });
    serveAwaited(draft, moment, limiters);
    return settled;
  },
};
