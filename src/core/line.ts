import type { Draft, Moment } from "./command.ts";
import { lease, logRow } from "./lease.ts";
import { spans } from "./limits.ts";
import type { Line, MessageState } from "./message.ts";

/** How many held messages are looked at when one delivery of their host has ended: it gave back one hand. */
export const headLimit = 2;

/** The line of a message's host, if there is one: then hands are short, and it has to stand behind the others. */
export const lineOf = (draft: Draft, of: Pick<Line, "account" | "host">): Line | undefined => draft.get("lines", of.account, of.host);

/** Takes a due message out of sight of the claims, until a hand for its host is free. */
export function standInLine(draft: Draft, moment: Moment, state: MessageState): void {
  draft.put("messages", { ...state, state: "held", dueAt: null, leasedBy: null });
  if (!lineOf(draft, state)) draft.put("lines", { account: state.account, host: state.host, dueAt: moment.now + spans.lineCheck });
}

/**
 * Sends the first ones of a line as far as hands are free. The line ends with its last message.
 *
 * Served after each delivery to its host, so normally nobody waits for `dueAt`. That is for the hands that other
 * hosts give back, and for a node that died with all of the host's deliveries.
 */
export function serveLine(draft: Draft, moment: Moment, line: Line): void {
  const first = firstNotServed(draft, moment, line);
  if (!first && draft.isWholeLine(line.account, line.host)) return draft.drop("lines", line.account, line.host);
  // When hands are left for others that stand behind those in sight, there is reason to look again at once.
  const isOutOfHands = first && !draft.hasHand(line.account, line.host);
  draft.put("lines", { ...line, dueAt: moment.now + (isOutOfHands ? spans.lineCheck : 0) });
}

function firstNotServed(draft: Draft, moment: Moment, line: Line): MessageState | null {
  for (const state of draft.head(line.account, line.host)) if (!serveOne(draft, moment, state)) return state;
  return null;
}

/** Lines that there is a hand for, so that the envelopes of their first ones are needed. */
export const withHand = (draft: Draft, lines: readonly Line[]): readonly Line[] =>
  lines.filter(({ account, host }) => draft.hasHand(account, host));

/**
 * Leaves the line to the next claim, which serves lines in the order in which they came due. When hands are short, the
 * host that gave one back must not take it again before hosts that have waited longer.
 */
export function lookSoon(draft: Draft, moment: Moment, line: Line): void {
  if (line.dueAt > moment.now) draft.put("lines", { ...line, dueAt: moment.now });
}

/** False when there is no hand for it, or its envelope is not at hand. */
function serveOne(draft: Draft, moment: Moment, state: MessageState): boolean {
  if (!draft.hasHand(state.account, state.host) || !draft.isAtHand(state)) return false;
  sendNow(draft, moment, state);
  return true;
}

/** Leases a message that has waited, there being a hand for it, and its envelope at hand. */
export function sendNow(draft: Draft, moment: Moment, state: MessageState): void {
  const account = draft.get("accounts", state.account);
  const envelope = draft.get("envelopes", state.account, state.id);
  if (!account || !envelope) return giveUp(draft, state);
  draft.takeHand(state.account, state.host, state.size);
  lease(draft, moment, { account, envelope, state });
  draft.put("log", logRow(moment, state, { states: ["ACTIVE"] }));
}

/** A state without its envelope, or without its account, can never be sent. */
export function giveUp(draft: Draft, { account, id }: Pick<MessageState, "account" | "id">): void {
  draft.fault(`message ${id} of account ${account} has lost its envelope or its account, and is removed`);
  draft.drop("messages", account, id);
}
