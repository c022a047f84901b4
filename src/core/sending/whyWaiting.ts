import { countRetries } from "./retry.ts";
import { serverEndedDueAt } from "../admission/lease.ts";
import type { AccountLimit, GateKind } from "../admission/gate.ts";
import { isAccountLimit, parseGate, readWaitlist } from "../admission/gate.ts";
import { readWindow } from "../admission/limiter.ts";
import { toLimitFlag } from "../accounts/plans.ts";
import type { Limiter, LogRow, MessageId, MessageState, Millis, NodeId } from "../model/message.ts";
import { nodeEndedDueAt } from "../nodes/takeover.ts";

/** Messages before it in its line are counted as far as this. */
export const maxCounted = 1_000;
/** So many places of a queue are looked at, to say who holds them. */
export const maxSlotsShown = 3;

/** What is known of an unfinished message, read without a lock, so that one part may be older than another. */
export type WaitState = {
  state: MessageState;
  retries: number;
  createdAt: Millis;
  notBefore: Millis;
  /** The last line of its log, if it has one. `said`: why an endpoint of a workflow says that it has failed. */
  lastEntry: (Pick<LogRow, "time" | "status" | "error" | "nextDueAt"> & { reported?: string }) | null;
  queue: Limiter | null;
  key: Limiter | null;
  /** What its account may have under way, in all or to its endpoint, if it waits for that. */
  accountLimiter?: Limiter | null;
  /** How many stand before it in its line; one more than `maxCounted` when there are more. */
  waitingAhead: number;
  slotHolders: readonly SlotHolders[];
};

/** A place in the queue, and who holds it: the message itself, or its callbacks. */
export type SlotHolders = { messageId: MessageId; holders: readonly MessageState[] };

export const waitReasonNames = [
  ...([
    "not-due",
    "retry",
    "due",
    "queue",
    "queue-paused",
    "key-parallelism",
    "key-rate",
    "key-paused",
    "account",
    "account-endpoint",
    "turn",
    "host",
  ] as const),
  ...(["sending", "lease-over"] as const),
] as const;

/** Why a message waits, in words, and the figures that the words are made of. */
export type WaitReason = {
  reason: (typeof waitReasonNames)[number];
  text: string;
  since?: Millis;
  until?: Millis;
  queue?: string;
  key?: string;
  endpoint?: string;
  host?: string;
  node?: NodeId;
  /** How much of `limit` is used: places of a queue, deliveries of a key, retries. */
  used?: number;
  limit?: number;
  /** How many stand before it in its line. `more`: there are more than were counted. */
  position?: number;
  more?: true;
  status?: number;
  error?: string;
  behind?: readonly BlockingMessage[];
};

export type BlockingMessage = { messageId: MessageId; callbackId?: MessageId; text: string };

/** Why a message is not finished, the reason that holds now first; then what will hold it back later for certain. */
export function listWaitReasons(waitState: WaitState, now: Millis): WaitReason[] {
  const { state } = waitState;
  if (state.state === "active") return [describeSending(waitState, now)];
  if (state.state === "pending") {
    const pauses = listLaterPauses(waitState, [waitState.queue, waitState.key]);
    return isQueuePaused(waitState, now) ? pauses : [describeDue(waitState, now), ...pauses];
  }
  const waitlist = readWaitlist(state);
  if (waitlist?.kind === "queue") return [...describeQueueWait(waitState), ...listLaterPauses(waitState, [waitState.key])];
  if (waitlist?.kind === "key") return [...describeKeyWait(waitState, now), ...listLaterPauses(waitState, [waitState.queue])];
  const reason = waitlist !== null && isAccountLimit(waitlist) ? describeAccountWait(waitState, waitlist) : describeHostWait(waitState);
  return [reason, ...listLaterPauses(waitState, [waitState.queue, waitState.key])];
}

const isNodeEnd = (dueAt: Millis | null): boolean => dueAt === serverEndedDueAt || dueAt === nodeEndedDueAt;

function describeSending({ state, lastEntry, createdAt }: WaitState, now: Millis): WaitReason {
  const { leasedBy, dueAt } = state;
  const node = leasedBy ?? "?";
  const until = isNodeEnd(dueAt) ? now : (dueAt ?? now);
  const since = lastEntry?.time ?? createdAt;
  const facts = { node, since, until };
  if (dueAt === serverEndedDueAt) {
    const text = `the server was restarted while node ${node} was sending it since ${iso(since)}, so it is sent again`;
    return { reason: "lease-over", text, ...facts };
  }
  if (dueAt === nodeEndedDueAt) {
    const text = `node ${node} ended while it was sending it since ${iso(since)}, so it is sent again`;
    return { reason: "lease-over", text, ...facts };
  }
  if (until <= now) {
    const text = `node ${node} has sent it since ${iso(since)} and has not reported; its lease ended at ${iso(until)}, so it is sent again`;
    return { reason: "lease-over", text, ...facts };
  }
  return { reason: "sending", text: `being sent by node ${node} since ${iso(since)}; its lease ends at ${iso(until)}`, ...facts };
}

