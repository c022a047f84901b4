import { requireAccount } from "../accounts/plans.ts";
import type { Decision } from "../decision/command.ts";
import type { Scope } from "../model/rights.ts";
import { findScopeRefusal } from "../model/rights.ts";
import type { AccountId, Bytes } from "../values/basics.ts";
import { throwIfRefused } from "../values/errors.ts";
import { endRun } from "../workflows/end.ts";
import { findOngoingRun } from "../workflows/history.ts";
import { settleFinished } from "../workflows/posted.ts";

/**
 * Ends a run successfully, with the body that it returned. Does nothing for a run that has ended. `scope` has
 * the rights of a limited token. Throws `Refusal` if such a token may not publish to the endpoint of the run.
 */
export const finishRun: Decision<
  { account: AccountId; runId: string; body: Bytes; scope?: Scope },
  { finished: boolean }
> = {
  hint: ({ account, runId }) => ({ accounts: [[account]], activeRuns: [[account, runId]] }),
  decide: ({ account: id, runId, body, scope }, draft, moment) => {
    const account = requireAccount(draft.get("accounts", id));
    const ongoing = findOngoingRun(draft, id, runId);
    if (!ongoing) return { finished: false };
    const target = { url: ongoing.run.url, group: null, queue: null, callback: null, failureCallback: null };
    throwIfRefused(scope && findScopeRefusal(scope, target, `the run ${runId}`));
    settleFinished(draft, moment, ongoing);
    endRun(draft, moment, { account, ongoing, ending: { state: "RUN_SUCCESS", result: body } });
    return { finished: true };
  },
};
