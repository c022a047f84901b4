import type { Draft, Key, Moment } from "../decision/command.ts";
import type { AccountId, MessageId, Millis } from "../values/basics.ts";
import type { MessageState } from "../model/messageState.ts";
import type { Counters, Limiter, QueueSlot } from "../model/limiter.ts";
import { isUnfinished } from "../model/messageState.ts";
import { readAccountLimiters } from "./accountLimits.ts";
import type { GateKind, LimiterGate } from "./gate.ts";
import {
  accountGate,
  endpointGate,
  formatGate,
  hasLimiter,
  isAccountLimit,
  isBefore,
  keyGate,
  parseGate,
  queueGate,
  readWaitlist,
} from "./gate.ts";
import type { LimiterName } from "./limiter.ts";
import { countDelivery, putLimiter, readLimiter, toLimiterKey } from "./limiter.ts";

// The only place where gates count messages. `gate.ts` says what each counter is the sum of.

/**
 * Returns the limiters that count a message while it is being sent, in the order of the gates, with their
 * limits as they are now.
 */
export function listDeliveryLimiters(
  draft: Draft,
  moment: Pick<Moment, "now">,
  state: MessageState,
): Limiter[] {
  const limiters = readAccountLimiters(draft, moment, state);
  const { account, flowControlKey } = state;
  if (flowControlKey !== null)
    limiters.unshift(readLimiter(draft, moment, { account, gate: keyGate(flowControlKey) }));
  return limiters;
}

/** Reports whether a message that waits for a limit of its account has reserved a slot at this gate. */
export function hasReservation(gate: LimiterGate, state: MessageState): boolean {
  const waitlist = readWaitlist(state);
  if (waitlist === null || !isAccountLimit(waitlist) || !isBefore(gate, waitlist)) return false;
  return gate.kind === "endpoint" ? state.countedToEndpoint === true : gate.kind === "key";
}

/**
 * Takes a slot of a queue for a message, which leaves the waitlist of the queue. The slot is kept until
 * `releaseSlot`.
 */
export function takeSlot(
  draft: Draft,
  moment: Moment,
  { state, queue }: { state: MessageState; queue: Limiter },
): MessageState {
  const hasWaited = state.waitlist === queue.id;
  putLimiter(draft, moment, {
    ...queue,
    running: queue.running + 1,
    waiting: queue.waiting - (hasWaited ? 1 : 0),
  });
  draft.put("queueSlots", {
    account: state.account,
    id: state.id,
    queue: parseGate(queue.id).name,
    holders: 1,
  });
  return { ...state, slot: state.id, waitlist: hasWaited ? null : state.waitlist };
}

/**
 * Gives a callback a share of the slot of the message that it reports. Returns false if that slot has been
 * freed.
 */
export function shareSlot(draft: Draft, account: AccountId, slot: MessageId): boolean {
  const shared = draft.get("queueSlots", account, slot);
  if (shared) draft.put("queueSlots", { ...shared, holders: shared.holders + 1 });
  return shared !== undefined;
}

/** Gives back a message's share of a queue slot. The last share frees the slot. */
export function releaseSlot(draft: Draft, moment: Moment, state: MessageState): void {
  if (state.slot === null) return;
  const slot = draft.get("queueSlots", state.account, state.slot);
  if (!slot) return draft.fault(`message ${state.id} of account ${state.account}: its queue slot is missing`);
  if (slot.holders > 1) return draft.put("queueSlots", { ...slot, holders: slot.holders - 1 });
  draft.drop("queueSlots", slot.account, slot.id);
  if (slot.queue !== "")
    decrement(draft, moment, { account: slot.account, gate: queueGate(slot.queue), counter: "running" });
}

/**
 * Removes a queue if none of its messages waits or is in flight; otherwise returns false. Slots of finished
 * messages among the given slots no longer count. Their callbacks and aborted requests continue without the
 * queue.
 */
