import { isBeingSent } from "../../../src/engine/core/model/messageState.ts";
import type { StoredMessage } from "../../../src/engine/core/model/message.ts";
import type { MessageState } from "../../../src/engine/core/model/messageState.ts";
import type { RunPart } from "../../../src/engine/core/model/runPost.ts";
import { isSettledByStep } from "../../../src/engine/core/sending/recordOutcome.ts";
import type { Retention } from "../../../src/engine/core/accounts/retention.ts";
import type { Step } from "../../../src/engine/core/model/run.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import { concernsRuns } from "./observedBatch.ts";
import { formatResult } from "../actors/endpoints.ts";
import { isWorkflow, getProgram, replay, readHistory } from "../actors/programs.ts";
import { isContinuedByJob } from "../../operations/simulated.ts";
import { isResumedByRequest } from "./bulkOutcomes.ts";
import { checkAnswers, checkDelivery, checkStepsRunOn } from "./runAnswers.ts";
import { isMisplacedPlan, isResult, decodeText, parseStep, parseStepKey } from "./runRecord.ts";
import { RunRecord, type RunRecords } from "./runRecord.ts";
import { noteNotifications, noteWaiters } from "./runWaiting.ts";
import { reusedRunIds } from "../actors/runClients.ts";
import type { Tables } from "../storage/changes.ts";

type RunCheckContext = {
  assertHolds: AssertHolds;
  tables: Tables;
  now: number;
  retention: Retention;
  cover: (what: string) => void;
};

/**
 * Checks workflow runs: their histories, their end, and what belongs to them. It sees the requests and the
 * rows.
 */
export class RunChecker {
  readonly #records = new Map<string, RunRecord>();
  /** The id of the last ended run of each account, if no other run will reuse it. */
  readonly #endedNames = new Map<string, string>();
  #demand: AssertHolds = () => undefined;

