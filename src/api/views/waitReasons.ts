import type { Gate, GateKind } from "../../engine/core/admission/gate.ts";
import { readWaitlist } from "../../engine/core/admission/gate.ts";
import { toLimitFlag } from "../http/remedies.ts";
import type { BlockingMessage, WaitReason, WaitState } from "../../engine/core/explain/whyWaiting.ts";
import { listWaitReasons, maxCounted } from "../../engine/core/explain/whyWaiting.ts";
import type { LimitName } from "../../engine/core/model/accountTerms.ts";
import type { MessageState } from "../../engine/core/model/messageState.ts";
import { isBeingSent, isPulled } from "../../engine/core/model/messageState.ts";
import { countRetries } from "../../engine/core/sending/retry.ts";
import type { AccountId, MessageId, Millis } from "../../engine/core/values/basics.ts";

// The sentences for the reasons why a message waits. `engine/core/explain/whyWaiting.ts` finds the reasons.

/** A reason as the API shows it. `waitReasonSchema` describes it. */
export type ShownWaitReason = {
  reason: WaitReason["reason"];
  text: string;
  [fact: string]: unknown;
};

/** Returns why a message is unfinished, as the API shows it. See `listWaitReasons`. */
export const listShownReasons = (waitState: WaitState, now: Millis, isOnHold = false): ShownWaitReason[] =>
  listWaitReasons(waitState, now, isOnHold).map(waitReasonJson);

/** Returns a reason as the API shows it: with its sentence, and the facts that the sentence is made of. */
export function waitReasonJson(waiting: WaitReason): ShownWaitReason {
  const { reason, position, more } = waiting;
  const text = `${formatReason(waiting)}${formatPosition(waiting)}`;
  return {
    ...{ reason, text, ...pickFacts(waiting) },
    ...(position === undefined ? {} : { position }),
    ...(more ? { more } : {}),
  };
}

/** Returns the facts that a reason shows beside its sentence. */
function pickFacts(waiting: WaitReason): Record<string, unknown> {
  switch (waiting.reason) {
    case "server-held":
    case "turn":
      return {};
    case "sending":
    case "lease-over": {
      const { attempt, node, since, until } = waiting;
      const isEnding = waiting.reason === "sending" && waiting.isEnding;
      return { attempt, node, since, until, ...(isEnding && { ending: true }) };
    }
    case "acknowledging": {
      const { attempt, since, until } = waiting;
      return { attempt, since, until, ...(waiting.isPulled && { pulled: true }) };
    }
    case "due":
      return { since: waiting.since };
    case "not-due":
      return { until: waiting.until };
    case "retry": {
      const { until, used, limit, status, error } = waiting;
      return { until, used, limit, ...(status !== null && { status }), ...(error !== null && { error }) };
    }
    case "queue-paused":
      return { queue: waiting.queue };
    case "key-paused":
      return { key: waiting.key };
    case "queue": {
      const { queue, used, limit, behind } = waiting;
      return { queue, used, limit, behind: behind.map(blockingJson) };
    }
    case "key-parallelism":
    case "key-rate": {
      const { key, used, limit } = waiting;
      return { key, used, limit, ...(waiting.reason === "key-rate" && { until: waiting.until }) };
    }
    case "account":
    case "account-endpoint": {
      const { used, limit } = waiting;
      return { ...(waiting.reason === "account-endpoint" && { endpoint: waiting.endpoint }), used, limit };
    }
    case "host":
      return { host: waiting.host };
    case "puller":
      return { origin: waiting.origin, since: waiting.since };
  }
}

/** Returns a reason as a sentence, without the position in the waitlist. */
function formatReason(waiting: WaitReason): string {
  switch (waiting.reason) {
    case "server-held":
      return "all deliveries are paused by the operator";
    case "sending":
    case "lease-over":
      return formatSending(waiting);
    case "acknowledging":
      return `held by ${formatHolder(waiting)} since ${iso(waiting.since)}, until ${iso(waiting.until)}`;
    case "due":
      return `due since ${iso(waiting.since)}; the next node that checks claims it`;
    case "not-due":
      return `due at ${iso(waiting.until)}`;
    case "retry": {
      const { until, used, limit, reported } = waiting;
      const result = `${formatLastResult(waiting)}${reported === undefined ? "" : `: ${reported}`}`;
      return `retry ${used} of ${limit} at ${iso(until)}${result}`;
    }
    case "queue-paused":
      return `queue ${waiting.queue} is paused`;
    case "key-paused":
      return `key ${waiting.key} is paused`;
    case "queue":
      return (
        `queue ${waiting.queue}: ${waiting.used} of ${waiting.limit} slots in use` + formatBehind(waiting)
      );
    case "key-parallelism": {
      const { key, used, limit, reserved } = waiting;
      return `key ${key}: ${used - reserved} of ${limit} in flight${formatReserved(reserved)}`;
    }
    case "key-rate": {
      const { key, used, limit, reserved, until } = waiting;
      const usage = `rate ${used - reserved} of ${limit} used until ${iso(until)}`;
      return `key ${key}: ${usage}${formatReserved(reserved)}`;
    }
    case "account":
    case "account-endpoint":
      return formatAccountLimit(waiting);
    case "host":
      return `no free delivery capacity for host ${waiting.host}`;
    case "puller":
      return `waits for a client that pulls from ${waiting.origin}, since ${iso(waiting.since)}`;
    case "turn":
      return `${formatGate(waiting.gate)} is open; the next node that checks claims it`;
  }
}