export function removeQueue(
  draft: Draft,
  moment: Moment,
  { limiter, slots }: { limiter: Limiter; slots: readonly MessageId[] },
): boolean {
  const { account, id } = limiter;
  const { name } = parseGate(id);
  const abandoned = slots.flatMap((messageId) => {
    const slot = draft.get("queueSlots", account, messageId);
    const state = draft.get("messages", account, messageId);
    return slot?.queue === name && !(state && isUnfinished(state)) ? [slot] : [];
  });
  for (const slot of abandoned) draft.put("queueSlots", { ...slot, queue: "" });
  const running = limiter.running - abandoned.length;
  const isUnused = running === 0 && limiter.waiting === 0;
  if (isUnused) draft.drop("limiters", account, id);
  else if (abandoned.length > 0) putLimiter(draft, moment, { ...limiter, running });
  return isUnused;
}

/**
 * Counts a delivery that starts. The message leaves its waitlist, and records which limits of its account
 * count it.
 */
export function countStart(draft: Draft, moment: Moment, state: MessageState): MessageState {
  leaveWaitlist(draft, moment, state);
  const limiters = listDeliveryLimiters(draft, moment, state);
  for (const limiter of limiters) putLimiter(draft, moment, countDelivery(limiter, moment.now));
  return recordCounted(limiters, state);
}

/**
 * A message whose delivery has ended. `nextAt` is when the message is due for its retry. It is absent if the
 * message is due at once or is not sent again.
 */
export type EndedDelivery = MessageState & { nextAt?: Millis };

/** Reports whether a limiter counts a message while it is sent, or the message holds a queue slot. */
export const hasPlaces = ({ slot, flowControlKey, counted, countedToEndpoint }: MessageState): boolean =>
  slot !== null || flowControlKey !== null || counted === true || countedToEndpoint === true;

/**
 * Counts the end of a delivery, whether it finished or was given up. Does nothing for a message that is not
 * leased. The limiters of the message are not removed before `nextAt`.
 */
export function countEnd(draft: Draft, moment: Moment, state: EndedDelivery): void {
  if (state.leasedBy === null || !hasPlaces(state)) return;
  const { account, nextAt = 0 } = state;
  for (const gate of listCountingGates(state))
    decrement(draft, moment, { account, gate, counter: "running", nextAt });
}

/** Returns the gates whose limiters count a message while it is sent. */
function listCountingGates(state: MessageState): LimiterGate[] {
  const { flowControlKey, counted, countedToEndpoint } = state;
  return [
    ...(flowControlKey === null ? [] : [keyGate(flowControlKey)]),
    ...(countedToEndpoint ? [endpointGate(state)] : []),
    ...(counted ? [accountGate] : []),
  ];
}

/**
 * Counts a message that enters a waitlist and, if a limit of its account holds it, reserves a slot at the
 * earlier gates.
 */
export function enterWaitlist(
  draft: Draft,
  moment: Moment,
  { state, gate }: { state: MessageState; gate: LimiterGate },
): MessageState {
  const limiters = listDeliveryLimiters(draft, moment, state);
  const id = formatGate(gate);
  const limiter =
    limiters.find((one) => one.id === id) ?? readLimiter(draft, moment, { account: state.account, gate });
  putLimiter(draft, moment, { ...limiter, waiting: limiter.waiting + 1 });
  const reserved = isAccountLimit(gate) ? limiters.filter((one) => isBefore(parseGate(one.id), gate)) : [];
  for (const one of reserved)
    putLimiter(draft, moment, { ...one, waitingDownstream: (one.waitingDownstream ?? 0) + 1 });
  return recordCounted(reserved, state);
}

/**
 * Undoes `enterWaitlist`. Does nothing for a message that waits for delivery capacity or is in no waitlist.
 */
export function leaveWaitlist(draft: Draft, moment: Moment, state: MessageState): void {
  const { account, flowControlKey } = state;
  const waitlist = readWaitlist(state);
  if (waitlist === null || !hasLimiter(waitlist)) return;
  decrement(draft, moment, { account, gate: waitlist, counter: "waiting" });
  for (const gate of [...(flowControlKey === null ? [] : [keyGate(flowControlKey)]), endpointGate(state)])
    if (hasReservation(gate, state))
      decrement(draft, moment, { account, gate, counter: "waitingDownstream" });
}

