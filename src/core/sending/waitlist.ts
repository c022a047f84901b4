import { refreshAllowance } from "./accountLimits.ts";
import type { Decision, Draft, LineHead, Moment, Needs } from "../decision/command.ts";
import { isAllowance, isIdle, putFlow, roomBehind } from "./limiter.ts";
import { advance, depart, hostLine, needsOfGates, putOffStopped, standInLine } from "./admission.ts";
import { destinationsOf, lease, log } from "./createMessage.ts";
import { spans } from "../values/limits.ts";
import type { AccountId, Flow, Line, MessageState } from "../model/message.ts";

/** How many held messages are looked at when one delivery of their host has ended: it gave back one hand. */
export const headLimit = 2;

/** The line of a message's host, if there is one: then hands are short, and it has to stand behind the others. */
export const lineOf = (draft: Draft, of: Pick<Line, "account" | "host">): Line | undefined => draft.get("lines", of.account, of.host);

/**
 * Sends the first ones of a host's line as far as hands are free. The line ends with its last message.
 *
 * Served after each delivery to its host, so normally nobody waits for `dueAt`. That is for the hands that other
 * hosts give back, and for a node that died with all of the host's deliveries.
 */
export function serveLine(draft: Draft, moment: Moment, line: Line): void {
  const first = firstNotServed(draft, moment, line.account, hostLine(line.host));
  if (!first && draft.isWholeLine(line.account, hostLine(line.host))) return draft.drop("lines", line.account, line.host);
  // When hands are left for others that stand behind those in sight, there is reason to look again at once.
  const isOutOfHands = first && !draft.hasHand(line.account, line.host);
  const untilLook = draft.isDenied(line.account, line.host) ? spans.deniedLineCheck : spans.lineCheck;
  draft.put("lines", { ...line, dueAt: moment.now + (isOutOfHands ? untilLook : 0) });
}

/**
 * Lets the first ones of a queue or of a key go on, as far as it is open; a key that was idle for long is forgotten.
 * Whatever opens a flow makes it due, for a claim to serve its line; an outcome, which does so most often, serves it at once.
 */
export function serveFlow(draft: Draft, moment: Moment, { account, id }: Flow): void {
  if (isAllowance(id)) refreshAllowance(draft, moment, account, id);
  const before = draft.get("flows", account, id);
  const first = firstNotServed(draft, moment, account, id);
  const flow = draft.get("flows", account, id);
  if (!flow) return;
  if (first || !draft.isWholeLine(account, id)) {
    putFlow(draft, moment, flow);
    const haveOnlyMoved = before && flow.running === before.running && flow.waiting < before.waiting;
    if (!first && haveOnlyMoved) restFlow(draft, moment, flow);
    return;
  }
  if (flow.waiting > 0) draft.fault(`${id} of account ${account} counted ${flow.waiting} in a line in which nobody stood`);
  if (flow.dueAt !== null && flow.dueAt <= moment.now && isIdle(flow)) return draft.drop("flows", account, id);
  putFlow(draft, moment, { ...flow, waiting: 0 });
}

/**
 * All that were looked at went on to lines of hosts that have no free hand. If the others followed at once, they would
 * come back as soon as hands are free and the key is full, and so to and fro. Some have gone on: the rest has time.
 */
function restFlow(draft: Draft, moment: Moment, { account, id }: Flow): void {
  const flow = draft.get("flows", account, id);
  if (flow && flow.dueAt !== null) draft.put("flows", { ...flow, dueAt: Math.max(flow.dueAt, moment.now + spans.flowCheck) });
}

/** The first ones of the lines of due flows, as many as these let through, and in all as many as there can be hands for. */
export const headsOf = (flows: readonly Flow[], most: number): LineHead[] =>
  flows.flatMap((flow) => {
    const limit = Math.min(Math.ceil(most / flows.length), roomBehind(flow, flow.dueAt ?? 0));
    return flow.waiting > 0 && limit > 0 ? [{ account: flow.account, line: flow.id, limit }] : [];
  });

/** What must be seen of those at the heads of lines, besides their envelopes, when they go on. */
export function needsOfHeads(draft: Draft, heads: readonly LineHead[]): Needs {
  const states = heads.flatMap(({ account, line }) => [...draft.head(account, line)]);
  return { ...needsOfGates(draft, states), ...destinationsOf(states) };
}

function firstNotServed(draft: Draft, moment: Moment, account: string, line: string): MessageState | null {
  for (const state of draft.head(account, line)) if (!serveOne(draft, moment, state, line)) return state;
  return null;
}

/** Lines of hosts that there is a hand for, so that the envelopes of their first ones are needed. */
export const withHand = (draft: Draft, lines: readonly Line[]): readonly { account: string; line: string }[] =>
  lines.filter(({ account, host }) => draft.hasHand(account, host)).map(({ account, host }) => ({ account, line: hostLine(host) }));

/**
 * Leaves the line to the next claim, which serves lines in the order in which they came due. When hands are short, the
 * host that gave one back must not take it again before hosts that have waited longer.
 */
export function lookSoon(draft: Draft, moment: Moment, line: Line): void {
  if (line.dueAt > moment.now) draft.put("lines", { ...line, dueAt: moment.now });
}

/** Has the lines of these hosts served by the next claim, because their account may have more deliveries again. */
export const wakeLines: Decision<{ account: AccountId; hosts: readonly string[] }, { woken: number }> = {
  needs: ({ account, hosts }) => ({ lines: hosts.map((host) => [account, host] as const) }),
  decide: ({ account, hosts }, draft, moment) => {
    const lines = hosts.flatMap((host) => lineOf(draft, { account, host }) ?? []);
    for (const line of lines) lookSoon(draft, moment, line);
    return { woken: lines.length };
  },
};

/** False when it has to stay: its line is closed, or its envelope is not at hand. Before another closed gate it changes lines. */
function serveOne(draft: Draft, moment: Moment, met: MessageState, line: string): boolean {
  if (putOffStopped(draft, moment, met)) return true;
  const { state, stoppedAt } = advance(draft, moment, met);
  if (stoppedAt === line) return false;
  if (stoppedAt !== null) standInLine(draft, moment, state, stoppedAt);
  else if (draft.isAtHand(state)) sendNow(draft, moment, state);
  else if (state === met) return false;
  // It has its slot in the queue, and goes with the next claim.
  else draft.put("messages", { ...state, state: "pending", dueAt: moment.now });
  return true;
}

/**
 * Leases a message that has waited, all its gates being open, and its envelope at hand. One that is damaged, or is not there, is left to the
 * next claim, which sees what follows from its failure.
 */
export function sendNow(draft: Draft, moment: Moment, state: MessageState): void {
  const account = draft.get("accounts", state.account);
  const envelope = draft.get("envelopes", state.account, state.id);
  if (!account) return giveUp(draft, moment, state);
  if (!envelope || envelope.damaged) return draft.put("messages", { ...state, state: "pending", dueAt: moment.now });
  draft.takeHand(state.account, state.host, state.size);
  lease(draft, moment, { account, envelope, state });
  log(draft, moment, state, { states: ["ACTIVE"] });
}

/** A state without its account can never be sent. */
export function giveUp(draft: Draft, moment: Moment, state: MessageState): void {
  const { account, id } = state;
  draft.fault(`message ${id} of account ${account} has lost its envelope or its account, and is removed`);
  draft.drop("messages", account, id);
  depart(draft, moment, state);
}
