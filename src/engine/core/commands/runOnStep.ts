import { findHostRefusal } from "../accounts/allowedHosts.ts";
import { requireAccount } from "../accounts/plans.ts";
import { countBytes } from "../accounts/usage.ts";
import type { Decision } from "../decision/command.ts";
import { findBodyRefusal } from "../limits/sendingLimits.ts";
import { findStorageRefusal } from "../limits/storageQuota.ts";
import type { Scope } from "../model/rights.ts";
import { findScopeRefusal } from "../model/rights.ts";
import type { RunOnRequest, StepHead } from "../model/runPost.ts";
import type { AccountId, Bytes } from "../values/basics.ts";
import { throwIfRefused } from "../values/errors.ts";
import { findOngoingRun, storeRunOn } from "../workflows/history.ts";

/** The result of a step, and the call in which its endpoint has posted it. */
type PostedInCall = { account: AccountId; runId: string; head: StepHead; body: Bytes; runOn: RunOnRequest };

/**
 * Stores the result of a step if its endpoint may continue in the same call. Otherwise nothing is stored, for
 * whatever reason: the endpoint then posts the step in the ordinary way, which says what is wrong. The post
 * has no settings, so the client must be one that keeps those of the start. `scope` has the rights of a
 * limited token. Throws `Refusal` if such a token may not publish to the endpoint of the run.
 */
export const runOnStep: Decision<PostedInCall & { scope?: Scope }, { runOn: boolean }> = {
  hint: ({ account, runId, runOn }) => ({
    accounts: [[account]],
    activeRuns: [[account, runId]],
    messages: [[account, runOn.messageId]],
  }),
  decide: ({ account: id, runId, head, body, runOn, scope }, draft, moment) => {
    const account = requireAccount(draft.get("accounts", id));
    const ongoing = findOngoingRun(draft, id, runId);
    if (!ongoing?.run.features.captured) return { runOn: false };
    const { url } = ongoing.run;
    const target = { url, group: null, queue: null, callback: null, failureCallback: null };
    throwIfRefused(scope && findScopeRefusal(scope, target, `the run ${runId}`));
    const isRefused =
      findBodyRefusal(account, body, moment) ??
      findHostRefusal(account, [url]) ??
      findStorageRefusal(account, { continuesRun: true, isDiskLow: moment.isDiskLow });
    if (isRefused) return { runOn: false };
    const post = { kind: "step", runId, head, runOn } as const;
    const input = { post, url, body, delay: null, notBefore: null, flowControl: null };
    if (!storeRunOn(draft, moment, { ongoing, input })) return { runOn: false };
    countBytes(draft, id, { bytesIn: body.byteLength });
    return { runOn: true };
  },
};
