import type { Draft, Moment } from "../decision/command.ts";
import { spans } from "../values/limits.ts";
import type { MessageState } from "../model/messageState.ts";
import type { Limiter } from "../model/limiter.ts";
import {
  countEnd,
  enterWaitlist,
  hasReservation,
  leaveWaitlist,
  listDeliveryLimiters,
  recordCounted,
  releaseSlot,
  takeSlot,
} from "./counters.ts";
import type { Gate } from "./gate.ts";
import {
  capacityGate,
  formatGate,
  hasLimiter,
  isBefore,
  parseGate,
  queueGate,
  readWaitlist,
} from "./gate.ts";
import { isQueuePaused } from "./pausedQueue.ts";
import { findLimiter, freeRoom, readLimiter, unreservedRoom } from "./limiter.ts";

// Admission decides whether a due message may be sent now. It passes five gates in the order of `gateKinds`:
//
//   1. its queue: a slot, kept until the message and its callbacks have finished
//   2. its flow-control key: parallelism and rate
//   3. its account's limit for the endpoint
//   4. its account's limit in total
//   5. this node's delivery capacity for the host
//
// Gates 2 to 5 count a message only while it is being sent. At the first gate that is closed, or where others
// already wait, the message is held in that gate's waitlist. Waitlists are ordered by message id, which is
// the order of acceptance.
//
// A message that waits for capacity (5) uses up none of the limits at gates 2 to 4, so other messages can use
// them. A message that waits for a limit of its account (3 or 4) reserves a slot at the earlier gates that
// count deliveries. Without these reservations, the waitlists of the account would fill up with messages of a
// key or an endpoint that is at its limit. Each of these messages would be sent back when its turn came,
// ahead of messages that could have been sent.

/** The new state of a message, and the gate that stops it; null if it may be sent. */
export type Advanced = { state: MessageState; stoppedAt: Gate | null };

/**
 * Moves a message through the gates as far as possible. Passing the queue takes a slot; the other gates only
 * check. The caller stores the returned state.
 */
export function advance(draft: Draft, moment: Moment, initial: MessageState): Advanced {
  let state = initial;
  if (state.queue !== null && state.slot === null) {
    const gate = queueGate(state.queue);
    const queue = readLimiter(draft, moment, { account: state.account, gate });
    if (!mayPass(queue, state, moment)) return { state, stoppedAt: gate };
    state = takeSlot(draft, moment, { state, queue });
  }
  const closed = listDeliveryLimiters(draft, moment, state).find(
    (limiter) => !mayPass(limiter, state, moment),
  );
  if (closed) return { state, stoppedAt: parseGate(closed.id) };
  return { state, stoppedAt: hasCapacity(draft, state) ? null : capacityGate(state.host) };
}

/**
 * Reports whether a message may pass a gate now. A message with a reservation needs a free slot. Any other
 * message needs an unreserved slot. It also waits behind the messages in the waitlist, unless it comes from
 * this waitlist or from that of a later gate.
 */
function mayPass(limiter: Limiter, state: MessageState, { now }: Moment): boolean {
  const gate = parseGate(limiter.id);
  if (hasLimiter(gate) && hasReservation(gate, state)) return freeRoom(limiter, now) > 0;
  const waitlist = readWaitlist(state);
  const hasWaited = waitlist !== null && !isBefore(waitlist, gate);
  return unreservedRoom(limiter, now) > 0 && (limiter.waiting === 0 || hasWaited);
}

/**
 * Reports whether this node may start a delivery to the message's host without overtaking messages that wait
 * for capacity there.
 */
function hasCapacity(draft: Draft, state: MessageState): boolean {
  const { account, host, size } = state;
  const mayTakeTurn =
    !draft.get("hostWaitlists", account, host) || state.waitlist === formatGate(capacityGate(host));
  return mayTakeTurn && draft.capacity.has(account, host, size);
}

/**
 * Reports whether a message might pass all gates, before everything it depends on is loaded. False means that
 * it certainly has to wait, so its body need not be loaded. Rates are ignored, because they depend on the
 * time.
 */
export function mightPass(draft: Draft, state: MessageState): boolean {
  if (isQueuePaused(draft, state)) return false;
  const { account, queue, slot, waitlist } = state;
  const limiter =
    queue === null || slot !== null ? undefined : findLimiter(draft, { account, gate: queueGate(queue) });
  // `now` has no effect here: rates are ignored, and a limiter that does not exist yet is open at any time.
  const limiters = [...(limiter ? [limiter] : []), ...listDeliveryLimiters(draft, { now: 0 }, state)];
  return !limiters.some((one) => isCertainlyClosed(one, waitlist === null)) && hasCapacity(draft, state);
}

const isCertainlyClosed = ({ paused, parallelism, running, waiting }: Limiter, isNew: boolean): boolean =>
  paused || (parallelism !== null && running >= parallelism) || (waiting > 0 && isNew);

/**
 * Holds a due message in the waitlist of a gate. It has no due time there, so claims skip it until the gate
 * opens.
 */
export function hold(
  draft: Draft,
  moment: Moment,
  { state, gate }: { state: MessageState; gate: Gate },
): void {
  const { account, host } = state;
  const waitlist = formatGate(gate);
  let held = state;
  if (state.waitlist !== waitlist) {
    leaveWaitlist(draft, moment, state);
    held = hasLimiter(gate) ? enterWaitlist(draft, moment, { state, gate }) : recordCounted([], state);
  }
  draft.put("messages", { ...held, state: "held", dueAt: null, leasedBy: null, waitlist });
  if (!hasLimiter(gate) && !draft.get("hostWaitlists", account, host))
    draft.put("hostWaitlists", { account, host, dueAt: moment.now + spans.waitlistCheck });
}

/**
 * Releases everything that a finished message has: its slots at the limiters, its place in a waitlist, and
 * its share of a queue slot. The caller must create the message's callbacks first. They share the slot;
 * without them, the slot is freed here.
 */
export function release(draft: Draft, moment: Moment, state: MessageState): void {
  countEnd(draft, moment, state);
  leaveWaitlist(draft, moment, state);
  releaseSlot(draft, moment, state);
}
