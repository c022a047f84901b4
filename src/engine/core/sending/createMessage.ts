import type { Draft, Moment } from "../decision/command.ts";
import { advance, hold } from "../admission/admission.ts";
import { shareSlot } from "../admission/counters.ts";
import { hasLimiter, keyGate, queueGate } from "../admission/gate.ts";
import { lease } from "../admission/lease.ts";
import { findLimiter, putLimiter, readLimiter, withLimits } from "../admission/limiter.ts";
import { defaults } from "../values/limits.ts";
import type { MessageOrigin } from "../model/activity.ts";
import { makeTags } from "../search/tags.ts";
import type { Account } from "../model/account.ts";
import type { AccountId, MessageId, Millis } from "../values/basics.ts";
import type { StoredMessage, SingleInput, WithoutBody } from "../model/message.ts";
import type { MessageState } from "../model/messageState.ts";
import type { RunPart } from "../model/runPost.ts";
import { makeStoredMessage } from "../model/message.ts";
import type { Limiter } from "../model/limiter.ts";
import { parseAddress } from "../values/url.ts";
import { defaultTimeout, readLimits } from "../accounts/plans.ts";
import { makeTimeIndexKeys } from "../search/timeIndex.ts";
import { countMessage } from "../accounts/usage.ts";

/**
 * A message to accept. `slot` is the queue slot that a callback shares with the message it reports on.
 * `follows`: see `Delivery`.
 */
type AcceptInput = { account: Account; input: SingleInput; slot?: MessageId | null; follows?: MessageId };

/**
 * Creates a message and returns it as stored. If the message is due, passes all gates and overtakes no other
 * message, it is leased to this node and passed to the dispatcher in the same transaction. If it is due but a
 * limiter stops it, it is held in the waitlist of that limiter. Otherwise it is left for a claim.
 */
export function accept(
  draft: Draft,
  moment: Moment,
  { account, input, slot = null, follows }: AcceptInput,
): StoredMessage {
  const dueAt = Math.max(moment.now, input.notBefore ?? moment.now + (input.delay ?? 0));
  if (input.queue !== null || input.flowControl)
    createLimiters(draft, moment, { account: account.id, input, dueAt });
  const ackTimeout = findAckTimeout(draft, account.id, input);
  const created = newState(draft, input, {
    ackTimeout,
    account: account.id,
    id: moment.newId("msg"),
    dueAt,
    slot,
  });
  const isDue = dueAt <= moment.now;
  const { state, stoppedAt } = isDue ? advance(draft, moment, created) : { state: created, stoppedAt: null };
  const startedAtOnce =
    isDue &&
    stoppedAt === null &&
    maySendAtOnce(draft, state) &&
    draft.capacity.take(account.id, state.host, state.size);
  const message = makeStoredMessage(input, {
    account: account.id,
    id: state.id,
    createdAt: moment.now,
    notBefore: dueAt,
    startedAtOnce,
    retries: input.retries ?? Math.min(defaults.retries, readLimits(account).retries),
    timeout: input.timeout ?? defaultTimeout(account),
    ...(ackTimeout !== undefined && { ackTimeout, ackKey: moment.newId("sig") }),
  });
  draft.put("storedMessages", message);
  draft.indexTime(account.id, message.id, state.timeKeys);
  countMessage(draft, state);
  draft.record(`published ${readOrigin(input)}`);
  if (startedAtOnce) lease(draft, moment, { account, message, state, follows });
  else if (stoppedAt !== null && hasLimiter(stoppedAt)) hold(draft, moment, { state, gate: stoppedAt });
  else draft.put("messages", state);
  return message;
}

/**
 * Returns how long receivers may hold an attempt of a message. A message of a run is settled by the step that
 * its endpoint posts, so only its calls to third parties may have this setting. A receiver that is shown no
 * headers of this server could not name the attempt.
 */
function findAckTimeout(draft: Draft, account: AccountId, input: SingleInput): Millis | undefined {
  const { ackTimeout, queue, reportsOn, run, hideHeaders } = input;
  if (hideHeaders) return undefined;
  if (run) return run.kind === "call" ? ackTimeout : undefined;
  if (ackTimeout !== undefined || queue === null || reportsOn !== null) return ackTimeout;
  return findLimiter(draft, { account, gate: queueGate(queue) })?.ackTimeout;
}

