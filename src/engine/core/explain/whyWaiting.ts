import { countRetries } from "../sending/retry.ts";
import { serverEndedDueAt } from "../admission/lease.ts";
import type { AccountLimit, GateKind } from "../admission/gate.ts";
import { isAccountLimit, parseGate, readWaitlist } from "../admission/gate.ts";
import { readWindow } from "../admission/limiter.ts";
import { toLimitFlag } from "../accounts/plans.ts";
import type { LogRow } from "../model/logRow.ts";
import type { MessageId, Millis, NodeId } from "../values/basics.ts";
import type { MessageState } from "../model/messageState.ts";
import type { Limiter } from "../model/limiter.ts";
import { nodeEndedDueAt } from "../cluster/takeover.ts";

/** The messages ahead in a waitlist are counted up to this number. */
export const maxCounted = 1_000;
/** The number of queue slots whose holders are shown. */
export const maxSlotsShown = 3;

/**
 * The known state of an unfinished message. It is read without a lock, so one part may be older than another.
 */
export type WaitState = {
  state: MessageState;
  retries: number;
  createdAt: Millis;
  notBefore: Millis;
  /**
   * The last row of its log, if it has one. `reported` is the failure that the endpoint of a workflow
   * reported.
   */
  lastEntry: (Pick<LogRow, "time" | "status" | "error" | "nextDueAt"> & { reported?: string }) | null;
  queue: Limiter | null;
  key: Limiter | null;
  /**
   * The account limit that the message waits for: in total, or for its endpoint. Absent or null if it waits
   * for neither.
   */
  accountLimiter?: Limiter | null;
  /** The last failed attempt among its last rows of the log. Only lists need it. */
  lastResult?: Pick<LogRow, "status" | "error"> | null;
  /**
   * The number of messages ahead of it in the waitlist. If there are more than `maxCounted`, it is
   * `maxCounted` + 1. It is null if they were not counted.
   */
  waitingAhead: number | null;
  slotHolders: readonly SlotHolders[];
};

/** A queue slot and its holders: the message itself, or its callbacks. */
export type SlotHolders = { messageId: MessageId; holders: readonly MessageState[] };

/** The kinds of reasons why a message waits. */
export const waitReasonNames = [
  "server-held",
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
  "sending",
  "lease-over",
] as const;

/** One reason why a message waits: a text, and the values that the text is made of. */
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
  /** How much of `limit` is used: slots of a queue, deliveries of a key, or retries. */
  used?: number;
  limit?: number;
  /**
   * The number of messages ahead of it in the waitlist. `more` means that more messages are ahead than were
   * counted.
   */
  position?: number;
  more?: true;
  status?: number;
  error?: string;
  behind?: readonly BlockingMessage[];
};

/** A message that holds a queue slot. `callbackId` is present if a callback of the message holds it. */
export type BlockingMessage = { messageId: MessageId; callbackId?: MessageId; text: string };

/**
 * Returns why a message is unfinished. `isOnHold`: all deliveries are on hold. The first reason applies now.
 * Further reasons either also apply now, or are pauses that will stop the message later.
 */
