import type { Decision, Draft, Moment } from "./command.ts";
import { logRow } from "./lease.ts";
import { giveUp, lineOf, sendNow, serveLine, standInLine, withHand } from "./line.ts";
import { maxLost } from "./limits.ts";
import type { MessageState, Millis } from "./message.ts";
import { noBytes } from "./message.ts";
import { failForGood, needsOfConsequences } from "./settle.ts";

/** `more`: more may be due than was looked at. `now`: the moment it was looked at, in the time of the store. */
export type Claimed = { more: boolean; now: Millis };

/**
 * Picks what to send now and leases it to this node. What finds no free hand stands in its host's line, so that it
 * is not met again and again by later claims. Lines that nobody served for a while get a look as well: at most `lines`
 * of them, as many as there are hands free. A line that is looked at in vain would lose its place before the others.
 */
export const claim: Decision<{ limit: number; lines?: number }, Claimed> = {
  needs: ({ limit, lines = limit }) => ({ due: { limit, lines } }),
  further: ({ limit, lines: mostLines = limit }, draft) => {
    const due = draft.due();
    const lines = draft.dueLines();
    const consequences = due.filter(isLostForGood).flatMap(({ account, id }) => draft.outline("envelopes", account, id) ?? []);
    const { lines: told, ...others } = needsOfConsequences(consequences);
    return {
      accounts: [...new Set([...due, ...lines].map(({ account }) => account))].map((id) => [id] as const),
      lines: [...due.map(({ account, host }) => [account, host] as const), ...told],
      ...others,
      // Who waited in line has waited longer.
      toSendFrom: withHand(draft, lines),
      toSend: due.filter((state) => needsEnvelope(draft, state)),
      // In all as many as there can be hands for.
      heads: lines.map(({ account, host }) => ({ account, host, limit: Math.ceil(mostLines / lines.length) })),
    };
  },
  decide: ({ limit, lines: mostLines = limit }, draft, moment) => {
    const due = draft.due();
    const lines = draft.dueLines();
    for (const line of lines) serveLine(draft, moment, line);
    const left = due.filter((state) => !claimOne(draft, moment, state));
    return { more: left.length > 0 || due.length >= limit || lines.length >= mostLines, now: moment.now };
  },
};

/** A message whose lease runs out for the last time fails, with all that follows from it. */
const isLostForGood = ({ state, lost }: MessageState): boolean => state === "active" && lost >= maxLost;

const hasToWait = (draft: Draft, state: MessageState): boolean =>
  lineOf(draft, state) !== undefined || !draft.hasHand(state.account, state.host);

const needsEnvelope = (draft: Draft, state: MessageState): boolean => isLostForGood(state) || !hasToWait(draft, state);

/** False when it is left as it was, for the next turn. */
function claimOne(draft: Draft, moment: Moment, met: MessageState): boolean {
  if (needsEnvelope(draft, met) && !draft.isAtHand(met)) return false;
  const state = met.state === "active" ? afterLostLease(draft, moment, met) : met;
  if (!state) return true;
  if (hasToWait(draft, state)) standInLine(draft, moment, state);
  else sendNow(draft, moment, state);
  return true;
}

/**
 * A lease that ran out is an attempt without a report: its node is gone, or was cut off. The message is sent again
 * at once, without a charge on its retries, but not for ever: it may be what kills the nodes.
 */
function afterLostLease(draft: Draft, moment: Moment, state: MessageState): MessageState | null {
  const error = `no report: the lease of node ${state.leasedBy ?? "?"} ran out`;
  const lost: MessageState = { ...state, state: "pending", attempts: state.attempts + 1, lost: state.lost + 1, leasedBy: null };
  if (lost.lost <= maxLost) {
    draft.put("log", logRow(moment, state, { states: ["ERROR", "RETRY"], error, nextDueAt: moment.now }));
    return lost;
  }
  const account = draft.get("accounts", state.account);
  const envelope = draft.outline("envelopes", state.account, state.id);
  const outcome = { status: null, headers: [], body: noBytes, error };
  if (account && envelope) failForGood(draft, moment, { account, envelope, state, outcome });
  else giveUp(draft, state);
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
