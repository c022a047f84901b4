import { endedWithServer } from "../admission/lease.ts";
import type { AccountLimit, GateKind } from "../admission/gate.ts";
import { isAccountLimit, parseGate, readWaitlist } from "../admission/gate.ts";
import { readWindow } from "../admission/limiter.ts";
import { flagOfLimit } from "../accounts/plans.ts";
import type { Flow, LogRow, MessageId, MessageState, Millis, NodeId } from "../model/message.ts";
import { endedWithNode } from "../nodes/takeover.ts";

/** Messages before it in its line are counted as far as this. */
export const mostCounted = 1_000;
/** So many places of a queue are looked at, to say who holds them. */
export const mostPlaces = 3;

/** What is known of an unfinished message, read without a lock, so that one part may be older than another. */
export type Standing = {
  state: MessageState;
  retries: number;
  createdAt: Millis;
  notBefore: Millis;
  /** The last line of its log, if it has one. `said`: why an endpoint of a workflow says that it has failed. */
  last: (Pick<LogRow, "time" | "status" | "error" | "nextDueAt"> & { said?: string }) | null;
  queue: Flow | null;
  key: Flow | null;
  /** What its account may have under way, in all or to its endpoint, if it waits for that. */
  allowance?: Flow | null;
  /** How many stand before it in its line; one more than `mostCounted` when there are more. */
  before: number;
  places: readonly Place[];
};

/** A place in the queue, and who holds it: the message itself, or its callbacks. */
export type Place = { messageId: MessageId; holders: readonly MessageState[] };

