import { returnUncounted } from "../attempts/applyOutcome.ts";
import type { Decision } from "../decision/command.ts";
import { countEnd } from "../admission/counters.ts";
import { endLease, findLeased, readStart, toLeaseRef } from "../admission/lease.ts";
import { isUnfinished } from "../model/messageState.ts";
import type { LeaseRef, ReturnedLease } from "../model/messageState.ts";
import { noResponse, recordRequestEnd } from "../sending/recordOutcome.ts";
import { givenBackError, recordEndedAttempt } from "../sending/endedAttempt.ts";
import { spans } from "../values/limits.ts";
import { dropMessage, hasRunEnded } from "../workflows/end.ts";
import { endOwner } from "../workflows/progress.ts";

/**
 * Renews the leases of messages that this node is still sending, and aborts those that were cancelled or
 * ended on another node.
 */
export const renew: Decision<{ leases: readonly LeaseRef[] }, { renewed: number }> = {
  decide: ({ leases }, draft, moment) => {
    const states = leases.flatMap((one) => findLeased(draft, moment, one) ?? []);
    for (const state of states) {
      const startedAt = readStart(state) ?? moment.now;
      draft.put("messages", { ...state, startedAt, dueAt: moment.now + spans.lease });
      if (state.state === "cancelling" || state.state === "ending") draft.abort(toLeaseRef(state));
    }
    return { renewed: states.length };
  },
};

const givenBack = { ...noResponse, error: givenBackError };

/**
 * Gives back leases of messages that this node will not send, because it is shutting down. This does not
 * count as an attempt. If somebody may have the token of an attempt, the next one has another number, and so
 * another token. Messages of runs that have ended are dropped.
 */
export const returnLeases: Decision<{ leases: readonly ReturnedLease[] }, { returned: number }> = {
  decide: ({ leases }, draft, moment) => {
    let returned = 0;
    for (const one of leases) {
      const state = findLeased(draft, moment, one);
      // A lease that is named twice is returned once.
      if (!state) continue;
      returned++;
      if (!isUnfinished(state)) recordRequestEnd(draft, moment, { state, outcome: noResponse });
      else if (hasRunEnded(draft, state)) dropMessage(draft, moment, state);
      else if (state.state === "ending") recordEndedAttempt(draft, moment, { state, outcome: noResponse });
      else if (one.hasToken) returnUncounted(draft, moment, { state, outcome: givenBack });
      else {
        countEnd(draft, moment, state);
        endOwner(draft, state);
        draft.put("messages", { ...endLease(draft, state), dueAt: moment.now });
      }
    }
    return { returned };
  },
};