export function listWaitReasons(waitState: WaitState, now: Millis, isOnHold = false): WaitReason[] {
  const { state } = waitState;
  if (state.state === "active") return [describeSending(waitState, now)];
  if (isOnHold)
    return [
      { reason: "server-held", text: "all deliveries are held until the operator ends the hold" },
      ...listWaitReasons(waitState, now),
    ];
  if (state.state === "pending") {
    const pauses = listLaterPauses(waitState, [waitState.queue, waitState.key]);
    return isQueuePaused(waitState, now) ? pauses : [describeDue(waitState, now), ...pauses];
  }
  const waitlist = readWaitlist(state);
  if (waitlist?.kind === "queue")
    return [...describeQueueWait(waitState), ...listLaterPauses(waitState, [waitState.key])];
  if (waitlist?.kind === "key")
    return [...describeKeyWait(waitState, now), ...listLaterPauses(waitState, [waitState.queue])];
  const reason =
    waitlist !== null && isAccountLimit(waitlist)
      ? describeAccountWait(waitState, waitlist)
      : describeHostWait(waitState);
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
    const text = `the server restarted while node ${node} sent it since ${iso(since)}; it is sent again`;
    return { reason: "lease-over", text, ...facts };
  }
  if (dueAt === nodeEndedDueAt) {
    const text = `node ${node} stopped while it sent it since ${iso(since)}; it is sent again`;
    return { reason: "lease-over", text, ...facts };
  }
  if (until <= now) {
    const problem = `node ${node} has been sending it since ${iso(since)} and has not reported`;
    const text = `${problem}; its lease expired at ${iso(until)}, so it is sent again`;
    return { reason: "lease-over", text, ...facts };
  }
  return {
    reason: "sending",
    text: `being sent by node ${node} since ${iso(since)}; its lease ends at ${iso(until)}`,
    ...facts,
  };
}

/**
 * Reports whether a message would be sent if it did not hold a slot of a paused queue. Its due time is then
 * the time of the next check of the queue.
 */
function isQueuePaused({ state, queue, notBefore, lastEntry }: WaitState, now: Millis): boolean {
  const due = state.attempts > 0 ? (lastEntry?.nextDueAt ?? now) : notBefore;
  return queue?.paused === true && state.slot === state.id && due <= now;
}

function describeDue({ state, retries, lastEntry }: WaitState, now: Millis): WaitReason {
  const dueAt = state.dueAt ?? now;
  if (dueAt <= now)
    return {
      reason: "due",
      text: `due since ${iso(dueAt)}; the next node that checks claims it`,
      since: dueAt,
    };
  const retried = countRetries(state);
  if (retried === 0) return { reason: "not-due", text: `due at ${iso(dueAt)}`, until: dueAt };
  const { status, error, reported } = lastEntry ?? { status: null, error: null };
  const result = `${formatLastResult({ status, error })}${reported === undefined ? "" : `: ${reported}`}`;
  return {
    reason: "retry",
    text: `retry ${retried} of ${retries} at ${iso(dueAt)}${result}`,
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

/** Returns the pauses that will stop the message at later gates, unless they are resumed first. */
const listLaterPauses = ({ state }: WaitState, limiters: readonly (Limiter | null)[]): WaitReason[] =>
  limiters.flatMap((limiter) =>
    limiter?.paused && !(parseGate(limiter.id).kind === "queue" && isSharedSlot(state))
      ? [describePause(limiter)]
      : [],
  );

/** A callback shares the slot of the message that it reports on, and is sent even if the queue is paused. */
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
  if (!queue || queue.parallelism === null || queue.running < queue.parallelism)
    return [describeTurn(waitState)];
  const behind = slotHolders.flatMap((slot) => describeSlotHolders(slot));
  const others = queue.running - slotHolders.length;
  const names = [
    ...behind.map(({ text }) => text),
    ...(others > 0 && behind.length > 0 ? [`${others} more`] : []),
  ];
  const blockers = names.length > 0 ? `, behind ${names.join(", ")}` : "";
  const text = `queue ${name}: ${queue.running} of ${queue.parallelism} slots in use${blockers}`;
  return [
    addPosition(
      { reason: "queue", text, queue: name, used: queue.running, limit: queue.parallelism, behind },
      waitState,
    ),
  ];
}

/**
 * Returns the holder of a place at a queue or key: the message or, after it has finished, a callback. Returns
 * nothing if the holder finished between two reads.
 */
export function describeSlotHolders({ messageId, holders }: SlotHolders): BlockingMessage[] {
  const own = holders.find(({ id }) => id === messageId);
  if (own) return [{ messageId, text: `message ${messageId} (${formatActivity(own)})` }];
  const callback = holders[0];
  if (!callback) return [];
  return [
    {
      messageId,
      callbackId: callback.id,
      text: `message ${messageId} (its callback ${callback.id}: ${formatActivity(callback)})`,
    },
  ];
}

function formatActivity(message: MessageState): string {
  const { state, dueAt, leasedBy, waitlist } = message;
  if (state === "active") return `being sent by node ${leasedBy ?? "?"}`;
  if (state === "cancelling") return `cancelled, but its request by node ${leasedBy ?? "?"} still runs`;
  if (state === "settled") return `delivered, but its request by node ${leasedBy ?? "?"} still runs`;
  if (state === "held") return `in the waitlist of ${formatWaitlist({ waitlist })}`;
  return `${countRetries(message) > 0 ? "retry at" : "due at"} ${iso(dueAt ?? 0)}`;
}

/** How texts name the waitlist of each gate. */
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

/** Returns every reason for which a key is closed. There may be several. */
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
    const others = formatWaitingDownstream(limiter);
    const text = `key ${key}: rate ${windowUsed} of ${rate} used until ${iso(until)}${others}`;
    reasons.push({ reason: "key-rate", text, key, used: windowUsed + waitingDownstream, limit: rate, until });
  }
  return reasons.length === 0
    ? [describeTurn(waitState)]
    : reasons.map((reason) => addPosition(reason, waitState));
}

