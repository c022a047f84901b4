import type { DueRow } from "./quarantine.ts";
import { nameOfRow } from "./quarantine.ts";
import type { Decision, Draft, DueNeed, Moment, Needs } from "../decision/command.ts";
import { isSpoiled, spoiled } from "../sending/damaged.ts";
import { advance, deferIfQueuePaused, hold, mightPass } from "../admission/admission.ts";
import { countEnd } from "../admission/counters.ts";
import { capacityGate } from "../admission/gate.ts";
import { endedWithServer } from "../admission/lease.ts";
import { log } from "../admission/messageLog.ts";
import { admissionNeeds, mergeDestinationNeeds, stateDestinationNeeds } from "../admission/needs.ts";
import {
  giveUp,
  listHostHeads,
  listLimiterHeads,
  listWaitlistHeads,
  sendNow,
  serveHostWaitlist,
  serveLimiter,
  withCapacity,
} from "../admission/waitlist.ts";
import { isLeftOver, runsOf } from "../workflows/end.ts";
import { maxLost } from "../values/limits.ts";
import type { AccountId, Flow, Line, MessageState, Millis, Schedule } from "../model/message.ts";
import { isUnfinished } from "../model/message.ts";
import { together } from "../decision/needs.ts";
import { cancelled, noAnswer } from "../sending/outcome.ts";
import { isOfRun, needsOfRunOutcome } from "../workflows/outcome.ts";
import type { Waiter } from "../model/run.ts";
import { fireFirst, needsOfFiring } from "./schedule.ts";
import { failForGood, needsOfConsequences } from "./settle.ts";
import { endedWithNode } from "../nodes/takeover.ts";
import type { Turns } from "../fairness/turns.ts";
import { accountsBehind, dueTables, inRounds } from "../fairness/turns.ts";
import { giveUpWaiting, needsOfWaking } from "../workflows/wait.ts";

/**
 * `more`: more may be due than was looked at. `now`: the moment it was looked at, in the time of the store. `turns`: what the next claim
 * should be given, so that all accounts have their turn. `behind`: accounts of which more messages may be due.
 */
export type Claimed = { more: boolean; now: Millis; turns: Turns; behind: readonly AccountId[] };

/**
 * How much one claim looks at: messages, lines of hosts, lines of flows, schedules, and waiters; `heads` bounds the messages of all lines
 * together. `only` and `except`: of the due rows, these alone, or all but these. `behind`: the accounts that the previous claim found to be behind.
 */
export type Most = Window & { heads?: number; only?: readonly DueRow[]; behind?: readonly AccountId[] };
type Window = Pick<DueNeed, "limit"> & Partial<DueNeed> & { except?: readonly DueRow[] };

const mostOf = ({ limit, lines = limit, flows = limit, schedules = limit, waiters = limit }: Window): Required<Omit<DueNeed, "turns">> => ({
  ...{ limit, lines, flows, schedules, waiters },
});

/** What is left out takes nobody's place. */
function windowOf(most: Window): DueNeed {
  const { limit, lines, flows, schedules, waiters } = mostOf(most);
  const more = most.except?.length ?? 0;
  const counts = { limit: limit + more, lines: lines + more, flows: flows + more, schedules: schedules + more, waiters: waiters + more };
  return most.turns ? { ...counts, turns: most.turns } : counts;
}

/**
 * Picks messages to send now and leases them to this node: the oldest, and if more are due, also messages of other accounts in turn. A message that
 * meets a closed gate is put in line before it, so that later claims do not meet it again. Lines that nobody served for a while get a look as well: at most `lines`
 * of them, as many as there are hands free. A line that is looked at in vain would lose its place before the others.
 * Queues and keys that are open again let the first ones of their lines go on, schedules whose time has come fire, and
 * waits end whose time is over.
 */
