import { allowancesOf } from "./accountLimits.ts";
import type { Draft, Key, Moment } from "../decision/command.ts";
import {
  accountFlow,
  begun,
  endpointFlow,
  flowKeysOf,
  flowName,
  flowOf,
  isAllowance,
  isEndpointFlow,
  isQueue,
  keyFlow,
  putFlow,
  queueFlow,
  roomBehind,
  roomOf,
} from "./limiter.ts";
import { spans } from "../values/limits.ts";
import type { AccountId, Flow, FlowControl, MessageId, MessageState, Millis } from "../model/message.ts";

// Before it is sent, a message passes five gates, in this order, and waits in line before the first one that is closed: a
// slot of its queue, the limits of its flow control key, what its account may have under way to its endpoint, what it may have
// under way in all, a hand for its host. The slot of the queue is kept until the message and its callbacks are finished. Key
// and account count a message while it is being sent; who waits for a hand does not use up a place that others could have.
// No more of a key stand in the lines of the account than could begin, and no more for an endpoint in that for all of them: else
// the account would meet those that cannot, and send them back, while others wait that could.

/** The line of those that wait for a hand for a host. */
export const hostLine = (host: string): string => `host:${host}`;

/**
 * Takes a message as far as it can go, through its queue at most: that slot is its own from then on. `stoppedAt` is the
 * line it has to stand in; null: it may be sent. The caller puts the state.
 */
export function advance(draft: Draft, moment: Moment, met: MessageState): { state: MessageState; stoppedAt: string | null } {
  let state = met;
  if (state.queue !== null && state.slot === null) {
    const queue = flowOf(draft, moment, state.account, queueFlow(state.queue));
    if (!mayPass(queue, state, moment)) return { state, stoppedAt: queue.id };
    state = takeSlot(draft, moment, state, queue);
  }
  const closed = countersOf(draft, moment, state).find((flow) => !mayPass(flow, state, moment));
  if (closed) return { state, stoppedAt: closed.id };
  return { state, stoppedAt: hasHand(draft, state) ? null : hostLine(state.host) };
}

/** The flows that count a message while it is being sent, in the order of their gates, with their limits as they are now. */
function countersOf(draft: Draft, moment: Pick<Moment, "now">, state: MessageState): Flow[] {
  const flows = allowancesOf(draft, moment, state);
  if (state.flowKey !== null) flows.unshift(flowOf(draft, moment, state.account, keyFlow(state.flowKey)));
  return flows;
}

/** Nobody overtakes those in line, except who has stood in it, or has come from a line behind it. */
function mayPass(flow: Flow, state: MessageState, { now }: Moment): boolean {
  if (isOnward(flow.id, state)) return roomOf(flow, now) > 0;
  const hasStood = state.line !== null && orderOf(state.line) >= orderOf(flow.id);
  return roomBehind(flow, now) > 0 && (flow.waiting === 0 || hasStood);
}

/** Whether it stands, in a line of its account, for a place of this flow. */
function isOnward(id: string, { line, countedToEndpoint }: MessageState): boolean {
  if (line === null || !isAllowance(line) || id === line || id === accountFlow) return false;
  return isAllowance(id) ? countedToEndpoint === true : !isQueue(id);
}

/** Lines, in the order of their gates. */
function orderOf(line: string): number {
  if (isAllowance(line)) return line === accountFlow ? 3 : 2;
  return isQueue(line) ? 0 : isFlowLine(line) ? 1 : 4;
}

function hasHand(draft: Draft, { account, host, line }: MessageState): boolean {
  return (line === hostLine(host) || !draft.get("lines", account, host)) && draft.hasHand(account, host);
}

/** The same question before everything is loaded: false only when it is sure that it has to wait. */
export function mightPass(draft: Draft, state: MessageState): boolean {
  if (isStopped(draft, state)) return false;
  const { account, queue, slot, line } = state;
  const ofQueue = queue === null || slot !== null ? undefined : draft.get("flows", account, queueFlow(queue));
  // What is not there yet is open, whatever the time.
  const counters = countersOf(draft, { now: 0 }, state);
  return ![...(ofQueue ? [ofQueue] : []), ...counters].some((flow) => isSurelyClosed(flow, line)) && hasHand(draft, state);
}

