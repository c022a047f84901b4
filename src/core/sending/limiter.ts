import type { Draft, Key, Moment } from "../decision/command.ts";
import { defaults, spans } from "../values/limits.ts";
import type { AccountId, Flow, FlowControl, MessageState, Millis } from "../model/message.ts";

// Queues and flow control keys are one thing, a flow: something with limits, counters and a line of messages before it.
// A queue counts messages until they are finished; a key counts deliveries under way, and those begun in a window of time.
// An account whose deliveries at once are limited has flows as well, in all and for each endpoint: see `core/sending/accountLimits.ts`.

/** The flow of a queue, and the name of its line. */
export const queueFlow = (name: string): string => `queue:${name}`;
/** The flow of a flow control key, and the name of its line. */
export const keyFlow = (name: string): string => `key:${name}`;
/**
 * The flow of an account whose deliveries at once are limited, and the name of its line. It comes last in the order of ids,
 * in which databases lock rows, as it is looked for when queues and keys are known; only those of its endpoints come behind it.
 */
export const accountFlow = "under-way:";
/** Returns the flow of what an account has under way to one endpoint, if that is limited, and the name of its line. */
export const endpointFlow = ({ endpoint }: Pick<MessageState, "endpoint">): string => accountFlow + endpoint;
/** Reports whether it is that of an account, or of one of its endpoints. */
export const isAllowance = (id: string): boolean => id.startsWith(accountFlow);
export const isEndpointFlow = (id: string): boolean => isAllowance(id) && id !== accountFlow;
export const isQueue = (id: string): boolean => id.startsWith("queue:");
/** The name that people gave it; of that of an endpoint, the endpoint. */
export const flowName = (id: string): string => id.slice(id.indexOf(":") + 1);

/** A queue lets one message through at a time, a key has no limits, until somebody says otherwise. */
export function newFlow(account: AccountId, id: string, now: Millis): Flow {
  return {
    ...{ account, id, createdAt: now, updatedAt: now, dueAt: null, paused: false },
    ...{ parallelism: isQueue(id) ? 1 : null, running: 0, waiting: 0 },
    ...{ rate: null, period: defaults.period, windowStart: now, windowUsed: 0, lastDueAt: now },
    pinned: { parallelism: false, rate: false },
  };
}

/** A flow, or what it would be if there were one. */
export const flowOf = (draft: Draft, moment: Pick<Moment, "now">, account: AccountId, id: string): Flow =>
  draft.get("flows", account, id) ?? newFlow(account, id, moment.now);

/** The flows that these messages pass, or have passed. */
export function flowKeysOf(states: Iterable<Pick<MessageState, "account" | "queue" | "flowKey"> & Partial<MessageState>>): Key[] {
  const keys: Key[] = [];
  for (const state of states) {
    const { account, queue, flowKey, line = null, counted, countedToEndpoint } = state;
    if (queue !== null) keys.push([account, queueFlow(queue)]);
    if (flowKey !== null) keys.push([account, keyFlow(flowKey)]);
    if (counted || line === accountFlow) keys.push([account, accountFlow]);
    if (countedToEndpoint) keys.push([account, endpointFlow({ endpoint: "", ...state })]);
    else if (line !== null && isEndpointFlow(line)) keys.push([account, line]);
  }
  return keys;
}

/** The window of a key at `now`. It begins anew when its period has passed; a clock that was put back does not prolong it. */
export function windowOf({ windowStart, windowUsed, period }: Flow, now: Millis): Pick<Flow, "windowStart" | "windowUsed"> {
  return now >= windowStart + period ? { windowStart: now, windowUsed: 0 } : { windowStart: Math.min(windowStart, now), windowUsed };
}

/** How many more may begin now. */
export function roomOf(flow: Flow, now: Millis): number {
  if (flow.paused) return 0;
  const ofRate = flow.rate === null ? Infinity : flow.rate - windowOf(flow, now).windowUsed;
  return Math.max(0, Math.min(slotsFree(flow), ofRate));
}

/** How many more may leave its line, besides those that did and stand in a line of the account. */
export const roomBehind = (flow: Flow, now: Millis): number => Math.max(0, roomOf(flow, now) - (flow.onward ?? 0));

const slotsFree = ({ parallelism, running }: Flow): number => (parallelism === null ? Infinity : parallelism - running);

/**
 * Writes a flow, with the time at which a claim must look at it: its line when it is open again, or its end. The flow of an endpoint goes
 * as soon as it counts nothing, because an account may send to any number of them.
 */
export function putFlow(draft: Draft, moment: Moment, flow: Flow): void {
  if (isEndpointFlow(flow.id) && isIdle(flow)) return draft.drop("flows", flow.account, flow.id);
  const updatedAt = isQueue(flow.id) ? flow.updatedAt : moment.now;
  const windowStart = Math.min(flow.windowStart, moment.now);
  draft.put("flows", { ...flow, updatedAt, windowStart, dueAt: nextLook(flow, moment.now) });
}

function nextLook(flow: Flow, now: Millis): Millis | null {
  const idle = isQueue(flow.id) ? spans.idleQueue : spans.idleKey;
  if (flow.waiting === 0) return isIdle(flow) ? Math.max(now + idle, flow.lastDueAt + idle, windowEnd(flow)) : null;
  if (roomBehind(flow, now) > 0) return now;
  // Those that went on to a line of the account are this flow's next: when one of them moves, it is looked at again.
  const ahead = flow.onward ?? 0;
  const onlyRateHoldsBack = !flow.paused && slotsFree(flow) > ahead && flow.rate !== null && flow.rate > ahead;
  if (onlyRateHoldsBack) return windowOf(flow, now).windowStart + flow.period;
  // A command that changes the limit of an account does not know its endpoints. If all places are those of messages in the line of the
  // account, the flow is looked at when one of them moves; so no more flows are looked at than deliveries are under way.
  return isEndpointFlow(flow.id) && flow.running > 0 ? now + spans.lineCheck : null;
}

/** Until then it counts what has begun: a key that is forgotten earlier would let more begin than its rate. */
const windowEnd = ({ rate, windowStart, period }: Flow): Millis => (rate === null ? 0 : windowStart + period);

/** A queue or a key that nobody has used for long is forgotten, as its next message makes the same again. What people set by hand stays. */
export const isIdle = ({ running, waiting, onward = 0, paused, pinned }: Flow): boolean =>
  running === 0 && waiting === 0 && onward === 0 && !paused && !pinned.parallelism && !pinned.rate;

/** The limits of the message that came last hold for all, except where they are pinned. */
export function withLimits(flow: Flow, { parallelism, rate, period }: Omit<FlowControl, "key">, now: Millis): Flow {
  const ofRate = { rate, period: period ?? defaults.period };
  const isSameRate = flow.rate === ofRate.rate && flow.period === ofRate.period;
  return {
    ...flow,
    ...(flow.pinned.parallelism ? {} : { parallelism }),
    ...(flow.pinned.rate || isSameRate ? {} : { ...windowOf(flow, now), ...ofRate }),
  };
}

/** Counts a delivery that begins. */
export function begun(flow: Flow, now: Millis): Flow {
  const { windowStart, windowUsed } = windowOf(flow, now);
  return { ...flow, running: flow.running + 1, windowStart, windowUsed: windowUsed + 1 };
}