export const claim: Decision<Most, Claimed> = {
  needs: (most) => ({ due: windowOf(most) }),
  further: (most, draft) => {
    const { due, lines, flows, schedules, waiters } = lookedAt(draft, most);
    const handsAtMost = most.heads ?? mostOf(most).lines;
    // In all as many as there can be hands for.
    const heads = [...listHostHeads(lines, handsAtMost), ...listWaitlistHeads(flows, handsAtMost)];
    const bad = due.filter((state) => isSpoiled(draft, state));
    const consequences = due.flatMap((state) => {
      if (bad.includes(state)) return [spoiled(draft, state).envelope];
      return isLostForGood(draft, state) ? (draft.outline("envelopes", state.account, state.id) ?? []) : [];
    });
    const told = needsOfConsequences(consequences);
    const fired = needsOfFiring(draft, schedules);
    const gates = admissionNeeds(draft, due);
    const needs: Needs = {
      ...{ heads, deduplications: told.deduplications, deadLetters: told.deadLetters, slots: gates.slots, groups: fired.groups },
      runs: [...told.runs, ...runsOf([...due.filter(({ state }) => state === "active"), ...bad])],
      accounts: [...new Set([...due, ...lines, ...flows, ...schedules].map(({ account }) => account))].map((id) => [id] as const),
      flows: [...gates.flows, ...told.flows, ...fired.flows],
      ...mergeDestinationNeeds([stateDestinationNeeds(due), told, fired]),
      // Who waited in line has waited longer.
      toSendFrom: [...withCapacity(draft, lines), ...listLimiterHeads(heads)],
      toSend: due.filter((state) => isLostForGood(draft, state) || mightPass(draft, state)),
    };
    const lost = consequences.filter(isOfRun).map((envelope) => needsOfRunOutcome(draft, envelope, noAnswer));
    return lost.length + waiters.length === 0 ? needs : together([needs, ...lost, needsOfWaking(draft, waiters)]);
  },
  decide: (most, draft, moment) => {
    const { limit, lines: mostLines, flows: mostFlows, schedules: mostSchedules, waiters: mostWaiters } = mostOf(most);
    const { due, lines, flows, schedules, waiters } = lookedAt(draft, most);
    for (const line of lines) serveHostWaitlist(draft, moment, line);
    for (const flow of flows) serveLimiter(draft, moment, flow);
    giveUpWaiting(draft, moment, waiters);
    const left = due.filter((state) => !claimOne(draft, moment, state));
    const allFired = fireFirst(draft, moment, schedules);
    const counts = { messages: due.length, lines: lines.length, flows: flows.length, schedules: schedules.length, waiters: waiters.length };
    const mosts = { messages: limit, lines: mostLines, flows: mostFlows, schedules: mostSchedules, waiters: mostWaiters };
    const full = dueTables.filter((table) => counts[table] >= mosts[table] || (table === "schedules" && !allFired));
    const turns = Object.fromEntries(full.map((table) => [table, draft.turns()[table] ?? ""]));
    // A message in line waits for capacity, so one line is a sign that its account is behind.
    const inLines = [full.includes("lines") ? lines : [], full.includes("flows") ? flows : []].flat().map(({ account }) => account);
    const turnOf = { before: most.behind ?? [], from: most.turns?.messages, to: draft.turns().messages ?? "" };
    const behind = [...(full.includes("messages") ? accountsBehind(due, turnOf) : []), ...inLines];
    return { more: left.length > 0 || full.length > 0, now: moment.now, turns, behind: [...new Set([...behind, ...left.map(accountOf)])] };
  },
};

const accountOf = ({ account }: MessageState): AccountId => account;

/** The rows that a claim would look at, in the order in which they came due. */
export const listDue: Decision<Window, { rows: DueRow[]; now: Millis }> = {
  needs: (most) => ({ due: windowOf(most) }),
  decide: (most, draft, { now }) => {
    const { due, lines, flows, schedules, waiters } = lookedAt(draft, most);
    const ofLines = [...lines.map(rowOf.lines), ...flows.map(rowOf.flows)];
    return { rows: [...due.map(rowOf.messages), ...ofLines, ...schedules.map(rowOf.schedules), ...waiters.map(rowOf.waiters)], now };
  },
};

const rowOf = {
  messages: ({ account, id }: MessageState): DueRow => ({ table: "messages", account, id }),
  lines: ({ account, host }: Line): DueRow => ({ table: "lines", account, id: host }),
  flows: ({ account, id }: Flow): DueRow => ({ table: "flows", account, id }),
  schedules: ({ account, id }: Schedule): DueRow => ({ table: "schedules", account, id }),
  waiters: ({ account, id }: Waiter): DueRow => ({ table: "waiters", account, id }),
};