/** Whether it would be sent, had it not its place in a queue that is paused. Then its due time is when that is looked at again. */
function isQueuePaused({ state, queue, notBefore, lastEntry }: WaitState, now: Millis): boolean {
  const due = state.attempts > 0 ? (lastEntry?.nextDueAt ?? now) : notBefore;
  return queue?.paused === true && state.slot === state.id && due <= now;
}

function describeDue({ state, retries, lastEntry }: WaitState, now: Millis): WaitReason {
  const dueAt = state.dueAt ?? now;
  if (dueAt <= now) return { reason: "due", text: `due since ${iso(dueAt)}; the next node that looks takes it`, since: dueAt };
  const retried = countRetries(state);
  if (retried === 0) return { reason: "not-due", text: `due at ${iso(dueAt)}`, until: dueAt };
  const { status, error, reported } = lastEntry ?? { status: null, error: null };
  return {
    reason: "retry",
    text: `retry ${retried} of ${retries} at ${iso(dueAt)}${formatLastResult({ status, error })}${reported === undefined ? "" : `: ${reported}`}`,
    until: dueAt,
    used: retried,
    limit: retries,
    ...(status === null ? {} : { status }),
    ...(error === null ? {} : { error }),
  };
}

function formatLastResult({ status, error }: Pick<LogRow, "status" | "error">): string {
  if (status !== null) return `, after status ${status}`;
  return error === null ? "" : `, after: ${error}`;
}

/** It has not been before these gates yet, and cannot pass them then, unless somebody resumes them. */
const listLaterPauses = ({ state }: WaitState, limiters: readonly (Limiter | null)[]): WaitReason[] =>
  limiters.flatMap((limiter) =>
    limiter?.paused && !(parseGate(limiter.id).kind === "queue" && isSharedSlot(state)) ? [describePause(limiter)] : [],
  );

/** A callback has the slot of the message it tells of, and is sent as long as that has one. */
const isSharedSlot = ({ slot, id }: MessageState): boolean => slot !== null && slot !== id;

function describePause(limiter: Limiter): WaitReason {
  const { kind, name } = parseGate(limiter.id);
  return kind === "queue"
    ? { reason: "queue-paused", text: `queue ${name} is paused`, queue: name }
    : { reason: "key-paused", text: `key ${name} is paused`, key: name };
}

function describeQueueWait(waitState: WaitState): WaitReason[] {
  const { queue, state, slotHolders } = waitState;
  const name = state.queue ?? "";
  if (queue?.paused) return [addPosition(describePause(queue), waitState)];
  if (!queue || queue.parallelism === null || queue.running < queue.parallelism) return [describeTurn(waitState)];
  const behind = slotHolders.flatMap((slot) => describeSlotHolders(slot));
  const others = queue.running - slotHolders.length;
  const names = [...behind.map(({ text }) => text), ...(others > 0 && behind.length > 0 ? [`${others} more`] : [])];
  const text = `queue ${name}: ${queue.running} of ${queue.parallelism} at work${names.length > 0 ? `, behind ${names.join(", ")}` : ""}`;
  return [addPosition({ reason: "queue", text, queue: name, used: queue.running, limit: queue.parallelism, behind }, waitState)];
}

/** The message first, then its callbacks. Nobody, when it was finished between two reads. */
function describeSlotHolders({ messageId, holders }: SlotHolders): BlockingMessage[] {
  const own = holders.find(({ id }) => id === messageId);
  if (own) return [{ messageId, text: `message ${messageId} (${formatActivity(own)})` }];
  const callback = holders[0];
  if (!callback) return [];
  return [{ messageId, callbackId: callback.id, text: `message ${messageId} (its callback ${callback.id}: ${formatActivity(callback)})` }];
}

function formatActivity(message: MessageState): string {
  const { state, dueAt, leasedBy, waitlist } = message;
  if (state === "active") return `being sent by node ${leasedBy ?? "?"}`;
  if (state === "cancelling") return `cancelled, and its request by node ${leasedBy ?? "?"} has not ended`;
  if (state === "held") return `in the line of ${formatWaitlist({ waitlist })}`;
  return `${countRetries(message) > 0 ? "in retry until" : "due at"} ${iso(dueAt ?? 0)}`;
}

