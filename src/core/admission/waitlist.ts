import type { Decision, Draft, WaitlistHead, Moment, Needs } from "../decision/command.ts";
import { spans } from "../values/limits.ts";
import type { AccountId, MessageState } from "../model/message.ts";
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
import { admissionNeeds, stateDestinationNeeds } from "./needs.ts";

/**
 * How many held messages are loaded when a delivery to their host ends. Such a delivery frees capacity for
 * one message.
 */
export const headLimit = 2;

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
export function serveHostWaitlist(draft: Draft, moment: Moment, waitlist: HostWaitlist): void {
  const { account, host } = waitlist;
  const gate = capacityGate(host);
  const first = findFirstNotServed(draft, moment, { account, gate });
  if (!first && draft.isWholeWaitlist(account, formatGate(gate)))
    return draft.drop("hostWaitlists", account, host);
  // If capacity is left after all loaded messages have moved, the waitlist is checked again at once.
  const isOutOfCapacity = first && !draft.hasCapacity(account, host);
  const untilCheck = draft.isDenied(account, host) ? spans.deniedWaitlistCheck : spans.waitlistCheck;
  draft.put("hostWaitlists", { ...waitlist, dueAt: moment.now + (isOutOfCapacity ? untilCheck : 0) });
}

/**
 * Lets the first messages of a limiter's waitlist pass as far as the limiter is open. A limiter that has been
 * idle for long enough is removed.
 *
 * A limiter becomes due when it opens, so that a claim serves its waitlist. Most limiters are opened by an
 * outcome, so an outcome serves the waitlist at once.
 */
export function serveLimiter(draft: Draft, moment: Moment, { account, id }: Limiter): void {
  const gate = parseGate(id);
  if (isAccountLimit(gate)) refreshAccountLimit(draft, moment, { account, gate });
  const before = draft.get("limiters", account, id);
  const first = findFirstNotServed(draft, moment, { account, gate });
  const limiter = draft.get("limiters", account, id);
  if (!limiter) return;
  if (first || !draft.isWholeWaitlist(account, id)) {
    putLimiter(draft, moment, limiter);
    const haveOnlyMoved = before && limiter.running === before.running && limiter.waiting < before.waiting;
    if (!first && haveOnlyMoved) restLimiter(draft, moment, limiter);
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
 * Returns the heads of the waitlists of due limiters: as many messages as these limiters let pass, and at
 * most `max` in all.
 */
export const listWaitlistHeads = (limiters: readonly Limiter[], max: number): WaitlistHead[] =>
  limiters.flatMap((limiter) => {
    const limit = Math.min(Math.ceil(max / limiters.length), unreservedRoom(limiter, limiter.dueAt ?? 0));
    return limiter.waiting > 0 && limit > 0
      ? [{ account: limiter.account, waitlist: limiter.id, limit }]
      : [];
  });

/** Returns the heads of the waitlists of hosts, at most `max` messages in all. */
export const listHostHeads = (waitlists: readonly HostWaitlist[], max: number): WaitlistHead[] =>
  waitlists.map(({ account, host }) => ({
    account,
    waitlist: formatGate(capacityGate(host)),
    limit: Math.ceil(max / waitlists.length),
  }));

/** Returns the heads that may move even if this node has no capacity: those of the waitlists of limiters. */
export const listLimiterHeads = (heads: readonly WaitlistHead[]): readonly WaitlistHead[] =>
  heads.filter(({ waitlist }) => hasLimiter(parseGate(waitlist)));

/**
 * Returns what must be loaded, besides the stored messages, before the messages at the heads of waitlists
 * move.
 */
export function waitlistHeadNeeds(draft: Draft, heads: readonly WaitlistHead[]): Needs {
  const states = heads.flatMap(({ account, waitlist }) => [...draft.waitlistHead(account, waitlist)]);
  return { ...admissionNeeds(draft, states), ...stateDestinationNeeds(states) };
}

type Waitlist = { account: AccountId; gate: Gate };

function findFirstNotServed(draft: Draft, moment: Moment, { account, gate }: Waitlist): MessageState | null {
  for (const state of draft.waitlistHead(account, formatGate(gate)))
    if (!serveOne(draft, moment, { initial: state, gate })) return state;
  return null;
}

/** Returns the waitlists of the hosts that have capacity. The bodies of their first messages are needed. */
export const withCapacity = (
  draft: Draft,
  waitlists: readonly HostWaitlist[],
): readonly Pick<WaitlistHead, "account" | "waitlist">[] =>
  waitlists
    .filter(({ account, host }) => draft.hasCapacity(account, host))
    .map(({ account, host }) => ({ account, waitlist: formatGate(capacityGate(host)) }));

/**
 * Leaves a waitlist to the next claim, which serves waitlists in the order in which they became due. If
 * capacity is short, a host that has freed capacity must not take it again before hosts that have waited
 * longer.
 */
export function checkSoon(draft: Draft, moment: Moment, waitlist: HostWaitlist): void {
  if (waitlist.dueAt > moment.now) draft.put("hostWaitlists", { ...waitlist, dueAt: moment.now });
}

/**
 * Makes the next claim serve the waitlists of these hosts, because their account may start deliveries again.
 */
export const wakeHostWaitlists: Decision<
  { account: AccountId; hosts: readonly string[] },
  { woken: number }
> = {
  needs: ({ account, hosts }) => ({ hostWaitlists: hosts.map((host) => [account, host] as const) }),
  decide: ({ account, hosts }, draft, moment) => {
    const waitlists = hosts.flatMap((host) => findHostWaitlist(draft, { account, host }) ?? []);
    for (const waitlist of waitlists) checkSoon(draft, moment, waitlist);
    return { woken: waitlists.length };
  },
};

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
  else if (draft.isBodyLoaded(state)) sendNow(draft, moment, state);
  else if (state === initial) return false;
  // The message has taken its slot of the queue, and is sent by the next claim.
  else draft.put("messages", { ...state, state: "pending", dueAt: moment.now });
  return true;
}

/**
 * Leases a message for which all gates are open and whose body is loaded. A message whose stored content is
 * damaged or missing is left to the next claim, which fails it.
 */
export function sendNow(draft: Draft, moment: Moment, state: MessageState): void {
  const account = draft.get("accounts", state.account);
  const message = draft.get("storedMessages", state.account, state.id);
  if (!account) return giveUp(draft, moment, state);
  if (!message || message.damaged)
    return draft.put("messages", { ...state, state: "pending", dueAt: moment.now });
  draft.takeCapacity(state.account, state.host, state.size);
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