/** Returns the rows that this claim looks at, in rounds through the accounts. */
function lookedAt(draft: Draft, most: Most) {
  const { only, except = [] } = most;
  const named = new Set((only ?? except).map(nameOfRow));
  const isMeant = (row: DueRow): boolean => named.has(nameOfRow(row)) === (only !== undefined);
  const meant = <Row extends { account: AccountId }>(all: readonly Row[], toRow: (one: Row) => DueRow): readonly Row[] =>
    inRounds(!only && except.length === 0 ? all : all.filter((one) => isMeant(toRow(one))));
  return {
    due: meant(draft.due(), rowOf.messages),
    // At most as many lines as there is free capacity: a line without a delivery would lose its place.
    lines: meant(draft.dueLines(), rowOf.lines).slice(0, most.lines ?? most.limit),
    flows: meant(draft.dueFlows(), rowOf.flows),
    schedules: meant(draft.dueSchedules(), rowOf.schedules),
    waiters: meant(draft.dueWaiters(), rowOf.waiters),
  };
}

/** A message whose lease runs out for the last time fails, with all that follows from it. One of a run that has ended is not needed. */
const isLostForGood = (draft: Draft, message: MessageState): boolean =>
  message.state === "active" && (message.lost >= maxLost || isLeftOver(draft, message));

/** False when it is left for the next turn, because its envelope is not at hand. */
function claimOne(draft: Draft, moment: Moment, due: MessageState): boolean {
  // The end of its run may have taken it along, in this very claim.
  const met = draft.get("messages", due.account, due.id);
  if (!met) return true;
  if (isLostForGood(draft, met) && !draft.isAtHand(met)) return false;
  if (isSpoiled(draft, met)) return failSpoiled(draft, moment, met);
  const waiting = met.leasedBy !== null ? afterLostLease(draft, moment, met) : met;
  if (!waiting) return true;
  if (deferIfQueuePaused(draft, moment, waiting)) return true;
  const { state, stoppedAt } = advance(draft, moment, waiting);
  const gate = stoppedAt ?? (draft.isAtHand(state) || !draft.isCrowded(state) ? null : capacityGate(state.host));
  if (gate !== null) hold(draft, moment, { state, gate });
  else if (draft.isAtHand(state)) sendNow(draft, moment, state);
  else if (state !== met) draft.put("messages", state);
  return gate !== null || draft.isAtHand(state);
}

/** Fails a message whose stored content is damaged: nothing that may have been altered is ever sent. */
function failSpoiled(draft: Draft, moment: Moment, state: MessageState): true {
  const account = draft.get("accounts", state.account);
  draft.fault(`message ${state.id} of account ${state.account} is damaged or not there any more, and has failed`);
  if (account) failForGood(draft, moment, { account, state, ...spoiled(draft, state) });
  else giveUp(draft, moment, state);
  return true;
}

/** Why there is no report of an attempt that was under way. */
function unreported({ leasedBy, dueAt }: MessageState): string {
  const node = leasedBy ?? "?";
  if (dueAt === endedWithServer) return `no report: the server was restarted while node ${node} was sending it`;
  if (dueAt === endedWithNode) return `no report: node ${node} ended while it was sending it`;
  return `no report: the lease of node ${node} ran out`;
}

/**
 * A lease that ran out is an attempt without a report: its node is gone, or was cut off. The message is sent again
 * at once, without a charge on its retries, but not for ever: it may be what kills the nodes.
 */
function afterLostLease(draft: Draft, moment: Moment, state: MessageState): MessageState | null {
  const outcome = { ...noAnswer, error: unreported(state) };
  if (!isUnfinished(state)) {
    cancelled(draft, moment, { state, outcome });
    return null;
  }
  const lost: MessageState = {
    ...state,
    state: "pending",
    attempts: state.attempts + 1,
    lost: state.lost + 1,
    leasedBy: null,
    dueAt: moment.now,
  };
  if (!isLostForGood(draft, state)) {
    countEnd(draft, moment, state);
    log(draft, moment, state, { states: ["ERROR", "RETRY"], error: outcome.error, nextDueAt: moment.now });
    return lost;
  }
  const account = draft.get("accounts", state.account);
  const envelope = draft.outline("envelopes", state.account, state.id);
  if (account && envelope) failForGood(draft, moment, { account, envelope, state, outcome });
  else giveUp(draft, moment, state);
  return null;
}

/** After a restart, where no other node can be alive: what the last process had leased is due now. */
export const reclaim: Decision<{ node: string; limit: number }, { reclaimed: number }> = {
  needs: ({ node, limit }) => ({ leasedByOthers: { node, limit } }),
  decide: (_, draft) => {
    const states = draft.leasedByOthers();
    // Still active and of the old node, so that the claim counts the attempt that nobody reported, and names that node.
    for (const state of states) draft.put("messages", { ...state, dueAt: endedWithServer });
    return { reclaimed: states.length };
  },
};