const isSurelyClosed = ({ paused, parallelism, running, waiting }: Flow, line: string | null): boolean =>
  paused || (parallelism !== null && running >= parallelism) || (waiting > 0 && line === null);

/** Whether it has a slot of a queue that is paused. Until that goes on it is not sent, whatever else it has waited for. */
const isStopped = (draft: Draft, { account, id, queue, slot }: MessageState): boolean =>
  queue !== null && slot === id && draft.get("flows", account, queueFlow(queue))?.paused === true;

/** Has a message that is stopped looked at again after a while, and stand in no line meanwhile: others there may go on. False: it is not. */
export function putOffStopped(draft: Draft, moment: Moment, state: MessageState): boolean {
  if (!isStopped(draft, state)) return false;
  leaveLine(draft, moment, state);
  const standing = { state: "pending", line: null, leasedBy: null, dueAt: moment.now + spans.stoppedCheck } as const;
  draft.put("messages", { ...countedBy([], state), ...standing });
  return true;
}

function takeSlot(draft: Draft, moment: Moment, state: MessageState, queue: Flow): MessageState {
  const hasStood = state.line === queue.id;
  putFlow(draft, moment, { ...queue, running: queue.running + 1, waiting: queue.waiting - (hasStood ? 1 : 0) });
  draft.put("slots", { account: state.account, id: state.id, queue: flowName(queue.id), holders: 1 });
  return { ...state, slot: state.id, line: hasStood ? null : state.line };
}

/** Counts a delivery that begins now, where a key or its account limits it. The message leaves the line in which it stood. */
export function countStart(draft: Draft, moment: Moment, state: MessageState): MessageState {
  leaveLine(draft, moment, state);
  const counters = countersOf(draft, moment, state);
  for (const flow of counters) putFlow(draft, moment, begun(flow, moment.now));
  return countedBy(counters, state);
}

/** Notes on a message by which flows of its account it is counted. */
function countedBy(counters: readonly Flow[], state: MessageState): MessageState {
  const isCounted = counters.some(({ id }) => id === accountFlow);
  const isCountedToEndpoint = counters.some(({ id }) => isEndpointFlow(id));
  if (isCounted === (state.counted ?? false) && isCountedToEndpoint === (state.countedToEndpoint ?? false)) return state;
  const { counted: _account, countedToEndpoint: _endpoint, ...uncounted } = state;
  return { ...uncounted, ...(isCounted ? { counted: true } : {}), ...(isCountedToEndpoint ? { countedToEndpoint: true } : {}) };
}

/** Counts a delivery that has ended, or was given up. `nextAt`: when the message is to be sent again, if it is. */
export function countEnd(draft: Draft, moment: Moment, state: MessageState, nextAt: Millis = 0): void {
  if (state.leasedBy === null) return;
  if (state.flowKey !== null) lower(draft, moment, state.account, keyFlow(state.flowKey), { counter: "running", nextAt });
  if (state.countedToEndpoint) lower(draft, moment, state.account, endpointFlow(state), { counter: "running", nextAt });
  if (state.counted) lower(draft, moment, state.account, accountFlow, { counter: "running", nextAt });
}

/** Takes a due message out of sight of the claims, until the gate before which this line stands is open. */
export function standInLine(draft: Draft, moment: Moment, state: MessageState, line: string): void {
  const { account, host } = state;
  let standing = state;
  if (state.line !== line) {
    leaveLine(draft, moment, state);
    standing = isFlowLine(line) ? enterLine(draft, moment, state, line) : countedBy([], state);
  }
  draft.put("messages", { ...standing, state: "held", dueAt: null, leasedBy: null, line });
  if (!isFlowLine(line) && !draft.get("lines", account, host)) draft.put("lines", { account, host, dueAt: moment.now + spans.lineCheck });
}