  check(observed: ObservedBatch, checkContext: RunCheckContext): void {
    const { changes } = observed;
    this.#demand = checkContext.assertHolds;
    if (
      changes.runs.length + changes.steps.length + changes.waiters.length + changes.notifications.length >
        0 ||
      concernsRuns(observed)
    ) {
      const touched = new Set<RunRecord>();
      const endedNow = this.#noteRuns(observed, checkContext, touched);
      const added = this.#noteSteps(observed, { endedNow, touched });
      this.#noteMessages(observed, { endedNow, touched });
      noteWaiters(this.#asRecords, observed, { added, endedNow, now: checkContext.now });
      noteNotifications(this.#asRecords, observed, { added, endedNow, cover: checkContext.cover });
      this.#checkDeadLetters(observed, endedNow);
      const wereSent = new Set(
        changes.messages.flatMap(({ before }) => (before?.state === "active" ? before.id : [])),
      );
      for (const record of endedNow) this.#checkEnd(record, { added, wereSent, checkContext });
      this.#checkNotified(added, endedNow);
      for (const record of touched) this.#checkRecord(record, checkContext.tables);
      checkAnswers(this.#demand, observed, { added, endedNow, tables: checkContext.tables });
    }
    checkStepsRunOn(this.#asRecords, observed);
    for (const delivery of observed.result.deliveries) checkDelivery(this.#asRecords, delivery);
  }

  /**
   * Called when an endpoint runs a step in a call of its run. Reports whether the run has inherited a
   * result of the step.
   */
  noteStepRan({ run, stepKey }: Pick<RunPart, "run" | "stepKey">, stepId: number): boolean {
    const record = this.#records.get(run);
    if (!record?.inherited.has(`r${stepId}`)) return false;
    this.#demand(
      this.mayHaveStepsOfOthers(run) && isMisplacedPlan(record, stepKey, stepId),
      `a resumed run repeats no step with a result: ${stepId} of ${run}`,
    );
    return true;
  }

  get #asRecords(): RunRecords {
    return { records: this.#records, demand: this.#demand };
  }

  /**
   * Reports whether a run may have steps of another program: it has an id that several runs have, or it
   * resumes a run that had one.
   */
  mayHaveStepsOfOthers(run: string): boolean {
    const record = this.#records.get(run);
    if (!record) return false;
    const { runId, origin } = record.run;
    return reusedRunIds.includes(runId) || (origin !== null && this.mayHaveStepsOfOthers(origin));
  }

  findEndedRun(account: string): string | null {
    return this.#endedNames.get(account) ?? null;
  }

  checkQuiet(tables: Tables): void {
    for (const { run, ended } of this.#records.values())
      this.#demand(ended, `every run ends: ${run.id} ${run.runId} has not`);
    const left = tables.activeRuns.size + tables.waiters.size + tables.notifications.size;
    this.#demand(left === 0, `no rows of runs are left: ${left} rows`);
  }

  #noteRuns(
    observed: ObservedBatch,
    { now, retention, cover }: RunCheckContext,
    touched: Set<RunRecord>,
  ): Set<RunRecord> {
    const { changes, calls } = observed;
    const endedNow = new Set<RunRecord>();
    for (const { before, after } of changes.runs) {
      if (!after) {
        const old = before?.endedAt !== null && (before?.endedAt ?? now) < now - retention.log;
        this.#demand(
          old && calls.some(({ name }) => name === "expire"),
          `a run is kept for its time: ${before?.id}`,
        );
        continue;
      }
      const record = this.#records.get(after.id) ?? new RunRecord(after);
      this.#demand((before === undefined) === !this.#records.has(after.id), `a run starts once: ${after.id}`);
      if (!before && after.origin) this.#checkResumed(record, after.origin, { observed, cover });
      this.#records.set(after.id, record);
      touched.add(record);
      if (record.ended)
        this.#demand(
          record.run.state === after.state && record.run.endedAt === after.endedAt,
          `a run ends once: ${after.id}`,
        );
      if (!record.ended && after.state !== "RUN_STARTED") {
        record.ended = true;
        endedNow.add(record);
        if (!reusedRunIds.includes(after.runId)) this.#endedNames.set(after.account, after.runId);
        cover(after.state);
      }
      record.run = after;
    }
    return endedNow;
  }

  #checkResumed(
    record: RunRecord,
    origin: string,
    { observed, cover }: { observed: ObservedBatch } & Pick<RunCheckContext, "cover">,
  ): void {
    const older = this.#records.get(origin);
    const isResumed =
      isResumedByRequest(observed, record.run.runId) ||
      isContinuedByJob(observed, { origin, action: "runs.resume" });
    this.#demand(older?.run.state === "RUN_FAILED", `only a failed run is resumed: ${origin}`);
    cover(isResumed ? "resumed" : "restarted");
    if (isResumed && older) record.inherited = new Set(older.results);
  }

  /** Records the new steps and returns them. */
  #noteSteps(
    { changes, calls }: ObservedBatch,
    { endedNow, touched }: { endedNow: ReadonlySet<RunRecord>; touched: Set<RunRecord> },
  ): Step[] {
    const added: Step[] = [];
    for (const { before, after } of changes.steps) {
      const row = after ?? before;
      const record = row && this.#records.get(row.run);
      if (!row || !record) {
        this.#demand(false, `a step belongs to a run: ${row?.id}`);
        continue;
      }
      if (!after) {
        this.#demand(
          record.ended && calls.some(({ name }) => name === "expire"),
          `a history is kept: ${row.id}`,
        );
        continue;
      }
      this.#demand(before === undefined, `a history is append-only: ${after.id}`);
      const isNoted = after.head?.stepType === "Invoke" && after.head.stepId > 0;
      this.#demand(
        !record.ended || endedNow.has(record) || isNoted,
        `an ended run accepts no steps: ${after.id}`,
      );
      record.history.push(after);
      record.slots.set(parseStepKey(after.id), after);
      touched.add(record);
      added.push(after);
    }
    return added;
  }

  #noteMessages(
    { changes, calls }: ObservedBatch,
    { endedNow, touched }: { endedNow: ReadonlySet<RunRecord>; touched: Set<RunRecord> },
  ): void {
    for (const { after } of changes.storedMessages)
      if (after?.run?.kind === "failure") this.#noteFailureCallback(after, calls);
    const reported = new Set(
      calls.flatMap(({ name, input }) =>
        name === "settle" ? [(input as { messageId: string }).messageId] : [],
      ),
    );
    const settledBySteps = new Set(
      changes.log.flatMap(({ before, after }) =>
        after && !before && isSettledByStep(after) ? after.messageId : [],
      ),
    );
    const hasClaim = calls.some(({ name }) => name === "claim");
    const givenBack = calls.some(({ name }) => name === "returnLeases");
    for (const { before, after } of changes.messages) {
      const row: MessageState | undefined = after ?? before;
      const record = row && row.run !== null ? this.#records.get(row.run) : undefined;
      if (!row || !record) continue;
      touched.add(record);
      if (after?.state === "settled") {
        record.messages.delete(row.id);
        continue;
      }
      if (after) {
        const isNew = !record.messages.has(row.id);
        this.#demand(
          !isNew || !record.ended || endedNow.has(record),
          `no message is created for an ended run: ${row.id}`,
        );
        const goesOut = !isBeingSent(after) || after.attempts !== before?.attempts;
        this.#demand(
          !goesOut || !record.ended || endedNow.has(record),
          `no message is retried for an ended run: ${row.id}`,
        );
        record.messages.add(row.id);
        continue;
      }
      record.messages.delete(row.id);
      const isOver =
        before?.state !== "active" ||
        reported.has(row.id) ||
        settledBySteps.has(row.id) ||
        hasClaim ||
        (givenBack && record.ended);
      this.#demand(isOver, `a message in flight for a run is not dropped: ${row.id}`);
    }
  }

  #noteFailureCallback({ run, id }: StoredMessage, calls: ObservedBatch["calls"]): void {
    const record = run && this.#records.get(run.run);
    if (!record) return;
    record.failureCallbacks++;
    const isRepeated = calls.some(({ name }) => name === "repeatFailureCallback");
    this.#demand(
      record.failureCallbacks === 1 || isRepeated,
      `a failure is reported once: ${id} of ${record.run.id}`,
    );
  }

  #checkDeadLetters({ changes }: ObservedBatch, endedNow: ReadonlySet<RunRecord>): void {
    for (const { before, after } of changes.deadLetters) {
      if (!after?.run || before) continue;
      const record = this.#records.get(after.run.key);
      if (record) record.deadLetters++;
      const fits =
        record?.run.state === "RUN_FAILED" && endedNow.has(record) && record.run.failure?.dlqId === after.id;
      this.#demand(fits, `a run fails with one dead letter: ${after.id} of ${after.run.key}`);
    }
  }

  #checkEnd(
    record: RunRecord,
    {
      added,
      wereSent,
      checkContext,
    }: { added: readonly Step[]; wereSent: ReadonlySet<string>; checkContext: RunCheckContext },
  ): void {
    const { run } = record;
    const { assertHolds, tables, now } = checkContext;
    assertHolds(run.endedAt === now, `a run records when it ended: ${run.id}`);
    const isFailed = run.state === "RUN_FAILED";
    assertHolds(
      record.deadLetters === (isFailed ? 1 : 0),
      `a failed run has one dead letter: ${run.id} ${run.state} has ${record.deadLetters}`,
    );
    const callbacks = isFailed && run.settings.failureCallback ? 1 : 0;
    assertHolds(
      record.failureCallbacks === callbacks,
      `only a failure is reported: ${run.id} ${run.state}, ${record.failureCallbacks}`,
    );
    for (const id of record.messages) {
      const state = tables.messages.get(`${run.account}\n${id}`);
      assertHolds(
        (state !== undefined && isBeingSent(state)) || wereSent.has(id),
        `no message is pending for an ended run: ${id} is ${state?.state}`,
      );
    }
    if (run.state === "RUN_SUCCESS" && isWorkflow(run.url) && !this.mayHaveStepsOfOthers(run.id))
      this.#checkResult(record);
    if (run.invoker) this.#checkParent(record, { added, tables, cover: checkContext.cover });
  }

  #checkResult({ run, history }: RunRecord): void {
    const steps = history.toSorted((a, b) => a.position - b.position);
    const move = replay(getProgram(run.url), readHistory(steps));
    const expected = move.kind === "finish" ? formatResult(move.outs) : JSON.stringify(move);
    const isReturned = decodeText(run.body) === expected;
    this.#demand(
      isReturned,
      `a run returns the result of its workflow: ${run.id} ${decodeText(run.body)} instead of ${expected}`,
    );
  }

  /**
   * Checks that the step which invoked a run gets its end in the same batch, unless it already has a result.
   */
  #checkParent(
    record: RunRecord,
    observed: { added: readonly Step[]; tables: Tables; cover: (what: string) => void },
  ): void {
    const { run } = record;
    const parent = this.#records.get(run.invoker?.run ?? "");
    const result = parent?.slots.get(`r${String(run.invoker?.step["stepId"])}`);
    // The parent may have been removed after its retention.
    if (!parent || !observed.tables.runs.has(`${run.account}\n${parent.run.id}`)) return;
    this.#demand(
      result !== undefined,
      `the invoking step gets the end of a run: ${run.id} of ${parent.run.id}`,
    );
    if (!result || !observed.added.includes(result)) return;
    observed.cover(parent.ended ? "child recorded" : "child reported");
    const told = JSON.parse(parseStep(result).out ?? "{}") as {
      body?: string;
      isCanceled: boolean;
      isFailed: boolean;
    };
    const fits =
      told.isFailed === (run.state === "RUN_FAILED") &&
      told.isCanceled === (run.state === "RUN_CANCELED") &&
      told.body === (run.state === "RUN_SUCCESS" ? decodeText(run.body) : undefined);
    this.#demand(fits, `the invoking step gets the outcome of a run: ${run.id}`);
  }

  /** Checks that nothing else is the result of an invocation. */
  #checkNotified(added: readonly Step[], endedNow: ReadonlySet<RunRecord>): void {
    for (const step of added) {
      if (
        step.head?.stepType !== "Invoke" ||
        !isResult(step) ||
        this.#records.get(step.run)?.inherited.has(parseStepKey(step.id))
      )
        continue;
      const children = [...endedNow].filter(
        ({ run }) =>
          run.invoker?.run === step.run && `r${String(run.invoker.step["stepId"])}` === parseStepKey(step.id),
      );
      this.#demand(
        children.length === 1,
        `an invocation ends only with its run: ${step.id} by ${children.length}`,
      );
    }
  }

  /** Checks that a history has no gap, and that the run and related rows match its length. */
  #checkRecord(record: RunRecord, tables: Tables): void {
    const { run, history, ended } = record;
    const row = tables.runs.get(`${run.account}\n${run.id}`);
    if (!row) return;
    const isWhole = [...record.inherited].every((slot) => record.slots.has(slot));
    this.#demand(isWhole, `a resumed run keeps existing results: ${run.id} has ${record.results.join(" ")}`);
    const positions = history.map(({ position }) => position).sort((a, b) => a - b);
    const hasNoGap =
      positions.every((position, index) => position === index) && record.slots.size === history.length;
    this.#demand(
      hasNoGap,
      `a history has no gap: ${run.id} ${positions.join(" ")}, ${record.slots.size} slots`,
    );
    const active = tables.activeRuns.get(`${run.account}\n${run.runId}`);
    this.#demand(
      (active?.run === run.id) === !ended,
      `a run is active until it ends: ${run.id} ${row.state}`,
    );
    const counted = ended ? row.steps : active?.steps;
    this.#demand(counted === history.length, `steps are counted: ${run.id} ${counted} of ${history.length}`);
    if (!ended)
      this.#demand(
        active?.waiting === record.waiters.size,
        `waiting steps are counted: ${run.id} ${active?.waiting}`,
      );
    if (!ended) return;
    this.#demand(
      record.waiters.size + record.notifications.size === 0,
      `an ended run has no waiters or notifications: ${run.id}`,
    );
  }
}
