import type { Draft, Moment } from "../decision/command.ts";
import { spans } from "../values/limits.ts";
import type { AccountId } from "../values/basics.ts";
import type { MessageState } from "../model/messageState.ts";
import { isBeingSent } from "../model/messageState.ts";
import type { Limiter, HostWaitlist } from "../model/limiter.ts";
import { refreshAccountLimit } from "./accountLimits.ts";
import { advance, hold, release } from "./admission.ts";
import { deferIfQueuePaused } from "./pausedQueue.ts";
import { resetWaiting } from "./counters.ts";
import type { Gate } from "./gate.ts";
import { capacityGate, formatGate, hasLimiter, isAccountLimit, isSameGate, parseGate } from "./gate.ts";
import { lease } from "./lease.ts";
import { isIdle, putLimiter, unreservedRoom } from "./limiter.ts";
import { log } from "./messageLog.ts";

/**
 * How many held messages are loaded when a delivery to their host ends. Such a delivery frees capacity for
 * one message.
 */
const headLimit = 2;

/**
 * Returns the waitlist for delivery capacity to a host, if there is one. A new message must wait behind the
 * messages in it.
 */
export const findHostWaitlist = (
  draft: Draft,
  { account, host }: Pick<HostWaitlist, "account" | "host">,
): HostWaitlist | undefined => draft.get("hostWaitlists", account, host);

/**
 * Sends the first messages of a host's waitlist as far as there is capacity. The waitlist is removed with its
 * last message.
 *
 * The waitlist is served after each delivery to its host, so normally no message waits until `dueAt`. The
 * check at `dueAt` is needed if other hosts free capacity, or if all deliveries to the host ended with their
 * node.
 */
export function serveHostWaitlist(
  draft: Draft,
  moment: Moment,
  { waitlist, limit = headLimit }: { waitlist: HostWaitlist; limit?: number },
): void {
  const { account, host } = waitlist;
  const gate = capacityGate(host);
  const { isEmpty, blocked } = serveFromHead(draft, moment, { account, gate, limit, maxMoved: limit });
  if (isEmpty) return draft.drop("hostWaitlists", account, host);
  // If there is capacity left for the next message, the waitlist is checked again at once. The size of a
  // message that was not looked at is unknown; the next check looks at it.
  const size = blocked?.size ?? 0;
  const isOutOfCapacity = limit > 0 && !draft.capacity.has(account, host, size);
  const isDenied = draft.capacity.isDenied(account, host, size);
  const untilCheck = isDenied ? spans.deniedWaitlistCheck : spans.waitlistCheck;
  draft.put("hostWaitlists", { ...waitlist, dueAt: moment.now + (isOutOfCapacity ? untilCheck : 0) });
}

/**
 * A limiter whose waitlist is served, and how many messages may pass, or may move on to other limits. By
 * default, the second number is the first one.
 */
type ServedLimiter = { limiter: Pick<Limiter, "account" | "id">; limit: number; maxMoved?: number };

/**
 * Lets the first messages of a limiter's waitlist pass as far as the limiter is open. A limiter that has been
 * idle for long enough is removed.
 *
 * A limiter becomes due when it opens, so that a claim serves its waitlist. Most limiters are opened by an
 * outcome, so an outcome serves the waitlist at once.
 */
export function serveLimiter(
  draft: Draft,
  moment: Moment,
  { limiter: { account, id }, limit, maxMoved = limit }: ServedLimiter,
): void {
  const gate = parseGate(id);
  if (isAccountLimit(gate)) refreshAccountLimit(draft, moment, { account, gate });
  const before = draft.get("limiters", account, id);
  const { isEmpty, blocked } = serveFromHead(draft, moment, { account, gate, limit, maxMoved });
  const limiter = draft.get("limiters", account, id);
  if (!limiter) return;
  if (!isEmpty && limiter.waiting > 0) {
    putLimiter(draft, moment, limiter);
    const haveOnlyMoved = before && limiter.running === before.running && limiter.waiting < before.waiting;
    if (!blocked && haveOnlyMoved) restLimiter(draft, moment, limiter);
    return;
  }
  const emptied = resetWaiting(draft, limiter);
  if (limiter.dueAt !== null && limiter.dueAt <= moment.now && isIdle(limiter))
    return draft.drop("limiters", account, id);
  putLimiter(draft, moment, emptied);
}

/**
 * Delays the next check of a limiter whose messages all moved on to waitlists of hosts without capacity. If
 * the other messages followed at once, they would move back as soon as the host has capacity and the key is
 * at its limit, and so on. Enough messages have moved on, so the others can wait.
 */
