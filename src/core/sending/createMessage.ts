import type { Draft, Key, Moment } from "../decision/command.ts";
import { endpointFlow, flowOf, keyFlow, putFlow, queueFlow, withLimits } from "./limiter.ts";
import { advance, countStart, isFlowLine, shareSlot, standInLine } from "./admission.ts";
import { defaults, spans } from "../values/limits.ts";
import { marksOf } from "../search/tags.ts";
import type {
  Account,
  AccountId,
  Envelope,
  Flow,
  Held,
  Letter,
  LogRow,
  MessageId,
  MessageState,
  Millis,
  RunPart,
} from "../model/message.ts";
import { noBytes } from "../model/message.ts";
import { addressOf } from "../values/url.ts";
import { defaultTimeout, limitsOf } from "../accounts/plans.ts";
import { sightsOf } from "../search/timeIndex.ts";
import { countBytes, countMessage, countStates } from "../accounts/usage.ts";
import { standardKeysOf } from "../accounts/standardWebhooks.ts";

/** The end of a lease whose node ended with its server, and did not run out: the message is due, whatever the time is. */
export const endedWithServer: Millis = 0;

/** A letter that makes one message, of a run or of none. */
export type OneLetter = Omit<Letter, "post"> & { run?: RunPart };

/**
 * Takes in a message: writes its envelope, and its state. When it is due now, overtakes nobody, and all its gates are
 * open, it is leased and handed over at once. Behind a closed queue or key it stands in line; otherwise it waits for a
 * claim. The caller has asked for what its destination needs (`needsOfSending`), for its flows, and for the slot that a callback shares.
 */
export function accept(draft: Draft, moment: Moment, account: Account, letter: OneLetter, slot: MessageId | null = null): Envelope {
  const dueAt = Math.max(moment.now, letter.notBefore ?? moment.now + (letter.delay ?? 0));
  announce(draft, moment, account.id, letter, dueAt);
  const born = newState(draft, letter, { account: account.id, id: moment.newId("msg"), dueAt, slot });
  const { state, stoppedAt } = dueAt <= moment.now ? advance(draft, moment, born) : { state: born, stoppedAt: "" };
  const startedAtOnce = stoppedAt === null && isNext(draft, state) && draft.takeHand(account.id, state.host, state.size);
  const envelope = envelopeOf(letter, { account, id: state.id, createdAt: moment.now, notBefore: dueAt, startedAtOnce });
  draft.put("envelopes", envelope);
  draft.sight(account.id, envelope.id, state.sights);
  countMessage(draft, state);
  if (startedAtOnce) lease(draft, moment, { account, envelope, state });
  else if (stoppedAt !== null && isFlowLine(stoppedAt)) standInLine(draft, moment, state, stoppedAt);
  else draft.put("messages", state);
  return envelope;
}

/** Every setting by its name: an object that is copied and added to becomes a hash table, and all that look at it pay for it. */
function envelopeOf(
  letter: OneLetter,
  { account, ...of }: { account: Account } & Pick<Envelope, "id" | "createdAt" | "notBefore" | "startedAtOnce">,
): Envelope {
  const most = limitsOf(account);
  const envelope: Envelope = {
    account: account.id,
    id: of.id,
    brand: letter.brand,
    url: letter.url,
    method: letter.method,
    headers: letter.headers,
    body: letter.body,
    retries: letter.retries ?? Math.min(defaults.retries, most.retries),
    retryDelay: letter.retryDelay,
    timeout: letter.timeout ?? defaultTimeout(account),
    flowControl: letter.flowControl,
    callback: letter.callback,
    failureCallback: letter.failureCallback,
    group: letter.group,
    endpoint: letter.endpoint,
    queue: letter.queue,
    scheduleId: letter.scheduleId,
    deduplication: letter.deduplication,
    labels: letter.labels,
    redaction: letter.redaction,
    callerIp: letter.callerIp,
    tells: letter.tells,
    createdAt: of.createdAt,
    notBefore: of.notBefore,
    startedAtOnce: of.startedAtOnce,
  };
  if (letter.run !== undefined) envelope.run = letter.run;
  if (letter.keepResponse) envelope.keepResponse = true;
  return envelope;
}

