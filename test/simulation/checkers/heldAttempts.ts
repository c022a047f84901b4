import type {
  AttemptExtension,
  AttemptReport,
  Reported,
} from "../../../src/engine/core/commands/reportAttempt.ts";
import { limits, spans } from "../../../src/engine/core/values/limits.ts";
import type { MessageState } from "../../../src/engine/core/model/messageState.ts";
import type { Change, Tables } from "../storage/changes.ts";
import type { HandoverChecker } from "./handovers.ts";
import type { MessageHistory } from "./messageHistory.ts";
import type { AssertHolds, ObservedBatch } from "./observedBatch.ts";

type HeldAttemptsContext = {
  assertHolds: AssertHolds;
  tables: Tables;
  messageHistories: ReadonlyMap<string, MessageHistory>;
  now: number;
  handovers: Pick<HandoverChecker, "readLease">;
  cover(what: string): unknown;
};

/** The commands that may end a hold before its deadline. */
const enders = ["reportAttempt", "endAttempts", "cancel", "bulk", "cancelRuns", "finishRun", "settle"];

/**
 * Checks attempts that their receivers hold. Each has one outcome. The message keeps its slots until then.
 * Only a report, a person, the deadline or the end of its run ends the hold. No node takes it over.
 */
export class HeldAttemptChecker {
  /** The accepted reports by message and attempt, and since when each attempt is held. */
  readonly #reports = new Map<string, { digest: string; became: string; at: number }>();
  readonly #since = new Map<string, number>();

  check(observed: ObservedBatch, context: HeldAttemptsContext): void {
    for (const change of observed.changes.messages) this.#checkState(change, observed, context);
    this.#checkReports(observed, context);
  }