/** Messages that wait for the account have already reserved a place here. */
const formatWaitingDownstream = ({ waitingDownstream = 0 }: Pick<Limiter, "waitingDownstream">): string =>
  waitingDownstream > 0 ? `, ${waitingDownstream} more waiting for the account` : "";

function describeAccountWait(waitState: WaitState, waitlist: AccountLimit): WaitReason {
  const { running = 0, parallelism = null, waitingDownstream = 0 } = waitState.accountLimiter ?? {};
  if (parallelism === null || running + waitingDownstream < parallelism) return describeTurn(waitState);
  // If the limit per endpoint is 0, the limit in total is 0 as well.
  const names =
    waitlist.kind === "endpoint"
      ? ["parallelism" as const]
      : ["globalParallelism" as const, ...(parallelism === 0 ? ["parallelism" as const] : [])];
  const toCommand = (name: (typeof names)[number]): string =>
    `"waypost account limits ${waitState.state.account} --${toLimitFlag(name)} <value>"`;
  const raise = `raise the limit with ${names.map(toCommand).join(" or ")}`;
  const facts = { used: running + waitingDownstream, limit: parallelism };
  if (waitlist.kind === "account")
    return addPosition(
      {
        reason: "account",
        text: `account: ${running} of ${parallelism} deliveries in flight (${raise})`,
        ...facts,
      },
      waitState,
    );
  const endpoint = waitlist.name;
  const usage = `${running} of ${parallelism} deliveries in flight to endpoint ${endpoint}`;
  const text = `account: ${usage}${formatWaitingDownstream({ waitingDownstream })} (${raise})`;
  return addPosition({ reason: "account-endpoint", text, endpoint, ...facts }, waitState);
}

const describeTurn = (waitState: WaitState): WaitReason =>
  addPosition(
    {
      reason: "turn",
      text: `${formatWaitlist(waitState.state)} is open; the next node that checks claims it`,
    },
    waitState,
  );

function describeHostWait(waitState: WaitState): WaitReason {
  const { host } = waitState.state;
  const waitlist = readWaitlist(waitState.state);
  if (waitlist?.kind !== "capacity" || waitlist.name !== host) return describeTurn(waitState);
  return addPosition({ reason: "host", text: `no free delivery capacity for host ${host}`, host }, waitState);
}

function addPosition(reason: WaitReason, { waitingAhead }: WaitState): WaitReason {
  if (waitingAhead === null) return reason;
  const more = waitingAhead > maxCounted;
  const count = more ? `more than ${maxCounted}` : waitingAhead === 0 ? "none" : String(waitingAhead);
  const text = `${reason.text}; ${count} ahead of it in the waitlist`;
  return { ...reason, text, position: Math.min(waitingAhead, maxCounted), ...(more ? { more } : {}) };
}

const iso = (time: Millis): string => new Date(time).toISOString();