function restLimiter(draft: Draft, moment: Moment, { account, id }: Limiter): void {
  const limiter = draft.get("limiters", account, id);
  if (limiter && limiter.dueAt !== null)
    draft.put("limiters", { ...limiter, dueAt: Math.max(limiter.dueAt, moment.now + spans.limiterCheck) });
}

/**
 * Returns how many messages of a due limiter's waitlist may pass: as many as the limiter has room for, and at
 * most `max`.
 */
export const countPassing = (limiter: Limiter, max: number): number =>
  limiter.waiting > 0 ? Math.min(max, unreservedRoom(limiter, limiter.dueAt ?? 0)) : 0;

/** Reports whether a message has passed all limits: it is sent, or waits for capacity. */
const hasPassedLimits = (state: MessageState | undefined): boolean =>
  (state !== undefined && isBeingSent(state)) ||
  (state?.state === "held" && state.waitlist !== null && !hasLimiter(parseGate(state.waitlist)));

/** A waitlist, and how many of its messages may pass, or may move on to other limits. */
type Waitlist = { account: AccountId; gate: Gate; limit: number; maxMoved: number };

/**
 * Serves a waitlist from its head, until `limit` messages have passed all limits or `maxMoved` wait for
 * other limits. Reports whether all messages have left the waitlist, as far as it was read. `blocked`: the
 * first message that is left, if it could not pass.
 */
function serveFromHead(
  draft: Draft,
  moment: Moment,
  { account, gate, limit, maxMoved }: Waitlist,
): { isEmpty: boolean; blocked: MessageState | null } {
  if (limit === 0) return { isEmpty: false, blocked: null };
  let passed = 0;
  let moved = 0;
  for (const state of draft.waitlist({ account, waitlist: formatGate(gate), limit })) {
    if (!serveOne(draft, moment, { initial: state, gate })) return { isEmpty: false, blocked: state };
    if (hasPassedLimits(draft.get("messages", account, state.id))) passed++;
    else moved++;
    // Whether more messages follow is not read, because that would lock them.
    if (passed === limit || moved === maxMoved) return { isEmpty: false, blocked: null };
  }
  return { isEmpty: true, blocked: null };
}

/**
 * Leaves a waitlist to the next claim, which serves waitlists in the order in which they became due. If
 * capacity is short, a host that has freed capacity must not take it again before hosts that have waited
 * longer.
 */
export function checkSoon(draft: Draft, moment: Moment, waitlist: HostWaitlist): void {
  if (waitlist.dueAt > moment.now) draft.put("hostWaitlists", { ...waitlist, dueAt: moment.now });
}

/**
 * Moves one message out of the waitlist of `gate`. Returns false if the message has to stay: the gate is
 * closed, or the body of the message is not loaded. A message that meets another closed gate moves to the
 * waitlist of that gate.
 */
function serveOne(
  draft: Draft,
  moment: Moment,
  { initial, gate }: { initial: MessageState; gate: Gate },
): boolean {
  if (deferIfQueuePaused(draft, moment, initial)) return true;
  const { state, stoppedAt } = advance(draft, moment, initial);
  if (stoppedAt !== null && isSameGate(stoppedAt, gate)) return false;
  if (stoppedAt !== null) hold(draft, moment, { state, gate: stoppedAt });
  else if (draft.capacity.loadBody(state) === "loaded") startSending(draft, moment, state);
  else if (state === initial) return false;
  // The message has taken its slot of the queue, and is sent by the next claim.
  else draft.put("messages", { ...state, state: "pending", dueAt: moment.now });
  return true;
}

/**
 * Leases a message for which all gates are open and whose body is loaded. A message whose stored content is
 * damaged or missing is left to the next claim, which fails it.
 */
export function startSending(draft: Draft, moment: Moment, state: MessageState): void {
  const account = draft.get("accounts", state.account);
  const message = draft.inspect("storedMessages", state.account, state.id);
  if (!account) return giveUp(draft, moment, state);
  if (!message || message.damaged)
    return draft.put("messages", { ...state, state: "pending", dueAt: moment.now });
  draft.capacity.take(state.account, state.host, state.size);
  lease(draft, moment, { account, message, state });
  log(draft, moment, { message: state, row: { states: ["ACTIVE"] } });
}

/** Removes a message that can never be sent, because its account is gone. */
export function giveUp(draft: Draft, moment: Moment, state: MessageState): void {
  const { account, id } = state;
  draft.fault(
    `message ${id} of account ${account} has lost its stored message or its account; it is removed`,
  );
  draft.drop("messages", account, id);
  release(draft, moment, state);
}
