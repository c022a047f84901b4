import type { CommandInput } from "../../src/core/commands/index.ts";
import type { Delivery, StoredMessage, MessageState } from "../../src/core/model/message.ts";
import type { Retention } from "../../src/core/commands/retention.ts";
import type { Run, Step } from "../../src/core/model/run.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import { concernsRuns } from "./observedBatch.ts";
import { formatResult } from "./endpoints.ts";
import { isWorkflow, getProgram, replay, readHistory } from "./programs.ts";
import type { HistoryStep } from "./programs.ts";
import { reusedRunIds } from "./runClients.ts";
import type { Tables } from "./changes.ts";

type RunCheckContext = { assertHolds: AssertHolds; tables: Tables; now: number; retention: Retention; cover: (what: string) => void };

/** What is known of one run. */
class RunRecord {
  run: Run;
  readonly history: Step[] = [];
  readonly slots = new Map<string, Step>();
  /** Messages that are not finished. */
  readonly messages = new Set<string>();
  readonly waiters = new Set<string>();
  /** Events that are kept, by id: what a step that takes one has as its result. */
  readonly notifications = new Map<string, string>();
  /** Steps that had their results when the run that this one goes on with had failed. */
  inherited: ReadonlySet<string> = new Set();
  deadLetters = 0;
  failureCallbacks = 0;
  ended = false;

  constructor(run: Run) {
    this.run = run;
  }

  get results(): string[] {
    return [...this.slots.keys()].filter((slot) => slot.startsWith("r"));
  }
}

const parseStepKey = (id: string): string => id.slice(id.indexOf("/") + 1);
const decodeText = (body: Uint8Array): string => new TextDecoder().decode(body);
const parseStep = (step: Step): HistoryStep => JSON.parse(decodeText(step.body)) as HistoryStep;

/** Workflow runs: their histories, their one end, and what goes with it. It is told what was asked and sees the rows. */
export class RunChecker {
  readonly #records = new Map<string, RunRecord>();
  /** By account: the name of the last run that has ended, if no other one will have it. */
  readonly #endedNames = new Map<string, string>();
  #demand: AssertHolds = () => undefined;

  check(observed: ObservedBatch, checkContext: RunCheckContext): void {
    const { changes } = observed;
    this.#demand = checkContext.assertHolds;
    if (changes.runs.length + changes.steps.length + changes.waiters.length + changes.notifications.length > 0 || concernsRuns(observed)) {
      const touched = new Set<RunRecord>();
      const endedNow = this.#noteRuns(observed, checkContext, touched);
      const added = this.#noteSteps(observed, { endedNow, touched });
      this.#noteMessages(observed, { endedNow, touched });
      this.#noteWaiters(observed, { added, endedNow, now: checkContext.now });
      this.#noteNotifications(observed, { added, endedNow, cover: checkContext.cover });
      this.#checkDeadLetters(observed, endedNow);
      const wereSent = new Set(changes.messages.flatMap(({ before }) => (before?.state === "active" ? before.id : [])));
      for (const record of endedNow) this.#checkEnd(record, { added, wereSent, checkContext });
      this.#checkNotified(added, endedNow);
      for (const record of touched) this.#checkRecord(record, checkContext.tables);
      this.#checkAnswers(observed, { added, endedNow, tables: checkContext.tables });
    }
    for (const delivery of observed.result.deliveries) this.#checkDelivery(delivery);
  }

  /** An endpoint runs a step. */
  noteStepRan(run: string, stepId: number): void {
    const isNew = !this.#records.get(run)?.inherited.has(`r${stepId}`);
    this.#demand(isNew, `a resumed run repeats no step that has its result: ${stepId} of ${run}`);
  }

  findEndedRun(account: string): string | null {
    return this.#endedNames.get(account) ?? null;
  }