/** Counts a message that comes to stand in a line, and those gates that it stands for a place of. */
function enterLine(draft: Draft, moment: Moment, state: MessageState, line: string): MessageState {
  const counters = countersOf(draft, moment, state);
  const flow = counters.find(({ id }) => id === line) ?? flowOf(draft, moment, state.account, line);
  putFlow(draft, moment, { ...flow, waiting: flow.waiting + 1 });
  const passed = isAllowance(line) ? counters.filter(({ id }) => orderOf(id) < orderOf(line)) : [];
  for (const flow of passed) putFlow(draft, moment, { ...flow, onward: (flow.onward ?? 0) + 1 });
  return countedBy(passed, state);
}

/** Counts a message that stands in its line no more. */
function leaveLine(draft: Draft, moment: Moment, state: MessageState): void {
  const { account, line, flowKey } = state;
  if (line === null || !isFlowLine(line)) return;
  lower(draft, moment, account, line, { counter: "waiting" });
  for (const id of [flowKey === null ? null : keyFlow(flowKey), endpointFlow(state)])
    if (id !== null && isOnward(id, state)) lower(draft, moment, account, id, { counter: "onward" });
}

/** A message that is delivered, has failed or is cancelled gives back whatever it held. Its callbacks have been made before. */
export function depart(draft: Draft, moment: Moment, state: MessageState): void {
  countEnd(draft, moment, state);
  leaveLine(draft, moment, state);
  if (state.slot === null) return;
  const slot = draft.get("slots", state.account, state.slot);
  if (!slot) return draft.fault(`message ${state.id} of account ${state.account} held a slot that is not there`);
  if (slot.holders > 1) return draft.put("slots", { ...slot, holders: slot.holders - 1 });
  draft.drop("slots", slot.account, slot.id);
  if (slot.queue !== "") lower(draft, moment, slot.account, queueFlow(slot.queue), { counter: "running" });
}

/** A callback holds the slot of the message it tells of as well. */
export function shareSlot(draft: Draft, account: AccountId, slot: MessageId): boolean {
  const held = draft.get("slots", account, slot);
  if (held) draft.put("slots", { ...held, holders: held.holders + 1 });
  return held !== undefined;
}

type Lower = { counter: "running" | "waiting" | "onward"; nextAt?: Millis };

function lower(draft: Draft, moment: Moment, account: AccountId, id: string, { counter, nextAt = 0 }: Lower): void {
  const flow = flowOf(draft, moment, account, id);
  const count = flow[counter] ?? 0;
  if (count === 0) draft.fault(`the counter "${counter}" of ${id} in account ${account} was too low`);
  putFlow(draft, moment, { ...flow, [counter]: Math.max(0, count - 1), lastDueAt: Math.max(flow.lastDueAt, nextAt) });
}

/** What must be seen of flows and slots when these messages move: first what they name, then what that leads to. */
export function needsOfGates(draft: Draft, states: readonly MessageState[]) {
  const slotKeys = states.flatMap(({ account, slot }) => (slot === null ? [] : [[account, slot] as const]));
  const slots = slotKeys.flatMap((key) => draft.get("slots", ...key) ?? []);
  return {
    slots: slotKeys,
    flows: [...flowKeysOf(states), ...slots.flatMap(({ account, queue }): Key[] => (queue === "" ? [] : [[account, queueFlow(queue)]]))],
  };
}

/** The flows that letters will pass. */
export const flowsOfLetters = (account: AccountId, letters: readonly { queue: string | null; flowControl: FlowControl | null }[]): Key[] =>
  flowKeysOf(letters.map(({ queue, flowControl }) => ({ account, queue, flowKey: flowControl?.key ?? null })));

/** Whether a line is that of a queue, a key or the account, and not that of a host. */
export const isFlowLine = (line: string): boolean => isQueue(line) || line.startsWith("key:") || isAllowance(line);