function readOrigin({ reportsOn, run, scheduleId }: SingleInput): MessageOrigin {
  if (reportsOn !== null || run?.kind === "failure") return "callback";
  if (run) return "step";
  return scheduleId === null ? "message" : "schedule";
}

type NewState = Pick<MessageState, "account" | "id" | "dueAt" | "slot"> & { ackTimeout: Millis | undefined };

function newState(
  draft: Draft,
  input: SingleInput,
  { account, id, dueAt, slot, ackTimeout }: NewState,
): MessageState {
  const isShared = slot !== null && shareSlot(draft, account, slot);
  return makePendingState(input, {
    account,
    id,
    dueAt,
    attempts: 0,
    size: input.run?.size ?? input.body.byteLength,
    slot: isShared ? slot : null,
    reportsOutcome: reportsOutcome(input, ackTimeout),
  });
}

/**
 * Returns the state of a message of a run whose state was lost, so that it is sent. Reports on its earlier
 * attempts change nothing.
 */
export const restoreState = (
  message: WithoutBody<StoredMessage> & { run: RunPart },
  now: Millis,
): MessageState =>
  makePendingState(message, {
    account: message.account,
    id: message.id,
    dueAt: Math.max(now, message.notBefore),
    attempts: 1,
    size: message.run.size,
    slot: null,
    reportsOutcome: reportsOutcome(message, message.ackTimeout),
  });

/** The parts of a message that its state is made of. */
type StateSource = Omit<StoredMessage, "body" | "account" | "id" | "createdAt" | "notBefore"> | SingleInput;

function makePendingState(
  input: StateSource,
  created: Pick<MessageState, "account" | "id" | "dueAt" | "slot" | "attempts" | "size" | "reportsOutcome">,
): MessageState {
  const { host, endpoint } = parseAddress(input.url);
  return {
    ...created,
    state: "pending",
    lostAttempts: 0,
    leasedBy: null,
    host,
    endpoint,
    queue: input.queue,
    flowControlKey: input.flowControl?.key ?? null,
    waitlist: null,
    // A failure callback is sent after its run has ended, so it is not dropped with the run.
    run: input.run && input.run.kind !== "failure" ? input.run.run : null,
    tags: makeTags(input),
    timeKeys: makeTimeIndexKeys(input),
  };
}

/** Reports whether the outcome of a message must be reported, or may be reported later by its receiver. */
const reportsOutcome = ({ callback, reportsOn, run }: StateSource, ackTimeout: Millis | undefined): boolean =>
  callback !== null || reportsOn !== null || run?.first !== undefined || ackTimeout !== undefined;

/**
 * Creates the queue and the key of a message, if they do not exist. They exist from their first message on,
 * even if that message is delayed. The key gets the limits of the message.
 */
function createLimiters(
  draft: Draft,
  moment: Moment,
  { account, input, dueAt }: { account: AccountId; input: SingleInput; dueAt: Millis },
): void {
  const { queue, flowControl } = input;
  const keepUntilDue = (limiter: Limiter): void =>
    putLimiter(draft, moment, { ...limiter, lastDueAt: Math.max(limiter.lastDueAt, dueAt) });
  if (queue !== null) keepUntilDue(readLimiter(draft, moment, { account, gate: queueGate(queue) }));
  if (flowControl)
    keepUntilDue(
      withLimits(
        readLimiter(draft, moment, { account, gate: keyGate(flowControl.key) }),
        flowControl,
        moment.now,
      ),
    );
}

/**
 * Reports whether a message may be sent at once. While other messages of its account are due and not claimed,
 * it is unknown to which hosts they go. Until they are claimed, a message is sent at once only to a host
 * without running deliveries. A backlog of one host therefore does not block other hosts.
 */
const maySendAtOnce = (draft: Draft, { account, host }: MessageState): boolean =>
  !draft.capacity.hasBacklog(account) || draft.capacity.isNewcomer(account, host);
