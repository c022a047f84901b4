import type { Decision, Draft, Moment } from "../decision/command.ts";
import { extendHold } from "../attempts/acknowledging.ts";
import { applyOutcome, listAwaited, serveAwaited } from "../attempts/applyOutcome.ts";
import type { ReportedAttempt } from "../model/deduplication.ts";
import type { DestinationResponse, Outcome } from "../model/attempt.ts";
import type { LeaseRef, MessageState } from "../model/messageState.ts";
import { holders, isPulled, isUnfinished } from "../model/messageState.ts";
import { returnedError } from "../sending/endedAttempt.ts";
import { Refusal } from "../values/errors.ts";
import { spans } from "../values/limits.ts";
import type { Millis } from "../values/basics.ts";

/**
 * The outcome of an attempt as its receiver reports it, or that its client gives it back (`isReturned`).
 * `digest`: the hash of the report.
 */
export type AttemptReport = LeaseRef & {
  digest: string;
  outcome: Omit<DestinationResponse, "error" | "timing"> & Pick<Outcome, "isReturned">;
};

/** The result of a report. `early`: the node that sends the message has not stored the response yet. */
export type Reported = Pick<ReportedAttempt, "became"> | { became: "early" };

/**
 * Records the outcome of an attempt that its receiver holds, as if the endpoint had answered with it. The
 * first report counts. A repetition of the same report gets the same answer. Only an attempt that was pulled
 * can be given back. Throws `Refusal` for another report, and after the attempt has ended in another way.
 */
export const reportAttempt: Decision<AttemptReport, Reported> = {
  hint: ({ account, messageId, ...rest }) => ({
    accounts: [[account]],
    messages: [[account, messageId]],
    deduplications: [[account, toReportKey({ account, messageId, ...rest })]],
  }),
  decide: (report, draft, moment) => {
    const { account: id, messageId, attempt, digest } = report;
    const key = toReportKey(report);
    const earlier = draft.get("deduplications", id, key)?.made.report;
    if (earlier) return repeat(earlier, digest);
    const state = findHeld(draft, report);
    if (state === "early") return { became: "early" };
    const { isReturned = false } = report.outcome;
    if (isReturned && !isPulled(state)) throw sentRefusal();
    const account = draft.get("accounts", id);
    if (!account) throw endedRefusal(state);
    const limiters = draft.capacity.hasBacklog(id) ? [] : listAwaited(draft, state);
    const outcome = {
      ...{ ...report.outcome, error: isReturned ? returnedError : null, took: 0 },
      ...{ account: id, messageId, host: state.host, attempt },
    };
    const became = toReported(applyOutcome(draft, moment, { account, state, outcome }).became);
    serveAwaited(draft, moment, limiters);
    draft.put("deduplications", {
      ...{ account: id, key, messageId, expiresAt: moment.now + spans.report },
      made: { at: moment.now, report: { digest, became } },
    });
    return { became };
  },
};

/** Names an attempt among the deduplication keys. Other keys are hashes, which contain no space. */
const toReportKey = ({ messageId, attempt }: LeaseRef): string => `report ${messageId} ${attempt}`;

function repeat({ digest: known, became }: ReportedAttempt, digest: string): Reported {
  if (known === digest) return { became };
  throw new Refusal("attempt-reported", "another outcome of this attempt was reported before");
}

/** An attempt that a receiver holds has no other results. */
function toReported(became: string): ReportedAttempt["became"] {
  return became === "retry" || became === "failed" ? became : "delivered";
}

/** An attempt, and for how long its receiver asks to hold it from now on. */
export type AttemptExtension = LeaseRef & { extension: Millis };

/**
 * Lets a receiver hold an attempt for longer. Returns until when. Throws `Refusal` if the attempt has ended.
 */
export const extendAttempt: Decision<AttemptExtension, { until: Millis } | { became: "early" }> = {
  hint: ({ account, messageId }) => ({ messages: [[account, messageId]] }),
  decide: (held, draft, moment: Moment) => {
    const state = findHeld(draft, held);
    if (state === "early") return { became: "early" };
    const dueAt = extendHold(state, held.extension, moment.now);
    if (dueAt !== state.dueAt) draft.put("messages", { ...state, dueAt });
    return { until: dueAt };
  },
};

/**
 * Returns the message of an attempt that its receiver holds. `early`: a node still sends it. Throws `Refusal`
 * if the attempt has ended.
 */
function findHeld(draft: Draft, { account, messageId, attempt }: LeaseRef): MessageState | "early" {
  const state = draft.get("messages", account, messageId);
  const isHeld = state && holders.includes(state.leasedBy ?? "");
  // A step of its run has settled the message, and the report ends its request.
  if (isHeld && state.attempts === attempt && (state.state === "acknowledging" || state.state === "settled"))
    return state;
  if (state?.attempts === attempt && state.state === "active") return "early";
  throw endedRefusal(state);
}

const sentRefusal = (): Refusal =>
  new Refusal(
    "conflict",
    "outcome: the request was sent to the receiver, so the attempt cannot be returned; report ok or failed",
  );

/** `state`: that of the message, if it still has one. */
const endedRefusal = (state: MessageState | undefined): Refusal =>
  new Refusal(
    "attempt-ended",
    state && isUnfinished(state)
      ? "the attempt has ended: it timed out, was ended or was given back, and its message is sent again"
      : "the attempt has ended: its message was delivered, has failed or was cancelled",
  );
