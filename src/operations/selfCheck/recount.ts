import type { MessageState } from "../../engine/core/model/messageState.ts";
import type { Counters, Limiter } from "../../engine/core/model/limiter.ts";
import { hasReservation } from "../../engine/core/admission/counters.ts";
import type { LimiterGate } from "../../engine/core/admission/gate.ts";

/**
 * The rows that a limiter counts. `leased` are the leased messages of its account. `heldByAccount` are its
 * messages that wait for a limit of the account. `slots` is the number of slots of the queue, and `waiting`
 * the number of messages in the waitlist of the limiter.
 */
export type CountedRows = {
  leased: readonly MessageState[];
  heldByAccount: readonly MessageState[];
  slots: number;
  waiting: number;
};

/** Returns the counters that the limiter of a gate must have: see `Gate`. */
export const recount = (
  gate: LimiterGate,
  { leased, heldByAccount, slots, waiting }: CountedRows,
): Counters => ({
  running: gate.kind === "queue" ? slots : leased.filter((state) => countsDelivery(gate, state)).length,
  waiting,
  waitingDownstream: heldByAccount.filter((state) => isAtGate(gate, state) && hasReservation(gate, state))
    .length,
});

/** Returns by how much the counters of a limiter are too low, or null if they are right. */
export function findDrift(limiter: Pick<Limiter, keyof Counters>, counted: Counters): Counters | null {
  const drift = {
    running: counted.running - limiter.running,
    waiting: counted.waiting - limiter.waiting,
    waitingDownstream: counted.waitingDownstream - (limiter.waitingDownstream ?? 0),
  };
  return drift.running === 0 && drift.waiting === 0 && drift.waitingDownstream === 0 ? null : drift;
}

function countsDelivery(gate: LimiterGate, state: MessageState): boolean {
  if (gate.kind === "account") return state.counted === true;
  return isAtGate(gate, state) && (gate.kind === "key" || state.countedToEndpoint === true);
}

const isAtGate = (gate: LimiterGate, { flowControlKey, endpoint }: MessageState): boolean =>
  gate.kind === "key" ? flowControlKey === gate.name : gate.kind === "endpoint" && endpoint === gate.name;
