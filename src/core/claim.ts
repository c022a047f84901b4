import type { Decision, Draft, Moment } from "./command.ts";
import { lease, logRow } from "./lease.ts";
import { lineOf, serveLine, standInLine } from "./line.ts";
import { maxLost } from "./limits.ts";
import type { Account, MessageState, Millis } from "./message.ts";
import { failForGood, needsOfConsequences } from "./settle.ts";

/** `more`: more may be due than was looked at. `now`: the moment it was looked at, in the time of the store. */
export type Claimed = { more: boolean; now: Millis };

/**
 * Picks what to send now and leases it to this node. What finds no free hand stands in its host's line, so that it
 * is not met again and again by later claims. Lines that nobody served for a while get a look as well.
 */
export const claim: Decision<{ limit: number }, Claimed> = {
  needs: ({ limit }) => ({ due: { limit } }),
  further: ({ limit }, draft) => {
    const due = draft.due();
    const lines = draft.dueLines();
    const states = [...due, ...lines.flatMap((line) => draft.head(line.account, line.host))];
    return {
      accounts: [...new Set(states.map((state) => state.account))].map((id) => [id] as const),
      envelopes: states.map(({ account, id }) => [account, id] as const),
      lines: due.map(({ account, host }) => [account, host] as const),
      ...needsOfLastLosses(due, draft),
      // In all as many as there can be hands for.
      heads: lines.map(({ account, host }) => ({ account, host, limit: Math.ceil(limit / lines.length) })),
    };
  },
  decide: ({ limit }, draft, moment) => {
    const due = draft.due();
    const lines = draft.dueLines();
    // Who stands in line has waited longer.
    for (const line of lines) serveLine(draft, moment, line);
    for (const state of due) claimOne(draft, moment, state);
    return { more: due.length >= limit || lines.length >= limit, now: moment.now };
  },
};

/** A message whose lease runs out for the last time fails, with all that follows from it. */
function needsOfLastLosses(due: readonly MessageState[], draft: Draft) {
  const last = due.filter(({ state, lost }) => state === "active" && lost >= maxLost);
  const consequences = last.flatMap(({ account, id }) => draft.get("envelopes", account, id) ?? []).map(needsOfConsequences);
  return {
    deduplications: consequences.flatMap(({ deduplications }) => deduplications),
    deadLetters: consequences.flatMap(({ deadLetters }) => deadLetters),
  };
}

function claimOne(draft: Draft, moment: Moment, met: MessageState): void {
  const account = draft.get("accounts", met.account);
  const envelope = draft.get("envelopes", met.account, met.id);
  if (!account || !envelope) return draft.drop("messages", met.account, met.id);
  const state = met.state === "active" ? afterLostLease(draft, moment, account, met) : met;
  if (!state) return;
  if (lineOf(draft, state) || !draft.takeHand(state.account, state.host)) return standInLine(draft, moment, state);
  lease(draft, moment, { account, envelope, state });
  draft.put("log", logRow(moment, state, { states: ["ACTIVE"] }));
}

/**
 * A lease that ran out is an attempt without a report: its node is gone, or was cut off. The message is sent again
 * at once, without a charge on its retries, but not for ever: it may be what kills the nodes.
 */
function afterLostLease(draft: Draft, moment: Moment, account: Account, state: MessageState): MessageState | null {
  const error = `no report: the lease of node ${state.leasedBy ?? "?"} ran out`;
  const lost: MessageState = { ...state, state: "pending", attempts: state.attempts + 1, lost: state.lost + 1, leasedBy: null };
  if (lost.lost <= maxLost) {
    draft.put("log", logRow(moment, state, { states: ["ERROR", "RETRY"], error, nextDueAt: moment.now }));
    return lost;
  }
  const envelope = draft.get("envelopes", state.account, state.id);
  if (envelope)
    failForGood(draft, moment, { account, envelope, state, outcome: { status: null, headers: [], body: new Uint8Array(0), error } });
  return null;
}

/** After a restart, where no other node can be alive: what the last process had leased is due now. */
export const reclaim: Decision<{ node: string; limit: number }, { reclaimed: number }> = {
  needs: ({ node, limit }) => ({ leasedByOthers: { node, limit } }),
  decide: (_, draft, moment) => {
    const states = draft.leasedByOthers();
    // Still active, so that the claim counts the attempt that nobody reported.
    for (const state of states) draft.put("messages", { ...state, dueAt: moment.now, leasedBy: moment.node });
    return { reclaimed: states.length };
  },
};
