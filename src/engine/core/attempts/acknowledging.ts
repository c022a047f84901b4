import type { Draft, Moment } from "../decision/command.ts";
import { log } from "../admission/messageLog.ts";
import { parseDuration } from "../values/duration.ts";
import { canonicalName, headerValue } from "../values/headers.ts";
import { limits } from "../values/limits.ts";
import type { HeaderList, Millis } from "../values/basics.ts";
import type { Outcome } from "../model/attempt.ts";
import type { StoredMessage } from "../model/message.ts";
import { pullerHold, receiverHold } from "../model/messageState.ts";
import type { MessageState } from "../model/messageState.ts";

// A receiver that needs longer than a response may take answers 202 with `Svc-Ack: later`. The attempt is
// then no longer bound to a connection or a node: the receiver holds it, and reports the outcome with the
// token of the attempt. The message keeps its slots at the gates 1 to 4 as if its request still ran, and its
// `dueAt` is the time until which the receiver must report. Each attempt has one outcome: that of the first
// report, of the deadline, of an operator, or of a cancel, whichever is stored first. A puller holds what it
// has received in the same way, and can give it back: see `engine/core/accounts/pulledOrigins.ts`.

const prefixes = ["Svc", "Upstash"];
const ackNames = prefixes.map((prefix) => canonicalName(`${prefix}-Ack`));
const timeoutNames = prefixes.map((prefix) => canonicalName(`${prefix}-Ack-Timeout`));

/**
 * Returns until when the receiver of a message holds an attempt after a response, or after it has pulled the
 * attempt. Null: the response is the outcome. The receiver may name a shorter time than that of the message.
 * A time that cannot be read is ignored.
 */
export function findHoldEnd(
  { ackTimeout }: Pick<StoredMessage, "ackTimeout">,
  { status, headers, heldFor }: Pick<Outcome, "status" | "headers" | "heldFor">,
  now: Millis,
): Millis | null {
  if (heldFor !== undefined) return now + Math.min(heldFor, limits.ackTimeout);
  if (ackTimeout === undefined || status !== 202) return null;
  if (readFirst(headers, ackNames)?.trim().toLowerCase() !== "later") return null;
  const named = parseDuration(readFirst(headers, timeoutNames)?.trim() ?? "");
  return now + Math.min(ackTimeout, named === null || named <= 0 ? ackTimeout : named);
}

const readFirst = (headers: HeaderList, names: readonly string[]): string | undefined =>
  names.map((name) => headerValue(headers, name)).find((value) => value !== undefined);

/** Gives an attempt to its receiver until a time. It keeps its slots, and its node has no part in it. */
export function holdForReceiver(
  draft: Draft,
  moment: Moment,
  { state, outcome, until }: { state: MessageState; outcome: Outcome; until: Millis },
): void {
  const held: MessageState = {
    ...state,
    state: "acknowledging",
    leasedBy: outcome.heldFor === undefined ? receiverHold : pullerHold,
    startedAt: moment.now,
    dueAt: until,
  };
  draft.put("messages", held);
  log(draft, moment, {
    message: state,
    timing: outcome.timing,
    row: { states: ["ACKNOWLEDGING"], status: outcome.status },
  });
}

/**
 * Returns until when a receiver holds an attempt after it has asked for an extension. The time never becomes
 * shorter. All extensions together end at the longest time after the receiver took over the attempt.
 */
export function extendHold({ dueAt, startedAt }: MessageState, extension: Millis, now: Millis): Millis {
  const last = (startedAt ?? now) + limits.ackTimeout;
  return Math.max(dueAt ?? now, Math.min(now + extension, last));
}
