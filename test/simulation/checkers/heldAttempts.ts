import type { AttemptReport, Reported } from "../../../src/engine/core/commands/reportAttempt.ts";
import { limits, spans } from "../../../src/engine/core/values/limits.ts";
import { holders, pullerHold } from "../../../src/engine/core/model/messageState.ts";
import type { MessageState } from "../../../src/engine/core/model/messageState.ts";
import type { Change, Tables } from "../storage/changes.ts";
import type { MessageHistory } from "./messageHistory.ts";
import type { AssertHolds, ObservedBatch } from "./observedBatch.ts";

type HeldAttemptsContext = {
  assertHolds: AssertHolds;
  tables: Tables;
  messageHistories: ReadonlyMap<string, MessageHistory>;
  now: number;
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
    const { assertHolds, messageHistories, now, cover, tables } = context;
    const id = after?.id ?? before?.id ?? "";
    if (after?.state === "acknowledging") {
      const { ackTimeout } = messageHistories.get(id)?.message ?? {};
      const isPulled = tables.accounts.get(after.account)?.pulled !== undefined;
      assertHolds(
        ackTimeout !== undefined || isPulled,
        `only a message with an ack timeout, or that was pulled, is held by its receiver: ${id}`,
      );
      assertHolds(
        holders.includes(after.leasedBy ?? ""),
        `a held attempt belongs to no node: ${id} ${after.leasedBy}`,
      );
      const isNew = before?.state !== "acknowledging" || before.attempts !== after.attempts;
      if (isNew) this.#since.set(id, now);
      const since = this.#since.get(id) ?? now;
      const latest = isNew && !isPulled ? now + (ackTimeout ?? 0) : since + limits.ackTimeout;
      // In one batch, an attempt may be taken over and extended.
      const isExtended = observed.calls.some(({ name }) => name === "extendAttempt");
      assertHolds(
        (after.dueAt ?? 0) <= (isExtended ? since + limits.ackTimeout : latest),
        `a hold is not longer than its message allows: ${id} until ${after.dueAt}`,
      );
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

  /** Checks that an attempt has one outcome, and that a repeated report gets the answer of the first one. */
  #checkReports({ calls, result, changes }: ObservedBatch, context: HeldAttemptsContext): void {
    const { assertHolds, cover, now } = context;
    const before = new Map(changes.messages.map((change) => [change.before?.id, change.before]));
    calls.forEach(({ name, input }, index) => {
      const reply = result.replies[index];
      if (name !== "reportAttempt" || !reply) return;
      const { messageId, attempt, digest, outcome } = input as AttemptReport;
      if (!("answer" in reply)) {
        const known = this.#reports.get(`${messageId} ${attempt}`);
        const isRepeated = known?.digest === digest && now < known.at + spans.report;
        return assertHolds(!isRepeated, `a repeated report gets the same answer: ${messageId} ${attempt}`);
      }
      const { became } = reply.answer as Reported;
      if (became === "early") return void cover("reported early");
      const key = `${messageId} ${attempt}`;
      const first = this.#reports.get(key);
      if (first) {
        cover("report repeated");
        return assertHolds(
          first.digest === digest && first.became === became,
          `an attempt has one outcome: ${key} was ${first.became}, then ${became}`,
        );
      }
      this.#reports.set(key, { digest, became, at: now });
      cover(outcome.isReturned ? "given back" : `reported ${became}`);
      const held = before.get(messageId);
      assertHolds(
        !outcome.isReturned || held?.leasedBy === pullerHold || calls.length > 1,
        `only an attempt that was pulled is given back: ${key}`,
      );
      assertHolds(
        held?.attempts === attempt &&
          (held.state === "acknowledging" || held.state === "settled" || calls.length > 1),
        `only a held attempt can be reported: ${key} in ${held?.state}`,
      );
    });
  }
}

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