export const reasonNames = [
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
export type Reason = {
  reason: (typeof reasonNames)[number];
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
  behind?: readonly Behind[];
};

export type Behind = { messageId: MessageId; callbackId?: MessageId; text: string };

/** Why a message is not finished, the reason that holds now first; then what will hold it back later for certain. */
export function reasonsOf(standing: Standing, now: Millis): Reason[] {
  const { state } = standing;
  if (state.state === "active") return [sending(standing, now)];
  if (state.state === "pending") {
    const pauses = laterPauses(standing, [standing.queue, standing.key]);
    return isStopped(standing, now) ? pauses : [untilDue(standing, now), ...pauses];
  }
  const waitlist = readWaitlist(state);
  if (waitlist?.kind === "queue") return [...inQueue(standing), ...laterPauses(standing, [standing.key])];
  if (waitlist?.kind === "key") return [...behindKey(standing, now), ...laterPauses(standing, [standing.queue])];
  const reason = waitlist !== null && isAccountLimit(waitlist) ? inAccount(standing, waitlist) : atHost(standing);
  return [reason, ...laterPauses(standing, [standing.queue, standing.key])];
}

const isEndOfNode = (dueAt: Millis | null): boolean => dueAt === endedWithServer || dueAt === endedWithNode;

function sending({ state, last, createdAt }: Standing, now: Millis): Reason {
  const { leasedBy, dueAt } = state;
  const [node, until, since] = [leasedBy ?? "?", isEndOfNode(dueAt) ? now : (dueAt ?? now), last?.time ?? createdAt];
  const facts = { node, since, until };
  if (dueAt === endedWithServer) {
    const text = `the server was restarted while node ${node} was sending it since ${iso(since)}, so it is sent again`;
    return { reason: "lease-over", text, ...facts };
  }
  if (dueAt === endedWithNode) {
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
function isStopped({ state, queue, notBefore, last }: Standing, now: Millis): boolean {
  const due = state.attempts > 0 ? (last?.nextDueAt ?? now) : notBefore;
  return queue?.paused === true && state.slot === state.id && due <= now;
}

function untilDue({ state, retries, last }: Standing, now: Millis): Reason {
  const due = state.dueAt ?? now;
  if (due <= now) return { reason: "due", text: `due since ${iso(due)}; the next node that looks takes it`, since: due };
  const retried = state.attempts - state.lost;
  if (retried === 0) return { reason: "not-due", text: `due at ${iso(due)}`, until: due };
  const { status, error, said } = last ?? { status: null, error: null };
  return {
    reason: "retry",
    text: `retry ${retried} of ${retries} at ${iso(due)}${afterWhat({ status, error })}${said === undefined ? "" : `: ${said}`}`,
    ...{ until: due, used: retried, limit: retries },
    ...(status === null ? {} : { status }),
    ...(error === null ? {} : { error }),
  };
}

function afterWhat({ status, error }: Pick<LogRow, "status" | "error">): string {
  if (status !== null) return `, after status ${status}`;
  return error === null ? "" : `, after: ${error}`;
}

/** It has not been before these gates yet, and cannot pass them then, unless somebody resumes them. */
const laterPauses = ({ state }: Standing, flows: readonly (Flow | null)[]): Reason[] =>
  flows.flatMap((flow) => (flow?.paused && !(parseGate(flow.id).kind === "queue" && isOfOther(state)) ? [paused(flow)] : []));

/** A callback has the slot of the message it tells of, and is sent as long as that has one. */
const isOfOther = ({ slot, id }: MessageState): boolean => slot !== null && slot !== id;

function paused(flow: Flow): Reason {
  const { kind, name } = parseGate(flow.id);
  return kind === "queue"
    ? { reason: "queue-paused", text: `queue ${name} is paused`, queue: name }
    : { reason: "key-paused", text: `key ${name} is paused`, key: name };
}

function inQueue(standing: Standing): Reason[] {
  const { queue, state, places } = standing;
  const name = state.queue ?? "";
  if (queue?.paused) return [inLine(paused(queue), standing)];
  if (!queue || queue.parallelism === null || queue.running < queue.parallelism) return [turnOf(standing)];
  const behind = places.flatMap((place) => behindOf(place));
  const others = queue.running - places.length;
  const names = [...behind.map(({ text }) => text), ...(others > 0 && behind.length > 0 ? [`${others} more`] : [])];
  const text = `queue ${name}: ${queue.running} of ${queue.parallelism} at work${names.length > 0 ? `, behind ${names.join(", ")}` : ""}`;
  return [inLine({ reason: "queue", text, queue: name, used: queue.running, limit: queue.parallelism, behind }, standing)];
}

/** The message first, then its callbacks. Nobody, when it was finished between two reads. */
function behindOf({ messageId, holders }: Place): Behind[] {
  const own = holders.find(({ id }) => id === messageId);
  if (own) return [{ messageId, text: `message ${messageId} (${doing(own)})` }];
  const callback = holders[0];
  if (!callback) return [];
  return [{ messageId, callbackId: callback.id, text: `message ${messageId} (its callback ${callback.id}: ${doing(callback)})` }];
}

function doing({ state, dueAt, attempts, lost, leasedBy, line }: MessageState): string {
  if (state === "active") return `being sent by node ${leasedBy ?? "?"}`;
  if (state === "cancelling") return `cancelled, and its request by node ${leasedBy ?? "?"} has not ended`;
  if (state === "held") return `in the line of ${formatWaitlist({ line })}`;
  return `${attempts - lost > 0 ? "in retry until" : "due at"} ${iso(dueAt ?? 0)}`;
}

/** How the waitlists of the gates are called. */
const waitlistNames: Record<GateKind, (name: string) => string> = {
  queue: (name) => `queue ${name}`,
  key: (name) => `key ${name}`,
  endpoint: (name) => `the account at endpoint ${name}`,
  account: () => "the account",
  capacity: (host) => `host ${host}`,
};

function formatWaitlist(state: Pick<MessageState, "line">): string {
  const waitlist = readWaitlist(state);
  return waitlist === null ? "?" : waitlistNames[waitlist.kind](waitlist.name);
}

/** A key may be closed in more than one way. */
function behindKey(standing: Standing, now: Millis): Reason[] {
  const { key: flow, state } = standing;
  if (!flow) return [turnOf(standing)];
  const key = state.flowKey ?? "";
  const reasons: Reason[] = flow.paused ? [paused(flow)] : [];
  const { parallelism, rate, running, period, onward = 0 } = flow;
  if (parallelism !== null && running + onward >= parallelism) {
    const facts = { key, used: running + onward, limit: parallelism };
    reasons.push({ reason: "key-parallelism", text: `key ${key}: ${running} of ${parallelism} in flight${ahead(flow)}`, ...facts });
  }
  const { windowStart, windowUsed } = readWindow(flow, now);
  if (rate !== null && windowUsed + onward >= rate) {
    const until = windowStart + period;
    const text = `key ${key}: rate ${windowUsed} of ${rate} used until ${iso(until)}${ahead(flow)}`;
    reasons.push({ reason: "key-rate", text, key, used: windowUsed + onward, limit: rate, until });
  }
  return reasons.length === 0 ? [turnOf(standing)] : reasons.map((reason) => inLine(reason, standing));
}

/** Those that went on to a line of the account have their places already. */
const ahead = ({ onward = 0 }: Pick<Flow, "onward">): string => (onward > 0 ? `, ${onward} more in line for the account` : "");

function inAccount(standing: Standing, waitlist: AccountLimit): Reason {
  const { running = 0, parallelism = null, onward = 0 } = standing.allowance ?? {};
  if (parallelism === null || running + onward < parallelism) return turnOf(standing);
  // An account that may have none under way to any endpoint may have none at all.
  const names =
    waitlist.kind === "endpoint"
      ? ["parallelism" as const]
      : ["globalParallelism" as const, ...(parallelism === 0 ? ["parallelism" as const] : [])];
  const raise = `${names.map((name) => `"waypost account limits ${standing.state.account} --${flagOfLimit(name)} ..."`).join(" or ")} raises the limit`;
  const facts = { used: running + onward, limit: parallelism };
  if (waitlist.kind === "account")
    return inLine({ reason: "account", text: `account: ${running} of ${parallelism} deliveries under way (${raise})`, ...facts }, standing);
  const endpoint = waitlist.name;
  const text = `account: ${running} of ${parallelism} deliveries under way to endpoint ${endpoint}${ahead({ onward })} (${raise})`;
  return inLine({ reason: "account-endpoint", text, endpoint, ...facts }, standing);
}

const turnOf = (standing: Standing): Reason =>
  inLine({ reason: "turn", text: `${formatWaitlist(standing.state)} is open; the next node that looks takes it on` }, standing);

function atHost(standing: Standing): Reason {
  const { host } = standing.state;
  const waitlist = readWaitlist(standing.state);
  if (waitlist?.kind !== "capacity" || waitlist.name !== host) return turnOf(standing);
  return inLine({ reason: "host", text: `no free hand for host ${host}`, host }, standing);
}

function inLine(reason: Reason, { before }: Standing): Reason {
  const more = before > mostCounted;
  const count = more ? `more than ${mostCounted}` : before === 0 ? "nobody" : String(before);
  const text = `${reason.text}; ${count} before it in line`;
  return { ...reason, text, position: Math.min(before, mostCounted), ...(more ? { more } : {}) };
}

const iso = (time: Millis): string => new Date(time).toISOString();
