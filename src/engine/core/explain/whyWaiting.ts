import { countRetries } from "../sending/retry.ts";
import { readStart, serverEndedDueAt } from "../admission/lease.ts";
import type { AccountLimit, Gate } from "../admission/gate.ts";
import { isAccountLimit, parseGate, readWaitlist } from "../admission/gate.ts";
import type { Closure } from "../admission/limiter.ts";
import { listClosures } from "../admission/limiter.ts";
import type { LimitName } from "../model/accountTerms.ts";
import type { LogRow } from "../model/logRow.ts";
import type { AccountId, MessageId, Millis, NodeId } from "../values/basics.ts";
import type { MessageState } from "../model/messageState.ts";
import { isBeingSent, isPulled } from "../model/messageState.ts";
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
  /** The time limit of an attempt. */
  timeout: Millis;
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
  /** The pulled origin that the message is for. Absent if it is sent, or not known to be pulled. */
  pulledOrigin?: string;
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
  "puller",
  "sending",
  "acknowledging",
  "lease-over",
] as const;

/** The number of an attempt, the node that makes or made it, and since when. */
type Sending = { attempt: number; node: NodeId; since: Millis };
/** A limit that is used up. `reserved` of the slots that are used belong to messages in a later waitlist. */
type UsedUp = { used: number; limit: number; reserved: number };
/** A limit of an account that is used up. Only a higher value of the named limits opens it. */
type AccountUsedUp = UsedUp & { account: AccountId; names: readonly LimitName[] };

/** One reason why a message waits. `api/views/waitReasons.ts` words it. */
export type WaitReason = (
  | { reason: "server-held" }
  /** `until`: when it times out. `isEnding`: an operator has ended the attempt. */
  | ({ reason: "sending"; until: Millis; isEnding: boolean } & Sending)
  /** Its receiver, or a client that pulled it, holds the attempt. `until`: when it must be reported. */
  | { reason: "acknowledging"; attempt: number; since: Millis; until: Millis; isPulled: boolean }
  /** `until`: when its lease ended. */
  | ({ reason: "lease-over"; until: Millis; ended: "server" | "node" | "lease" } & Sending)
  | { reason: "due"; since: Millis }
  | { reason: "not-due"; until: Millis }
  | ({ reason: "retry"; until: Millis; used: number; limit: number } & LastFailure)
  | { reason: "queue-paused"; queue: string }
  | { reason: "key-paused"; key: string }
  | {
      reason: "queue";
      queue: string;
      used: number;
      limit: number;
      behind: readonly BlockingMessage[];
      others: number;
    }
  | ({ reason: "key-parallelism"; key: string } & UsedUp)
  | ({ reason: "key-rate"; key: string; until: Millis } & UsedUp)
  | ({ reason: "account" } & AccountUsedUp)
  | ({ reason: "account-endpoint"; endpoint: string } & AccountUsedUp)
  | { reason: "host"; host: string }
  /** The messages to its origin are pulled, and no client has pulled it. `since`: when it was due. */
  | { reason: "puller"; origin: string; since: Millis }
  | { reason: "turn"; gate: Gate | null }
) &
  Position;

/** Why the last attempt failed, if that is known. */
type LastFailure = { status: number | null; error: string | null; reported?: string };

/**
 * The number of messages ahead of it in the waitlist. `more` means that more messages are ahead than were
 * counted.
 */
type Position = { position?: number; more?: true };

/**
 * A message that holds a slot at a queue or key. `holder` is its state, or that of its callback
 * `callbackId`.
 */
export type BlockingMessage = { messageId: MessageId; callbackId?: MessageId; holder: MessageState };

/**
 * Returns why a message is unfinished. `isOnHold`: all deliveries are on hold. The first reason applies now.
 * Further reasons either also apply now, or are pauses that will stop the message later.
 */