  checkQuiet(tables: Tables): void {
    for (const { run, ended } of this.#records.values()) this.#demand(ended, `every run ends: ${run.id} ${run.runId} has not`);
    const left = tables.activeRuns.size + tables.waiters.size + tables.notifications.size;
    this.#demand(left === 0, `nothing stays behind of runs: ${left} rows`);
  }

  #noteRuns(
    { changes, calls, result }: ObservedBatch,
    { now, retention, cover }: RunCheckContext,
    touched: Set<RunRecord>,
  ): Set<RunRecord> {
    const endedNow = new Set<RunRecord>();
    for (const { before, after } of changes.runs) {
      if (!after) {
        const old = before?.endedAt !== null && (before?.endedAt ?? now) < now - retention.log;
        this.#demand(old && calls.some(({ name }) => name === "expire"), `a run is kept for its time: ${before?.id}`);
        continue;
      }
      const record = this.#records.get(after.id) ?? new RunRecord(after);
      this.#demand((before === undefined) === !this.#records.has(after.id), `a run begins once: ${after.id}`);
      if (!before && after.origin) this.#checkResumed(record, after.origin, { calls, result }, cover);
      this.#records.set(after.id, record);
      touched.add(record);
      if (record.ended)
        this.#demand(record.run.state === after.state && record.run.endedAt === after.endedAt, `a run ends once: ${after.id}`);
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
    { calls, result }: Pick<ObservedBatch, "calls" | "result">,
    cover: (what: string) => void,
  ): void {
    const older = this.#records.get(origin);
    const isResumed = calls.some(({ name, input }, index) => {
      const reply = result.replies[index];
      if (name !== "resumeRun" || !reply || !("answer" in reply)) return false;
      return (reply.answer as { runId: string }).runId === record.run.runId && (input as CommandInput<"resumeRun">).from === "failure";
    });
    this.#demand(older?.run.state === "RUN_FAILED", `only a run that has failed is resumed: ${origin}`);
    cover(isResumed ? "resumed" : "restarted");
    if (isResumed && older) record.inherited = new Set(older.results);
  }

  /** Those that were added. */
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
        this.#demand(record.ended && calls.some(({ name }) => name === "expire"), `a history is kept: ${row.id}`);
        continue;
      }
      this.#demand(before === undefined, `a history is only added to: ${after.id}`);
      const isNoted = after.head?.stepType === "Invoke" && after.head.stepId > 0;
      this.#demand(!record.ended || endedNow.has(record) || isNoted, `a run that has ended takes no steps: ${after.id}`);
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
    for (const { after } of changes.storedMessages) if (after?.run?.kind === "failure") this.#noteFailureCallback(after, calls);
    const reported = new Set(calls.flatMap(({ name, input }) => (name === "settle" ? [(input as { messageId: string }).messageId] : [])));
    const hasClaim = calls.some(({ name }) => name === "claim");
    const givenBack = calls.some(({ name }) => name === "returnLeases");
    for (const { before, after } of changes.messages) {
      const row: MessageState | undefined = after ?? before;
      const record = row && row.run !== null ? this.#records.get(row.run) : undefined;
      if (!row || !record) continue;
      touched.add(record);
      if (after) {
        const isNew = !record.messages.has(row.id);
        this.#demand(!isNew || !record.ended || endedNow.has(record), `nothing is sent anew for a run that has ended: ${row.id}`);
        const goesOut = after.state !== "active" || after.attempts !== before?.attempts;
        this.#demand(!goesOut || !record.ended || endedNow.has(record), `nothing is sent again for a run that has ended: ${row.id}`);
        record.messages.add(row.id);
        continue;
      }
      record.messages.delete(row.id);
      const isOver = before?.state !== "active" || reported.has(row.id) || hasClaim || (givenBack && record.ended);
      this.#demand(isOver, `what is being sent for a run is left to arrive: ${row.id}`);
    }
  }

  #noteFailureCallback({ run, id }: StoredMessage, calls: ObservedBatch["calls"]): void {
    const record = run && this.#records.get(run.run);
    if (!record) return;
    record.failureCallbacks++;
    const isRepeated = calls.some(({ name }) => name === "repeatFailureCallback");
    this.#demand(record.failureCallbacks === 1 || isRepeated, `a failure is told once: ${id} of ${record.run.id}`);
  }

  #noteWaiters({ changes }: ObservedBatch, observed: { added: readonly Step[]; endedNow: ReadonlySet<RunRecord>; now: number }): void {
    for (const { before, after } of changes.waiters) {
      const row = after ?? before;
      const record = row && this.#records.get(row.run);
      if (!row || !record) continue;
      const result = record.slots.get(`r${parseStepKey(row.id)}`);
      if (after) {
        this.#demand(result === undefined, `what waits has no result yet: ${row.id}`);
        const dueAt = after.kind === "invoke" ? null : after.createdAt + Number.parseInt(after.timeout, 10) * 1000;
        this.#demand(after.dueAt === dueAt, `every wait but for a run has the time it asked for: ${row.id}`);
        record.waiters.add(row.id);
        continue;
      }
      record.waiters.delete(row.id);
      this.#demand(result !== undefined || record.ended, `a wait ends with a result, or with its run: ${row.id}`);
      if (!result || !observed.added.includes(result) || row.kind === "invoke") continue;
      const { waitTimeout } = parseStep(result);
      this.#demand(!waitTimeout || (row.dueAt ?? Infinity) <= observed.now, `a wait has the time it asked for: ${row.id}`);
    }
  }

  #noteNotifications(
    { changes }: ObservedBatch,
    { added, endedNow, cover }: { added: readonly Step[]; endedNow: ReadonlySet<RunRecord>; cover: (what: string) => void },
  ): void {
    this.#noteTaken(changes.notifications, { added, endedNow, cover });
    for (const step of added.filter(isResult)) {
      const { out } = parseStep(step);
      const left = [...(this.#records.get(step.run)?.notifications.values() ?? [])];
      this.#demand(out === undefined || !left.includes(out), `an event that is taken is kept no more: ${step.id}`);
    }
  }

  #noteTaken(
    changed: ObservedBatch["changes"]["notifications"],
    { added, endedNow, cover }: { added: readonly Step[]; endedNow: ReadonlySet<RunRecord>; cover: (what: string) => void },
  ): void {
    for (const { before, after } of changed) {
      const row = after ?? before;
      const record = row && this.#records.get(row.run);
      if (!row || !record) continue;
      if (after) {
        cover("event kept");
        record.notifications.set(row.id, Buffer.from(row.body).toString("base64"));
        continue;
      }
      record.notifications.delete(row.id);
      const out = Buffer.from(row.body).toString("base64");
      const taken = added.filter((step) => step.run === row.run && isResult(step) && parseStep(step).out === out);
      if (taken.length > 0) cover("event taken");
      this.#demand(taken.length === 1 || endedNow.has(record), `an event that was kept is taken once: ${row.id}`);
    }
  }

  #checkDeadLetters({ changes }: ObservedBatch, endedNow: ReadonlySet<RunRecord>): void {
    for (const { before, after } of changes.deadLetters) {
      if (!after?.run || before) continue;
      const record = this.#records.get(after.run.key);
      if (record) record.deadLetters++;
      const fits = record?.run.state === "RUN_FAILED" && endedNow.has(record) && record.run.failure?.dlqId === after.id;
      this.#demand(fits, `a run fails with one dead letter: ${after.id} of ${after.run.key}`);
    }
  }

  #checkEnd(
    record: RunRecord,
    { added, wereSent, checkContext }: { added: readonly Step[]; wereSent: ReadonlySet<string>; checkContext: RunCheckContext },
  ): void {
    const { run } = record;
    const { assertHolds, tables, now } = checkContext;
    assertHolds(run.endedAt === now, `a run knows when it ended: ${run.id}`);
    const isFailed = run.state === "RUN_FAILED";
    assertHolds(
      record.deadLetters === (isFailed ? 1 : 0),
      `a run that failed is one dead letter: ${run.id} ${run.state} has ${record.deadLetters}`,
    );
    const callbacks = isFailed && run.settings.failureCallback ? 1 : 0;
    assertHolds(
      record.failureCallbacks === callbacks,
      `a failure is told, and nothing else: ${run.id} ${run.state}, ${record.failureCallbacks}`,
    );
    for (const id of record.messages) {
      const state = tables.messages.get(`${run.account}\n${id}`)?.state;
      assertHolds(state === "active" || wereSent.has(id), `nothing waits to be sent for a run that has ended: ${id} is ${state}`);
    }
    if (run.state === "RUN_SUCCESS" && isWorkflow(run.url) && !reusedRunIds.includes(run.runId)) this.#checkResult(record);
    if (run.invoker) this.#checkParent(record, { added, tables, cover: checkContext.cover });
  }

  #checkResult({ run, history }: RunRecord): void {
    const steps = history.toSorted((a, b) => a.position - b.position);
    const move = replay(getProgram(run.url), readHistory(steps));
    const expected = move.kind === "finish" ? formatResult(move.outs) : JSON.stringify(move);
    const isReturned = decodeText(run.body) === expected;
    this.#demand(isReturned, `a run returns what its workflow does: ${run.id} ${decodeText(run.body)} instead of ${expected}`);
  }

  /** The step that invoked a run knows of its end, in the same moment, if it has no result of its own. */
  #checkParent(record: RunRecord, observed: { added: readonly Step[]; tables: Tables; cover: (what: string) => void }): void {
    const { run } = record;
    const parent = this.#records.get(run.invoker?.run ?? "");
    const result = parent?.slots.get(`r${String(run.invoker?.step["stepId"])}`);
    // It may have ended so long ago that it is gone.
    if (!parent || !observed.tables.runs.has(`${run.account}\n${parent.run.id}`)) return;
    this.#demand(result !== undefined, `who invoked a run learns of its end: ${run.id} of ${parent.run.id}`);
    if (!result || !observed.added.includes(result)) return;
    observed.cover(parent.ended ? "child noted" : "child told");
    const told = JSON.parse(parseStep(result).out ?? "{}") as { body?: string; isCanceled: boolean; isFailed: boolean };
    const fits =
      told.isFailed === (run.state === "RUN_FAILED") &&
      told.isCanceled === (run.state === "RUN_CANCELED") &&
      told.body === (run.state === "RUN_SUCCESS" ? decodeText(run.body) : undefined);
    this.#demand(fits, `who invoked a run learns how it ended: ${run.id}`);
  }

  /** Nothing else is the result of an invocation. */
  #checkNotified(added: readonly Step[], endedNow: ReadonlySet<RunRecord>): void {
    for (const step of added) {
      if (step.head?.stepType !== "Invoke" || !isResult(step) || this.#records.get(step.run)?.inherited.has(parseStepKey(step.id)))
        continue;
      const children = [...endedNow].filter(
        ({ run }) => run.invoker?.run === step.run && `r${String(run.invoker.step["stepId"])}` === parseStepKey(step.id),
      );
      this.#demand(children.length === 1, `the end of a run is told by it alone: ${step.id} by ${children.length}`);
    }
  }

  /** A history has no gap, and its run and the rows beside it know how far it is. */
  #checkRecord(record: RunRecord, tables: Tables): void {
    const { run, history, ended } = record;
    const row = tables.runs.get(`${run.account}\n${run.id}`);
    if (!row) return;
    const isWhole = [...record.inherited].every((slot) => record.slots.has(slot));
    this.#demand(isWhole, `a resumed run keeps the results that there were: ${run.id} has ${record.results.join(" ")}`);
    const positions = history.map(({ position }) => position).sort((a, b) => a - b);
    const hasNoGap = positions.every((position, index) => position === index) && record.slots.size === history.length;
    this.#demand(hasNoGap, `a history has no gap: ${run.id} ${positions.join(" ")}, ${record.slots.size} slots`);
    const active = tables.activeRuns.get(`${run.account}\n${run.runId}`);
    this.#demand((active?.run === run.id) === !ended, `a run goes on until it ends: ${run.id} ${row.state}`);
    const counted = ended ? row.steps : active?.steps;
    this.#demand(counted === history.length, `steps are counted: ${run.id} ${counted} of ${history.length}`);
    if (!ended) this.#demand(active?.waiting === record.waiters.size, `steps that wait are counted: ${run.id} ${active?.waiting}`);
    if (!ended) return;
    this.#demand(record.waiters.size + record.notifications.size === 0, `nothing waits for a run that has ended: ${run.id}`);
  }

  /** What was answered is so. */
  #checkAnswers(
    { calls, result }: ObservedBatch,
    observed: { added: readonly Step[]; endedNow: ReadonlySet<RunRecord>; tables: Tables },
  ): void {
    calls.forEach(({ name, input }, index) => {
      const reply = result.replies[index];
      if (!reply || !("answer" in reply)) return;
      if (name === "notify") {
        const { notified, stored } = reply.answer as { notified: { messageId: string; waiter: { run: string } }[]; stored: boolean };
        const { body, account, ...rest } = input as CommandInput<"notify">;
        const out = Buffer.from(body).toString("base64");
        const results = observed.added.filter((step) => isResult(step) && step.head?.stepType === "Wait" && parseStep(step).out === out);
        for (const { messageId } of notified)
          this.#demand(
            results.some((step) => step.messageId === messageId),
            `who is said to be woken has the event: ${messageId}`,
          );
        if (!stored || !("runId" in rest)) return;
        const isKept = [...observed.tables.notifications.values()].some(
          (one) => one.account === account && decodeText(one.body) === decodeText(body),
        );
        const isOver = [...observed.endedNow].some(({ run }) => run.runId === rest.runId);
        this.#demand(isKept || isOver || results.length === 1, `an event that is said to be kept is kept: for ${rest.runId}`);
      }
      if (name === "resumeRun") {
        const { account, dlqId } = input as CommandInput<"resumeRun">;
        this.#demand(!observed.tables.deadLetters.has(`${account}\n${dlqId}`), `what is resumed is no dead letter any more: ${dlqId}`);
      }
      if (name === "finishRun" && (reply.answer as { finished: boolean }).finished) {
        const { runId } = input as CommandInput<"finishRun">;
        const hasEnded = [...observed.endedNow].some(({ run }) => run.runId === runId);
        this.#demand(hasEnded, `what is said to be finished has ended: ${runId}`);
      }
    });
  }

  /** A delivery carries the history up to its own step, and nothing after it. */
  #checkDelivery({ message: { run, id, body } }: Delivery): void {
    const record = run && this.#records.get(run.run);
    if (!run || !record || run.kind === "failure" || run.kind === "call") return;
    const steps = record.history.filter(({ position }) => position <= run.position).sort((a, b) => a.position - b.position);
    const own = steps.at(-1);
    const entries = steps.map(({ messageId, body: bytes, callType }) => {
      return { messageId, body: Buffer.from(bytes).toString("base64"), callType };
    });
    this.#demand(own?.messageId === id && parseStepKey(own.id) === run.stepKey, `a message carries a step of its own: ${id}`);
    const expected = run.kind === "result" ? decodeText(own?.body ?? new Uint8Array()) : JSON.stringify(entries);
    this.#demand(
      decodeText(body) === expected,
      `a delivery carries the history up to its step: ${id} ${decodeText(body)} instead of ${expected}`,
    );
  }
}

const isResult = (step: Step): boolean => parseStepKey(step.id).startsWith("r");
