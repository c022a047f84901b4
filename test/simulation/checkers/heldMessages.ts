import type { MessageState } from "../../../src/engine/core/model/messageState.ts";
import type { Tables } from "../storage/changes.ts";
import type { AssertHolds } from "./observedBatch.ts";

/**
 * Checks that each held message waits for one in flight, or because an operator has paused its limiter. It is
 * used hours after the last fault.
 */
export function checkHeldMessages(
  tables: Tables,
  { now, assertHolds }: { now: number; assertHolds: AssertHolds },
): void {
  for (const state of tables.messages.values()) {
    assertHolds(
      isHeldBack(state, tables, now),
      `no message waits for an open gate: ${state.id} in ${state.waitlist}`,
    );
  }
}

function isHeldBack({ account, waitlist }: MessageState, tables: Tables, now: number): boolean {
  const { limiters, queueSlots, messages } = tables;
  const limiter = limiters.get(`${account}\n${waitlist}`);
  if (!limiter) return waitlist === null || waitlist.startsWith("capacity:");
  const { paused, rate, period, running, waitingDownstream = 0, windowStart, windowUsed } = limiter;
  const isWindowFull = rate !== null && windowUsed >= rate && now < windowStart + period;
  if (paused || isWindowFull) return true;
  if (/^(key|account|endpoint):/.test(waitlist ?? "")) return running + waitingDownstream > 0;
  const taken = new Set(
    [...queueSlots.values()].flatMap((slot) =>
      slot.account === account && `queue:${slot.queue}` === waitlist ? slot.id : [],
    ),
  );
  return [...messages.values()].some(
    (one) => one.slot !== null && taken.has(one.slot) && isHeldBack(one, tables, now),
  );
}