export function listWaitReasons(waitState: WaitState, now: Millis, isOnHold = false): WaitReason[] {
  const { state } = waitState;
  if (isBeingSent(state)) return [explainSending(waitState, now)];
  if (state.state === "acknowledging") return [explainHold(waitState, now)];
  if (isOnHold) return [{ reason: "server-held" }, ...listWaitReasons(waitState, now)];
  if (state.state === "pending") {
    const pauses = listLaterPauses(waitState, [waitState.queue, waitState.key]);
    return waitsForPausedQueue(waitState, now) ? pauses : [explainDueTime(waitState, now), ...pauses];
  }
  const waitlist = readWaitlist(state);
  if (waitlist?.kind === "queue")
    return [explainQueue(waitState, now), ...listLaterPauses(waitState, [waitState.key])];
  if (waitlist?.kind === "key")
    return [...explainKey(waitState, now), ...listLaterPauses(waitState, [waitState.queue])];
  const reason =
    waitlist !== null && isAccountLimit(waitlist)
      ? explainAccountLimit(waitState, waitlist, now)
      : explainCapacity(waitState);
  return [reason, ...listLaterPauses(waitState, [waitState.queue, waitState.key])];
}

function explainSending({ state, lastEntry, createdAt, timeout }: WaitState, now: Millis): WaitReason {
  const { attempts, leasedBy, dueAt } = state;
  const ended = dueAt === serverEndedDueAt ? "server" : dueAt === nodeEndedDueAt ? "node" : null;
  const leasedUntil = ended ? now : (dueAt ?? now);
  const since = readStart(state) ?? lastEntry?.time ?? createdAt;
  const sending: Sending = { attempt: attempts, node: leasedBy ?? "?", since };
  return leasedUntil > now
    ? { reason: "sending", ...sending, until: since + timeout, isEnding: state.state === "ending" }
    : { reason: "lease-over", ...sending, until: leasedUntil, ended: ended ?? "lease" };
}

function explainHold({ state, lastEntry, createdAt }: WaitState, now: Millis): WaitReason {
  const since = readStart(state) ?? lastEntry?.time ?? createdAt;
  const held = { attempt: state.attempts, since, until: state.dueAt ?? now };
  return { reason: "acknowledging", ...held, isPulled: isPulled(state) };
}

/**
 * Reports whether a message would be sent if it did not hold a slot of a paused queue. Its due time is then
 * the time of the next check of the queue.
 */
function waitsForPausedQueue({ state, queue, notBefore, lastEntry }: WaitState, now: Millis): boolean {
  const due = state.attempts > 0 ? (lastEntry?.nextDueAt ?? now) : notBefore;
  return queue?.paused === true && state.slot === state.id && due <= now;
}

function explainDueTime({ state, retries, lastEntry }: WaitState, now: Millis): WaitReason {
  const dueAt = state.dueAt ?? now;
  if (dueAt <= now) return { reason: "due", since: dueAt };
  const retried = countRetries(state);
  if (retried === 0) return { reason: "not-due", until: dueAt };
  const { status, error, reported } = lastEntry ?? { status: null, error: null };
  return {
    ...({ reason: "retry", until: dueAt, used: retried, limit: retries, status, error } as const),
    ...(reported === undefined ? {} : { reported }),
  };
}

/** Returns the pauses that will stop the message at later gates, unless they are resumed first. */
const listLaterPauses = ({ state }: WaitState, limiters: readonly (Limiter | null)[]): WaitReason[] =>
  limiters.flatMap((limiter) =>
    limiter?.paused && !(parseGate(limiter.id).kind === "queue" && isSharedSlot(state))
      ? [toPause(limiter)]
      : [],
  );

/** A callback shares the slot of the message that it reports on, and is sent even if the queue is paused. */
const isSharedSlot = ({ slot, id }: MessageState): boolean => slot !== null && slot !== id;

function toPause(limiter: Limiter): WaitReason {
  const { kind, name } = parseGate(limiter.id);
  return kind === "queue" ? { reason: "queue-paused", queue: name } : { reason: "key-paused", key: name };
}