  #checkState(
    { before, after }: Change<"messages">,
    observed: ObservedBatch,
    context: HeldAttemptsContext,
  ): void {
    const { assertHolds, now, cover } = context;
    const id = after?.id ?? before?.id ?? "";
    if (after?.state === "acknowledging") {
      const lease = context.handovers.readLease(id, after.attempts);
      assertHolds(
        after.leasedBy === (typeof lease === "number" ? "puller" : "receiver"),
        `a held attempt belongs to the client that it was handed over to: ${id} ${after.leasedBy}`,
      );
      const isNew = before?.state !== "acknowledging" || before.attempts !== after.attempts;
      if (isNew) this.#since.set(id, now);
      this.#checkDeadline({ before: isNew ? undefined : before, after }, observed, context);
      checkPlaces(after, context);
      cover(isNew ? "held by a receiver" : "hold extended");
      if (after.slot !== null) cover("held by a receiver in a queue");
    }
    if (before?.state !== "acknowledging") return;
    const isOver = after?.state !== "acknowledging" || after.attempts !== before.attempts;
    if (!isOver)
      return assertHolds((after.dueAt ?? 0) >= (before.dueAt ?? 0), `a hold never gets shorter: ${id}`);
    const names = new Set(observed.calls.map(({ name }) => name as string));
    const isDue = names.has("claim") && (before.dueAt ?? 0) <= now;
    if (isDue && !names.has("reportAttempt")) cover("hold expired");
    assertHolds(
      isDue || before.run !== null || enders.some((name) => names.has(name)),
      `a hold ends by its report or its deadline: ${id} in ${[...names].join(" ")}`,
    );
  }

  /**
   * Checks until when a receiver holds an attempt: for the time of its pull, or for that of its message, and
   * longer only if it asks for more.
   */
  #checkDeadline(
    { before, after }: { before: MessageState | undefined; after: MessageState },
    { calls }: ObservedBatch,
    { assertHolds, messageHistories, now, handovers }: HeldAttemptsContext,
  ): void {
    const { id, attempts, dueAt } = after;
    const lease = handovers.readLease(id, attempts);
    const longest = lease ?? messageHistories.get(id)?.message.ackTimeout;
    assertHolds(
      lease !== undefined && longest !== undefined,
      `only an attempt that was pulled, or has an ack timeout, is held by its receiver: ${id} #${attempts}`,
    );
    // In one batch, an attempt may be taken over and extended.
    const isExtended = calls.some(
      ({ name, input }) =>
        name === "extendAttempt" &&
        (input as AttemptExtension).messageId === id &&
        (input as AttemptExtension).attempt === attempts,
    );
    const latest = isExtended
      ? (this.#since.get(id) ?? now) + limits.ackTimeout
      : (before?.dueAt ?? now + (longest ?? 0));
    assertHolds(
      (dueAt ?? 0) <= latest,
      `a hold is not longer than its pull or its message allows: ${id} until ${dueAt}`,
    );
  }

  /**
   * Checks that an attempt has one outcome, that a repeated report gets the answer of the first one, and that
   * a hold is extended only before.
   */
  #checkReports(observed: ObservedBatch, context: HeldAttemptsContext): void {
    observed.calls.forEach(({ name, input }, index) => {
      const reply = observed.result.replies[index];
      if (name === "reportAttempt" && reply)
        this.#checkReport(input as AttemptReport, { reply, ...observed }, context);
      if (name === "extendAttempt" && reply)
        this.#checkExtension(input as AttemptExtension, { reply, ...observed }, context);
    });
  }

  #checkReport(
    { messageId, attempt, digest, outcome }: AttemptReport,
    { reply, calls, changes }: Replied,
    { assertHolds, cover, now, handovers }: HeldAttemptsContext,
  ): void {
    const key = `${messageId} ${attempt}`;
    const first = this.#reports.get(key);
    if (!("answer" in reply)) {
      const isRepeated = first?.digest === digest && now < first.at + spans.report;
      return assertHolds(!isRepeated, `a repeated report gets the same answer: ${key}`);
    }
    const { became } = reply.answer as Reported;
    if (became === "early") return void cover("reported early");
    if (first) {
      cover("report repeated");
      return assertHolds(
        first.digest === digest && first.became === became,
        `an attempt has one outcome: ${key} was ${first.became}, then ${became}`,
      );
    }
    this.#reports.set(key, { digest, became, at: now });
    cover(outcome.isReturned ? "given back" : `reported ${became}`);
    const held = changes.messages.find(({ before }) => before?.id === messageId)?.before;
    assertHolds(
      held?.attempts === attempt &&
        (held.state === "acknowledging" || held.state === "settled" || calls.length > 1),
      `only a held attempt can be reported: ${key} in ${held?.state}`,
    );
    assertHolds(
      !outcome.isReturned || typeof handovers.readLease(messageId, attempt) === "number",
      `only an attempt that was pulled is given back: ${key}`,
    );
  }

  #checkExtension(
    { account, messageId, attempt, extension }: AttemptExtension,
    { reply, calls, changes }: Replied,
    { assertHolds, cover, now, tables }: HeldAttemptsContext,
  ): void {
    const key = `${messageId} ${attempt}`;
    const after = tables.messages.get(`${account}\n${messageId}`);
    const change = changes.messages.find((one) => one.before?.id === messageId);
    const isHeld = ["puller", "receiver"].includes(after?.leasedBy ?? "") && after?.attempts === attempt;
    if (!("answer" in reply)) {
      cover("extension refused");
      return assertHolds(!isHeld || calls.length > 1, `a held attempt can be extended: ${key}`);
    }
    const answer = reply.answer as { until: number } | { became: "early" };
    if (!("until" in answer)) return void cover("extended early");
    const { until } = answer;
    assertHolds(!this.#reports.has(key), `an attempt is not extended after its outcome: ${key}`);
    assertHolds(
      (isHeld && (after.dueAt ?? 0) >= until) || calls.length > 1,
      `only a held attempt is extended: ${key} until ${until} in ${after?.state}`,
    );
    const latest = Math.max((change?.before ?? after)?.dueAt ?? 0, now + extension);
    assertHolds(
      until <= latest || calls.length > 1,
      `a hold is extended as was asked: ${key} until ${until}`,
    );
  }
}

/** A batch, and the reply to one of its commands. */
type Replied = ObservedBatch & { reply: ObservedBatch["result"]["replies"][number] };

/** Checks that a held attempt keeps its places in its queue and under its key. */
function checkPlaces(
  { account, id, slot, flowControlKey: key }: MessageState,
  { assertHolds, tables }: Pick<HeldAttemptsContext, "assertHolds" | "tables">,
): void {
  assertHolds(
    slot === null || tables.queueSlots.has(`${account}\n${slot}`),
    `a held attempt keeps its queue slot: ${id}`,
  );
  const { running = 0 } = tables.limiters.get(`${account}\nkey:${key}`) ?? {};
  const held = [...tables.messages.values()].filter(
    (state) => state.account === account && state.flowControlKey === key && state.state === "acknowledging",
  );
  assertHolds(
    key === null || held.length <= running,
    `a held attempt keeps its place under its key: ${held.length} of ${running} of ${key}`,
  );
}
