import type { Draft, Moment } from "../decision/command.ts";
import { advance, hold } from "../admission/admission.ts";
import { shareSlot } from "../admission/counters.ts";
import { hasLimiter, keyGate, queueGate } from "../admission/gate.ts";
import { lease } from "../admission/lease.ts";
import { putLimiter, readLimiter, withLimits } from "../admission/limiter.ts";
import { defaults } from "../values/limits.ts";
import { marksOf } from "../search/tags.ts";
import type { Account, AccountId, Envelope, Flow, Letter, MessageId, MessageState, Millis, RunPart } from "../model/message.ts";
import { addressOf } from "../values/url.ts";
import { defaultTimeout, limitsOf } from "../accounts/plans.ts";
import { sightsOf } from "../search/timeIndex.ts";
import { countMessage } from "../accounts/usage.ts";

/** A letter that makes one message, of a run or of none. */
export type OneLetter = Omit<Letter, "post"> & { run?: RunPart };

/**
 * Creates a message and returns it as stored. If the message is due, passes all gates and overtakes no other message, it is leased to this
 * node and handed to the dispatcher in the same transaction. If it is due but a limiter stops it, it is held in that limiter's waitlist.
 * Otherwise it is left for a claim.
 *
 * The caller must have loaded what its destination needs (`destinationNeeds`), its limiters and, for a callback, the slot it shares.
 */
export function accept(draft: Draft, moment: Moment, account: Account, letter: OneLetter, slot: MessageId | null = null): Envelope {
  const dueAt = Math.max(moment.now, letter.notBefore ?? moment.now + (letter.delay ?? 0));
  announce(draft, moment, account.id, letter, dueAt);
  const born = newState(draft, letter, { account: account.id, id: moment.newId("msg"), dueAt, slot });
  const isDue = dueAt <= moment.now;
  const { state, stoppedAt } = isDue ? advance(draft, moment, born) : { state: born, stoppedAt: null };
  const startedAtOnce = isDue && stoppedAt === null && isNext(draft, state) && draft.takeHand(account.id, state.host, state.size);
  const envelope = envelopeOf(letter, { account, id: state.id, createdAt: moment.now, notBefore: dueAt, startedAtOnce });
  draft.put("envelopes", envelope);
  draft.sight(account.id, envelope.id, state.sights);
  countMessage(draft, state);
  if (startedAtOnce) lease(draft, moment, { account, envelope, state });
  else if (stoppedAt !== null && hasLimiter(stoppedAt)) hold(draft, moment, { state, gate: stoppedAt });
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
  const expect = (flow: Flow): void => putLimiter(draft, moment, { ...flow, lastDueAt: Math.max(flow.lastDueAt, dueAt) });
  if (queue !== null) expect(readLimiter(draft, moment, { account, gate: queueGate(queue) }));
  if (flowControl) expect(withLimits(readLimiter(draft, moment, { account, gate: keyGate(flowControl.key) }), flowControl, moment.now));
}

/**
 * While other messages of its account are due and not claimed, their hosts are unknown. Then only a message to a host without deliveries is sent
 * at once, so that a backlog of one host does not hold up the others.
 */
const isNext = (draft: Draft, { account, host }: MessageState): boolean => !draft.isBehind(account) || draft.isNewcomer(account, host);