function explainQueue(waitState: WaitState, now: Millis): WaitReason {
  const { queue, slotHolders } = waitState;
  const [closure] = queue ? listClosures(queue, now) : [];
  if (!queue || !closure) return toTurn(waitState);
  if (closure.by !== "parallelism") return withPosition(toPause(queue), waitState);
  const { used, limit } = closure;
  const behind = slotHolders.flatMap(listBlocking);
  const others = queue.running - slotHolders.length;
  const reason = {
    reason: "queue",
    queue: waitState.state.queue ?? "",
    used,
    limit,
    behind,
    others,
  } as const;
  return withPosition(reason, waitState);
}

/**
 * Returns the holder of a slot at a queue or key: the message or, after it has finished, a callback. Returns
 * nothing if the holder finished between two reads.
 */
export function listBlocking({ messageId, holders }: SlotHolders): BlockingMessage[] {
  const own = holders.find(({ id }) => id === messageId);
  if (own) return [{ messageId, holder: own }];
  const [callback] = holders;
  return callback ? [{ messageId, callbackId: callback.id, holder: callback }] : [];
}

/** Returns every reason for which a key is closed. There may be several. */
function explainKey(waitState: WaitState, now: Millis): WaitReason[] {
  const { key: limiter, state } = waitState;
  const closures = limiter ? listClosures(limiter, now) : [];
  if (!limiter || closures.length === 0) return [toTurn(waitState)];
  const toReason = (closure: Closure): WaitReason => {
    if (closure.by === "pause") return toPause(limiter);
    const { used, limit } = closure;
    const facts = { key: state.flowControlKey ?? "", used, limit, reserved: countReserved(limiter) };
    return closure.by === "parallelism"
      ? { reason: "key-parallelism", ...facts }
      : { reason: "key-rate", ...facts, until: closure.until };
  };
  return closures.map((closure) => withPosition(toReason(closure), waitState));
}

/** Messages that wait for the account have already reserved a slot at the gates before. */
const countReserved = ({ waitingDownstream = 0 }: Limiter): number => waitingDownstream;

function explainAccountLimit(waitState: WaitState, waitlist: AccountLimit, now: Millis): WaitReason {
  const { accountLimiter: limiter, state } = waitState;
  const closure = limiter && listClosures(limiter, now).find(({ by }) => by === "parallelism");
  if (!limiter || closure?.by !== "parallelism") return toTurn(waitState);
  const { used, limit } = closure;
  const facts = { used, limit, reserved: countReserved(limiter), account: state.account };
  if (waitlist.kind === "endpoint")
    return withPosition(
      { reason: "account-endpoint", endpoint: waitlist.name, ...facts, names: ["parallelism"] },
      waitState,
    );
  // If the limit per endpoint is 0, the limit in total is 0 as well.
  const names: LimitName[] = ["globalParallelism", ...(limit === 0 ? ["parallelism" as const] : [])];
  return withPosition({ reason: "account", ...facts, names }, waitState);
}

const toTurn = (waitState: WaitState): WaitReason =>
  withPosition({ reason: "turn", gate: readWaitlist(waitState.state) }, waitState);

function explainCapacity(waitState: WaitState): WaitReason {
  const { pulledOrigin: origin, notBefore, lastEntry, state } = waitState;
  const { host } = state;
  const waitlist = readWaitlist(state);
  if (waitlist?.kind !== "capacity" || waitlist.name !== host) return toTurn(waitState);
  if (origin === undefined) return withPosition({ reason: "host", host }, waitState);
  const since = Math.max(notBefore, lastEntry?.nextDueAt ?? 0);
  return withPosition({ reason: "puller", origin, since }, waitState);
}

function withPosition(reason: WaitReason, { waitingAhead }: WaitState): WaitReason {
  if (waitingAhead === null) return reason;
  const more = waitingAhead > maxCounted;
  return { ...reason, position: Math.min(waitingAhead, maxCounted), ...(more ? { more } : {}) };
}