function newState(draft: Draft, letter: OneLetter, of: Pick<MessageState, "account" | "id" | "dueAt" | "slot">): MessageState {
  const { host, endpoint } = addressOf(letter.url);
  return {
    ...of,
    state: "pending",
    attempts: 0,
    lost: 0,
    leasedBy: null,
    host,
    endpoint,
    size: letter.run?.size ?? letter.body.byteLength,
    tells: letter.callback !== null || letter.tells !== null || letter.run?.first !== undefined,
    queue: letter.queue,
    flowKey: letter.flowControl?.key ?? null,
    slot: of.slot !== null && shareSlot(draft, of.account, of.slot) ? of.slot : null,
    line: null,
    // A failure callback is sent when its run has ended, and so does not end with it.
    run: letter.run && letter.run.kind !== "failure" ? letter.run.run : null,
    marks: marksOf(letter),
    sights: sightsOf(letter),
  };
}

/** A queue and a key exist from their first message on, even if its time has not come; the key follows its limits. */
function announce(
  draft: Draft,
  moment: Moment,
  account: AccountId,
  { queue, flowControl }: Pick<Letter, "queue" | "flowControl">,
  dueAt: Millis,
): void {
  const expect = (flow: Flow): void => putFlow(draft, moment, { ...flow, lastDueAt: Math.max(flow.lastDueAt, dueAt) });
  if (queue !== null) expect(flowOf(draft, moment, account, queueFlow(queue)));
  if (flowControl) expect(withLimits(flowOf(draft, moment, account, keyFlow(flowControl.key)), flowControl, moment.now));
}

/**
 * While other messages of its account are due and not claimed, their hosts are unknown. Then only a message to a host without deliveries is sent
 * at once, so that a backlog of one host does not hold up the others.
 */
const isNext = (draft: Draft, { account, host }: MessageState): boolean => !draft.isBehind(account) || draft.isNewcomer(account, host);

/** Returns what must be seen of the destinations of messages to these URLs: the lines of their hosts, and their endpoints. */
export function needsOfSending(account: AccountId, urls: readonly string[]): Destinations {
  const all = urls.map(addressOf);
  const hosts = all.map(({ host }) => host);
  return {
    lines: (hosts.length > 1 ? [...new Set(hosts)] : hosts).map((host) => [account, host] as const),
    endpoints: all.map((address) => [account, endpointFlow(address)] as const),
  };
}

/** Returns the same of messages that have been accepted. */
export const destinationsOf = (states: readonly MessageState[]): Destinations => ({
  lines: states.map(({ account, host }) => [account, host] as const),
  endpoints: states.map((state) => [state.account, endpointFlow(state)] as const),
});

/** Returns several of them as one. */
export const allDestinations = (all: readonly Destinations[]): Destinations => ({
  lines: all.flatMap(({ lines }) => lines),
  endpoints: all.flatMap(({ endpoints }) => endpoints),
});

export type Destinations = { readonly lines: readonly Key[]; readonly endpoints: readonly Key[] };

/** Leases a message to this node and hands it to the dispatcher. The caller has taken a hand for it. */
export function lease(draft: Draft, moment: Moment, of: { account: Account; envelope: Envelope; state: MessageState }): void {
  const { account, envelope, state } = of;
  const counted = countStart(draft, moment, state);
  draft.put("messages", { ...counted, state: "active", dueAt: moment.now + spans.lease, leasedBy: moment.node, line: null });
  countBytes(draft, state.account, "bytesOut", state.size);
  const delivery = { message: envelope, attempt: state.attempts, signingKey: account.signingKeys.current };
  draft.deliver(account.signsStandard ? { ...delivery, standardKeys: standardKeysOf(account, moment.now) } : delivery);
}

/** Writes a line of the log, with nothing in it but what is given, and counts what it says. Answers its id. */
export function log(
  draft: Draft,
  moment: Moment,
  of: Pick<MessageState, "account" | "id" | "marks" | "run" | "sights">,
  what: Pick<LogRow, "states"> & Partial<LogRow>,
): string {
  const id = moment.newId("log");
  countStates(draft, of, what.states);
  draft.sight(of.account, id, of.sights);
  draft.put("log", {
    account: of.account,
    id,
    messageId: of.id,
    time: moment.now,
    error: null,
    nextDueAt: null,
    status: null,
    headers: [],
    body: noBytes,
    dlqId: null,
    marks: of.marks,
    ...what,
  });
  return id;
}

/** The attempt that is under way. */
export const heldOf = ({ account, id, attempts }: MessageState): Held => ({ account, messageId: id, attempt: attempts });

/** The message, if this node still holds the lease of this very attempt. A lease that was lost is never honoured. */
export function fenced(draft: Draft, moment: Moment, { account, messageId, attempt }: Held): MessageState | null {
  const state = draft.get("messages", account, messageId);
  const holds = state && state.leasedBy === moment.node && state.attempts === attempt;
  return holds ? state : null;
}
