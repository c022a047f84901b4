import type { GateKind } from "../admission/gate.ts";
import { formatGate, queueGate, readWaitlist } from "../admission/gate.ts";
import type { LogRow } from "../model/logRow.ts";
import type { MessageState } from "../model/messageState.ts";
import { isBeingSent } from "../model/messageState.ts";
import type { Millis } from "../values/basics.ts";
import type { RunKey } from "../model/runPost.ts";
import type { Filter } from "../search/filter.ts";
import { countRetries } from "../sending/retry.ts";

/** The states in which lists show unfinished messages. Each message has exactly one of them. */
export const listedStates = ["pending", "retrying", "delivering", "acknowledging", "held", "paused"] as const;
/**
 * The state in which lists show an unfinished message.
 *
 * - `pending`: the message waits for its due time, and no attempt has failed.
 * - `retrying`: the message waits for the due time of its next attempt.
 * - `delivering`: a node is sending the message.
 * - `acknowledging`: the receiver of the message reports the outcome of the attempt later.
 * - `held`: the message is due and waits at a gate.
 * - `paused`: the message waits for its queue or its key to be resumed.
 */
export type ListedState = (typeof listedStates)[number];

/** The ways in which a message ends. */
export const endStates = ["delivered", "failed", "cancelled"] as const;
/** How a message ended. A message that its run no longer needed was cancelled. */
export type EndState = (typeof endStates)[number];

/** Returns how a message ended, from the log entry that records it, or else from its last one. */
export function readEndState({ states }: Pick<LogRow, "states">): EndState {
  if (states.includes("DELIVERED")) return "delivered";
  return states.includes("FAILED") ? "failed" : "cancelled";
}

/** Reports whether a log entry records the outcome of an attempt. */
export const isOutcome = ({ states, attempt }: Pick<LogRow, "states" | "attempt">): boolean =>
  attempt !== undefined || states.includes("ERROR") || states.includes("DELIVERED");

/** Selects unfinished messages. The fields of `Filter` apply to the creation of the message. */
export type UnfinishedFilter = Filter & {
  listedStates?: readonly ListedState[];
  /** Only messages in a waitlist of these kinds of gates. */
  gates?: readonly GateKind[];
  /** Only messages of these active runs. */
  runs?: readonly RunKey[];
  /** The earliest and latest due time, inclusive. Messages without a due time do not match. */
  dueFrom?: Millis;
  dueTo?: Millis;
  /** The smallest number of attempts that have ended. */
  minAttempts?: number;
};

/** The ids of the queues and keys of an account that are paused. */
export type PausedGates = ReadonlySet<string>;

/** Returns the state in which lists show an unfinished message. */
export function readListedState(state: MessageState, paused: PausedGates): ListedState {
  if (isBeingSent(state)) return "delivering";
  if (state.state === "acknowledging") return "acknowledging";
  if (state.state === "held")
    return state.waitlist !== null && paused.has(state.waitlist) ? "paused" : "held";
  // A message that holds a slot of a paused queue keeps it, and is not sent when it is due.
  const heldQueue = state.slot === state.id ? state.queue : null;
  if (heldQueue !== null && paused.has(formatGate(queueGate(heldQueue)))) return "paused";
  return countRetries(state) > 0 ? "retrying" : "pending";
}

/**
 * Returns when a message is due, or null if it is being sent, or waits for something other than its due time.
 */
export const readListedDueAt = (state: MessageState, paused: PausedGates): Millis | null => {
  const listed = readListedState(state, paused);
  return listed === "pending" || listed === "retrying" ? state.dueAt : null;
};

/**
 * Reports whether the state of an unfinished message passes a filter. The stored message may still fail it:
 * see `matchesFilter`.
 */
export function matchesState(filter: UnfinishedFilter, state: MessageState, paused: PausedGates): boolean {
  const { gates, runs, dueFrom, dueTo, minAttempts = 0 } = filter;
  const dueAt = readListedDueAt(state, paused);
  const gate = readWaitlist(state)?.kind;
  return (
    (filter.listedStates?.includes(readListedState(state, paused)) ?? true) &&
    (gates === undefined || (gate !== undefined && gates.includes(gate))) &&
    (runs === undefined || (state.run !== null && runs.includes(state.run))) &&
    (filter.belongsToRun !== false || state.run === null) &&
    (dueFrom === undefined || (dueAt !== null && dueAt >= dueFrom)) &&
    (dueTo === undefined || (dueAt !== null && dueAt <= dueTo)) &&
    state.attempts >= minAttempts
  );
}