/** Sets the counter of an empty waitlist to 0, and reports a fault if it was not 0. Returns the limiter. */
export function resetWaiting(draft: Draft, limiter: Limiter): Limiter {
  const { account, id, waiting } = limiter;
  if (waiting > 0)
    draft.fault(
      `${id} of account ${account} counted ${waiting} waiting messages, but its waitlist is empty; ` +
        "its count is reset to 0",
    );
  return { ...limiter, waiting: 0 };
}

/**
 * Records in a message which limits of its account count it. An account can gain or lose a limit during a
 * delivery, so `countEnd` must not decide this from the current limits.
 */
export function recordCounted(limiters: readonly Limiter[], state: MessageState): MessageState {
  const isCounted = hasKind(limiters, "account");
  const isCountedToEndpoint = hasKind(limiters, "endpoint");
  if (isCounted === (state.counted ?? false) && isCountedToEndpoint === (state.countedToEndpoint ?? false))
    return state;
  const { counted: _account, countedToEndpoint: _endpoint, ...uncounted } = state;
  return {
    ...uncounted,
    ...(isCounted ? { counted: true } : {}),
    ...(isCountedToEndpoint ? { countedToEndpoint: true } : {}),
  };
}

const hasKind = (limiters: readonly Limiter[], kind: GateKind): boolean =>
  limiters.some(({ id }) => parseGate(id).kind === kind);

type Decrement = LimiterName & { counter: "running" | "waiting" | "waitingDownstream"; nextAt?: Millis };

/**
 * Decrements a counter. A counter that is already 0 is reported as a fault and stays 0, so that damaged data
 * does not stop deliveries.
 */
function decrement(draft: Draft, moment: Moment, { account, gate, counter, nextAt = 0 }: Decrement): void {
  const limiter = readLimiter(draft, moment, { account, gate });
  const count = limiter[counter] ?? 0;
  if (count === 0)
    draft.fault(
      `counter "${counter}" of ${limiter.id} in account ${account} would become negative; it stays 0`,
    );
  putLimiter(draft, moment, {
    ...limiter,
    [counter]: Math.max(0, count - 1),
    lastDueAt: Math.max(limiter.lastDueAt, nextAt),
  });
}

/** Returns the keys of the limiters that these messages will pass, or that count them. */
export function listLimiterKeys(
  states: Iterable<Pick<MessageState, "account" | "queue" | "flowControlKey"> & Partial<MessageState>>,
): Key[] {
  const keys: Key[] = [];
  for (const state of states) {
    const { account, queue, flowControlKey, waitlist: line = null, counted, countedToEndpoint } = state;
    const waitlist = readWaitlist({ waitlist: line });
    const add = (gate: LimiterGate): unknown => keys.push(toLimiterKey({ account, gate }));
    if (queue !== null) add(queueGate(queue));
    if (flowControlKey !== null) add(keyGate(flowControlKey));
    if (counted || waitlist?.kind === "account") add(accountGate);
    if (countedToEndpoint) add(endpointGate({ endpoint: "", ...state }));
    else if (waitlist?.kind === "endpoint") add(waitlist);
  }
  return keys;
}

/** Writes the number of holders of a slot after a recount. A slot without holders is freed. */
export function correctSlot(draft: Draft, moment: Moment, slot: QueueSlot): void {
  if (slot.holders > 0) return draft.put("queueSlots", slot);
  draft.drop("queueSlots", slot.account, slot.id);
  if (slot.queue !== "")
    decrement(draft, moment, { account: slot.account, gate: queueGate(slot.queue), counter: "running" });
}

/** Adds the differences that a recount has found to the counters of a limiter. */
export function correctLimiter(
  draft: Draft,
  moment: Moment,
  { limiter, drift }: { limiter: Limiter; drift: Counters },
): void {
  const waitingDownstream = Math.max(0, (limiter.waitingDownstream ?? 0) + drift.waitingDownstream);
  const { waitingDownstream: _before, ...others } = limiter;
  putLimiter(draft, moment, {
    ...others,
    running: Math.max(0, limiter.running + drift.running),
    waiting: Math.max(0, limiter.waiting + drift.waiting),
    ...(waitingDownstream === 0 && _before === undefined ? {} : { waitingDownstream }),
  });
}