type Reason<Name extends WaitReason["reason"]> = Extract<WaitReason, { reason: Name }>;

function formatSending(waiting: Reason<"sending" | "lease-over">): string {
  const { node, until } = waiting;
  const since = iso(waiting.since);
  if (waiting.reason === "sending")
    return waiting.isEnding
      ? `an operator has ended this attempt; node ${node} closes its connection`
      : `being sent by node ${node} since ${since}; it times out at ${iso(until)}`;
  if (waiting.ended === "server")
    return `the server restarted while node ${node} sent it since ${since}; it is sent again`;
  if (waiting.ended === "node")
    return `node ${node} stopped while it sent it since ${since}; it is sent again`;
  const problem = `node ${node} has been sending it since ${since} and has not reported`;
  return `${problem}; its lease expired at ${iso(until)}, so it is sent again`;
}

function formatLastResult({ status, error }: Reason<"retry">): string {
  if (status !== null) return `, after status ${status}`;
  return error === null ? "" : `, after: ${error}`;
}

function formatBehind({ behind, others }: Reason<"queue">): string {
  if (behind.length === 0) return "";
  const names = [...behind.map(formatBlocking), ...(others > 0 ? [`${others} more`] : [])];
  return `, behind ${names.join(", ")}`;
}

/** Returns a message that holds a slot, as the API shows it. */
export function blockingJson(blocking: BlockingMessage): {
  messageId: MessageId;
  callbackId?: MessageId;
  text: string;
} {
  const { holder: _holder, ...ids } = blocking;
  return { ...ids, text: formatBlocking(blocking) };
}

function formatBlocking({ messageId, callbackId, holder }: BlockingMessage): string {
  const activity = formatActivity(holder);
  return callbackId === undefined
    ? `message ${messageId} (${activity})`
    : `message ${messageId} (its callback ${callbackId}: ${activity})`;
}

const formatHolder = ({ isPulled: pulled }: { isPulled: boolean }): string =>
  pulled ? "a client that pulled it" : "a receiver";

function formatActivity(message: MessageState): string {
  const { state, dueAt, leasedBy, waitlist } = message;
  if (isBeingSent(message)) return `being sent by node ${leasedBy ?? "?"}`;
  const holder = formatHolder({ isPulled: isPulled(message) });
  if (state === "acknowledging") return `held by ${holder} until ${iso(dueAt ?? 0)}`;
  if (state === "cancelling") return `cancelled, but its request by node ${leasedBy ?? "?"} still runs`;
  if (state === "settled") return `delivered, but its request by node ${leasedBy ?? "?"} still runs`;
  if (state === "held") return `in the waitlist of ${formatGate(readWaitlist({ waitlist }))}`;
  return `${countRetries(message) > 0 ? "retry at" : "due at"} ${iso(dueAt ?? 0)}`;
}

/** How texts name the waitlist of each gate. */
const gateNames: Record<GateKind, (name: string) => string> = {
  queue: (name) => `queue ${name}`,
  key: (name) => `key ${name}`,
  endpoint: (name) => `the account at endpoint ${name}`,
  account: () => "the account",
  capacity: (host) => `host ${host}`,
};

const formatGate = (gate: Gate | null): string => (gate ? gateNames[gate.kind](gate.name) : "?");

const formatReserved = (reserved: number): string =>
  reserved > 0 ? `, ${reserved} more waiting for the account` : "";

function formatAccountLimit(waiting: Reason<"account" | "account-endpoint">): string {
  const { used, limit, reserved, account, names } = waiting;
  const usage = `${used - reserved} of ${limit} deliveries in flight`;
  const where =
    waiting.reason === "account" ? "" : ` to endpoint ${waiting.endpoint}${formatReserved(reserved)}`;
  return `account: ${usage}${where} (${formatRaise(account, names)})`;
}

function formatRaise(account: AccountId, names: readonly LimitName[]): string {
  const commands = names.map((name) => `"waypost account limits ${account} --${toLimitFlag(name)} <value>"`);
  return `raise the limit with ${commands.join(" or ")}`;
}

function formatPosition({ position, more }: WaitReason): string {
  if (position === undefined) return "";
  const count = more ? `more than ${maxCounted}` : position === 0 ? "none" : String(position);
  return `; ${count} ahead of it in the waitlist`;
}

const iso = (time: Millis): string => new Date(time).toISOString();