/** How the waitlists of the gates are called. */
const waitlistNames: Record<GateKind, (name: string) => string> = {
  queue: (name) => `queue ${name}`,
  key: (name) => `key ${name}`,
  endpoint: (name) => `the account at endpoint ${name}`,
  account: () => "the account",
  capacity: (host) => `host ${host}`,
};

function formatWaitlist(state: Pick<MessageState, "waitlist">): string {
  const waitlist = readWaitlist(state);
  return waitlist === null ? "?" : waitlistNames[waitlist.kind](waitlist.name);
}

/** A key may be closed in more than one way. */
function describeKeyWait(waitState: WaitState, now: Millis): WaitReason[] {
  const { key: limiter, state } = waitState;
  if (!limiter) return [describeTurn(waitState)];
  const key = state.flowControlKey ?? "";
  const reasons: WaitReason[] = limiter.paused ? [describePause(limiter)] : [];
  const { parallelism, rate, running, period, waitingDownstream = 0 } = limiter;
  if (parallelism !== null && running + waitingDownstream >= parallelism) {
    const facts = { key, used: running + waitingDownstream, limit: parallelism };
    reasons.push({
      reason: "key-parallelism",
      text: `key ${key}: ${running} of ${parallelism} in flight${formatWaitingDownstream(limiter)}`,
      ...facts,
    });
  }
  const { windowStart, windowUsed } = readWindow(limiter, now);
  if (rate !== null && windowUsed + waitingDownstream >= rate) {
    const until = windowStart + period;
    const text = `key ${key}: rate ${windowUsed} of ${rate} used until ${iso(until)}${formatWaitingDownstream(limiter)}`;
    reasons.push({ reason: "key-rate", text, key, used: windowUsed + waitingDownstream, limit: rate, until });
  }
  return reasons.length === 0 ? [describeTurn(waitState)] : reasons.map((reason) => addPosition(reason, waitState));
}

/** Those that went on to a line of the account have their places already. */
const formatWaitingDownstream = ({ waitingDownstream = 0 }: Pick<Limiter, "waitingDownstream">): string =>
  waitingDownstream > 0 ? `, ${waitingDownstream} more in line for the account` : "";

function describeAccountWait(waitState: WaitState, waitlist: AccountLimit): WaitReason {
  const { running = 0, parallelism = null, waitingDownstream = 0 } = waitState.accountLimiter ?? {};
  if (parallelism === null || running + waitingDownstream < parallelism) return describeTurn(waitState);
  // An account that may have none under way to any endpoint may have none at all.
  const names =
    waitlist.kind === "endpoint"
      ? ["parallelism" as const]
      : ["globalParallelism" as const, ...(parallelism === 0 ? ["parallelism" as const] : [])];
  const raise = `${names.map((name) => `"waypost account limits ${waitState.state.account} --${toLimitFlag(name)} ..."`).join(" or ")} raises the limit`;
  const facts = { used: running + waitingDownstream, limit: parallelism };
  if (waitlist.kind === "account")
    return addPosition(
      { reason: "account", text: `account: ${running} of ${parallelism} deliveries under way (${raise})`, ...facts },
      waitState,
    );
  const endpoint = waitlist.name;
  const text = `account: ${running} of ${parallelism} deliveries under way to endpoint ${endpoint}${formatWaitingDownstream({ waitingDownstream })} (${raise})`;
  return addPosition({ reason: "account-endpoint", text, endpoint, ...facts }, waitState);
}

const describeTurn = (waitState: WaitState): WaitReason =>
  addPosition({ reason: "turn", text: `${formatWaitlist(waitState.state)} is open; the next node that looks takes it on` }, waitState);

function describeHostWait(waitState: WaitState): WaitReason {
  const { host } = waitState.state;
  const waitlist = readWaitlist(waitState.state);
  if (waitlist?.kind !== "capacity" || waitlist.name !== host) return describeTurn(waitState);
  return addPosition({ reason: "host", text: `no free hand for host ${host}`, host }, waitState);
}

function addPosition(reason: WaitReason, { waitingAhead }: WaitState): WaitReason {
  const more = waitingAhead > maxCounted;
  const count = more ? `more than ${maxCounted}` : waitingAhead === 0 ? "nobody" : String(waitingAhead);
  const text = `${reason.text}; ${count} before it in line`;
  return { ...reason, text, position: Math.min(waitingAhead, maxCounted), ...(more ? { more } : {}) };
}

const iso = (time: Millis): string => new Date(time).toISOString();
