import type { InputOf } from "../../src/core/commands/index.ts";
import type { Delivery, Envelope, MessageState } from "../../src/core/model/message.ts";
import type { Retention } from "../../src/core/commands/retention.ts";
import type { Run, Step } from "../../src/core/model/run.ts";
import type { Case, Demand } from "./batch.ts";
import { resultOf } from "./endpoints.ts";
import { isWorkflow, programOf, replay, toldBy } from "./programs.ts";
import type { Told } from "./programs.ts";
import { namesUsedAgain } from "./runClients.ts";
import type { Tables } from "./changes.ts";

type Court = { demand: Demand; tables: Tables; now: number; retention: Retention; happens: (what: string) => void };

/** What is known of one run. */
class Book {
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

const slotIn = (id: string): string => id.slice(id.indexOf("/") + 1);
const textOf = (body: Uint8Array): string => new TextDecoder().decode(body);
const toldIn = (step: Step): Told => JSON.parse(textOf(step.body)) as Told;

/** Workflow runs: their histories, their one end, and what goes with it. It is told what was asked and sees the rows. */
export class Runs {
  readonly #books = new Map<string, Book>();
  /** By account: the name of the last run that has ended, if no other one will have it. */
  readonly #endedNames = new Map<string, string>();
  #demand: Demand = () => undefined;

  judge(of: Case, court: Court): void {
    const { changes } = of;
    this.#demand = court.demand;
    if (changes.runs.length + changes.steps.length + changes.waiters.length + changes.notifications.length > 0 || ofRuns(of)) {
      const touched = new Set<Book>();
      const endedNow = this.#noteRuns(of, court, touched);
      const added = this.#noteSteps(of, { endedNow, touched });
      this.#noteMessages(of, { endedNow, touched });
      this.#noteWaiters(of, { added, endedNow, now: court.now });
      this.#noteNotifications(of, { added, endedNow, happens: court.happens });
      this.#checkDeadLetters(of, endedNow);
      const wereSent = new Set(changes.messages.flatMap(({ before }) => (before?.state === "active" ? before.id : [])));
      for (const book of endedNow) this.#checkEnd(book, { added, wereSent, court });
      this.#checkTold(added, endedNow);
      for (const book of touched) this.#checkBook(book, court.tables);
      this.#checkAnswers(of, { added, endedNow, tables: court.tables });
    }
    for (const delivery of of.result.deliveries) this.#checkDelivery(delivery);
  }

  /** An endpoint runs a step. */
  ran(run: string, stepId: number): void {
    this.#demand(
      !this.#books.get(run)?.inherited.has(`r${stepId}`),
      `a resumed run repeats no step that has its result: ${stepId} of ${run}`,
    );
  }

  endedRun(account: string): string | null {
    return this.#endedNames.get(account) ?? null;
  }

  checkQuiet(tables: Tables): void {
    for (const { run, ended } of this.#books.values()) this.#demand(ended, `every run ends: ${run.id} ${run.runId} has not`);
    const left = tables.activeRuns.size + tables.waiters.size + tables.notifications.size;
    this.#demand(left === 0, `nothing stays behind of runs: ${left} rows`);
  }

  #noteRuns({ changes, calls, result }: Case, { now, retention, happens }: Court, touched: Set<Book>): Set<Book> {
    const endedNow = new Set<Book>();
    for (const { before, after } of changes.runs) {
      if (!after) {
        const old = before?.endedAt !== null && (before?.endedAt ?? now) < now - retention.log;
        this.#demand(old && calls.some(({ name }) => name === "expire"), `a run is kept for its time: ${before?.id}`);
        continue;
      }
      const book = this.#books.get(after.id) ?? new Book(after);
      this.#demand((before === undefined) === !this.#books.has(after.id), `a run begins once: ${after.id}`);
      if (!before && after.origin) this.#inherit(book, after.origin, { calls, result }, happens);
      this.#books.set(after.id, book);
      touched.add(book);
      if (book.ended) this.#demand(book.run.state === after.state && book.run.endedAt === after.endedAt, `a run ends once: ${after.id}`);
      if (!book.ended && after.state !== "RUN_STARTED") {
        book.ended = true;
        endedNow.add(book);
        if (!namesUsedAgain.includes(after.runId)) this.#endedNames.set(after.account, after.runId);
        happens(after.state);
      }
      book.run = after;
    }
    return endedNow;
  }

  #inherit(book: Book, origin: string, { calls, result }: Pick<Case, "calls" | "result">, happens: (what: string) => void): void {
    const older = this.#books.get(origin);
    const isResumed = calls.some(({ name, input }, index) => {
      const reply = result.replies[index];
      if (name !== "resumeRun" || !reply || !("answer" in reply)) return false;
      return (reply.answer as { runId: string }).runId === book.run.runId && (input as InputOf<"resumeRun">).from === "failure";
    });
    this.#demand(older?.run.state === "RUN_FAILED", `only a run that has failed is resumed: ${origin}`);
    happens(isResumed ? "resumed" : "restarted");
    if (isResumed && older) book.inherited = new Set(older.results);
  }

  /** Those that were added. */
  #noteSteps({ changes, calls }: Case, { endedNow, touched }: { endedNow: ReadonlySet<Book>; touched: Set<Book> }): Step[] {
    const added: Step[] = [];
    for (const { before, after } of changes.steps) {
      const row = after ?? before;
      const book = row && this.#books.get(row.run);
      if (!row || !book) {
        this.#demand(false, `a step belongs to a run: ${row?.id}`);
        continue;
      }
      if (!after) {
        this.#demand(book.ended && calls.some(({ name }) => name === "expire"), `a history is kept: ${row.id}`);
        continue;
      }
      this.#demand(before === undefined, `a history is only added to: ${after.id}`);
      const isNoted = after.head?.stepType === "Invoke" && after.head.stepId > 0;
      this.#demand(!book.ended || endedNow.has(book) || isNoted, `a run that has ended takes no steps: ${after.id}`);
      book.history.push(after);
      book.slots.set(slotIn(after.id), after);
      touched.add(book);
      added.push(after);
    }
    return added;
  }

  #noteMessages({ changes, calls }: Case, { endedNow, touched }: { endedNow: ReadonlySet<Book>; touched: Set<Book> }): void {
    for (const { after } of changes.envelopes) if (after?.run?.kind === "failure") this.#noteFailureCallback(after, calls);
    const reported = new Set(calls.flatMap(({ name, input }) => (name === "settle" ? [(input as { messageId: string }).messageId] : [])));
    const hasClaim = calls.some(({ name }) => name === "claim");
    const givenBack = calls.some(({ name }) => name === "giveBack");
    for (const { before, after } of changes.messages) {
      const row: MessageState | undefined = after ?? before;
      const book = row && row.run !== null ? this.#books.get(row.run) : undefined;
      if (!row || !book) continue;
      touched.add(book);
      if (after) {
        const isNew = !book.messages.has(row.id);
        this.#demand(!isNew || !book.ended || endedNow.has(book), `nothing is sent anew for a run that has ended: ${row.id}`);
        const goesOut = after.state !== "active" || after.attempts !== before?.attempts;
        this.#demand(!goesOut || !book.ended || endedNow.has(book), `nothing is sent again for a run that has ended: ${row.id}`);
        book.messages.add(row.id);
        continue;
      }
      book.messages.delete(row.id);
      const isOver = before?.state !== "active" || reported.has(row.id) || hasClaim || (givenBack && book.ended);
      this.#demand(isOver, `what is being sent for a run is left to arrive: ${row.id}`);
    }
  }

  #noteFailureCallback({ run, id }: Envelope, calls: Case["calls"]): void {
    const book = run && this.#books.get(run.run);
    if (!book) return;
    book.failureCallbacks++;
    const isRepeated = calls.some(({ name }) => name === "repeatFailureCallback");
    this.#demand(book.failureCallbacks === 1 || isRepeated, `a failure is told once: ${id} of ${book.run.id}`);
  }

  #noteWaiters({ changes }: Case, of: { added: readonly Step[]; endedNow: ReadonlySet<Book>; now: number }): void {
    for (const { before, after } of changes.waiters) {
      const row = after ?? before;
      const book = row && this.#books.get(row.run);
      if (!row || !book) continue;
      const result = book.slots.get(`r${slotIn(row.id)}`);
      if (after) {
        this.#demand(result === undefined, `what waits has no result yet: ${row.id}`);
        const dueAt = after.kind === "invoke" ? null : after.createdAt + Number.parseInt(after.timeout, 10) * 1000;
        this.#demand(after.dueAt === dueAt, `every wait but for a run has the time it asked for: ${row.id}`);
        book.waiters.add(row.id);
        continue;
      }
      book.waiters.delete(row.id);
      this.#demand(result !== undefined || book.ended, `a wait ends with a result, or with its run: ${row.id}`);
      if (!result || !of.added.includes(result) || row.kind === "invoke") continue;
      const { waitTimeout } = toldIn(result);
      this.#demand(!waitTimeout || (row.dueAt ?? Infinity) <= of.now, `a wait has the time it asked for: ${row.id}`);
    }
  }

  #noteNotifications(
    { changes }: Case,
    { added, endedNow, happens }: { added: readonly Step[]; endedNow: ReadonlySet<Book>; happens: (what: string) => void },
  ): void {
    this.#noteTaken(changes.notifications, { added, endedNow, happens });
    for (const step of added.filter(isResult)) {
      const { out } = toldIn(step);
      const left = [...(this.#books.get(step.run)?.notifications.values() ?? [])];
      this.#demand(out === undefined || !left.includes(out), `an event that is taken is kept no more: ${step.id}`);
    }
  }

  #noteTaken(
    changed: Case["changes"]["notifications"],
    { added, endedNow, happens }: { added: readonly Step[]; endedNow: ReadonlySet<Book>; happens: (what: string) => void },
  ): void {
    for (const { before, after } of changed) {
      const row = after ?? before;
      const book = row && this.#books.get(row.run);
      if (!row || !book) continue;
      if (after) {
        happens("event kept");
        book.notifications.set(row.id, Buffer.from(row.body).toString("base64"));
        continue;
      }
      book.notifications.delete(row.id);
      const out = Buffer.from(row.body).toString("base64");
      const taken = added.filter((step) => step.run === row.run && isResult(step) && toldIn(step).out === out);
      if (taken.length > 0) happens("event taken");
      this.#demand(taken.length === 1 || endedNow.has(book), `an event that was kept is taken once: ${row.id}`);
    }
  }

  #checkDeadLetters({ changes }: Case, endedNow: ReadonlySet<Book>): void {
    for (const { before, after } of changes.deadLetters) {
      if (!after?.run || before) continue;
      const book = this.#books.get(after.run.key);
      if (book) book.deadLetters++;
      const fits = book?.run.state === "RUN_FAILED" && endedNow.has(book) && book.run.failure?.dlqId === after.id;
      this.#demand(fits, `a run fails with one dead letter: ${after.id} of ${after.run.key}`);
    }
  }

  #checkEnd(book: Book, { added, wereSent, court }: { added: readonly Step[]; wereSent: ReadonlySet<string>; court: Court }): void {
    const { run } = book;
    const { demand, tables, now } = court;
    demand(run.endedAt === now, `a run knows when it ended: ${run.id}`);
    const isFailed = run.state === "RUN_FAILED";
    demand(book.deadLetters === (isFailed ? 1 : 0), `a run that failed is one dead letter: ${run.id} ${run.state} has ${book.deadLetters}`);
    const callbacks = isFailed && run.settings.failureCallback ? 1 : 0;
    demand(book.failureCallbacks === callbacks, `a failure is told, and nothing else: ${run.id} ${run.state}, ${book.failureCallbacks}`);
    for (const id of book.messages) {
      const state = tables.messages.get(`${run.account}\n${id}`)?.state;
      demand(state === "active" || wereSent.has(id), `nothing waits to be sent for a run that has ended: ${id} is ${state}`);
    }
    if (run.state === "RUN_SUCCESS" && isWorkflow(run.url) && !namesUsedAgain.includes(run.runId)) this.#checkResult(book);
    if (run.invoker) this.#checkParent(book, { added, tables, happens: court.happens });
  }

  #checkResult({ run, history }: Book): void {
    const steps = history.toSorted((a, b) => a.position - b.position);
    const move = replay(programOf(run.url), toldBy(steps));
    const expected = move.kind === "finish" ? resultOf(move.outs) : JSON.stringify(move);
    this.#demand(
      textOf(run.body) === expected,
      `a run returns what its workflow does: ${run.id} ${textOf(run.body)} instead of ${expected}`,
    );
  }

  /** The step that invoked a run knows of its end, in the same moment, if it has no result of its own. */
  #checkParent(book: Book, of: { added: readonly Step[]; tables: Tables; happens: (what: string) => void }): void {
    const { run } = book;
    const parent = this.#books.get(run.invoker?.run ?? "");
    const result = parent?.slots.get(`r${String(run.invoker?.step["stepId"])}`);
    // It may have ended so long ago that it is gone.
    if (!parent || !of.tables.runs.has(`${run.account}\n${parent.run.id}`)) return;
    this.#demand(result !== undefined, `who invoked a run learns of its end: ${run.id} of ${parent.run.id}`);
    if (!result || !of.added.includes(result)) return;
    of.happens(parent.ended ? "child noted" : "child told");
    const told = JSON.parse(toldIn(result).out ?? "{}") as { body?: string; isCanceled: boolean; isFailed: boolean };
    const fits =
      told.isFailed === (run.state === "RUN_FAILED") &&
      told.isCanceled === (run.state === "RUN_CANCELED") &&
      told.body === (run.state === "RUN_SUCCESS" ? textOf(run.body) : undefined);
    this.#demand(fits, `who invoked a run learns how it ended: ${run.id}`);
  }

  /** Nothing else is the result of an invocation. */
  #checkTold(added: readonly Step[], endedNow: ReadonlySet<Book>): void {
    for (const step of added) {
      if (step.head?.stepType !== "Invoke" || !isResult(step) || this.#books.get(step.run)?.inherited.has(slotIn(step.id))) continue;
      const children = [...endedNow].filter(
        ({ run }) => run.invoker?.run === step.run && `r${String(run.invoker.step["stepId"])}` === slotIn(step.id),
      );
      this.#demand(children.length === 1, `the end of a run is told by it alone: ${step.id} by ${children.length}`);
    }
  }

  /** A history has no gap, and its run and the rows beside it know how far it is. */
  #checkBook(book: Book, tables: Tables): void {
    const { run, history, ended } = book;
    const row = tables.runs.get(`${run.account}\n${run.id}`);
    if (!row) return;
    const isWhole = [...book.inherited].every((slot) => book.slots.has(slot));
    this.#demand(isWhole, `a resumed run keeps the results that there were: ${run.id} has ${book.results.join(" ")}`);
    const positions = history.map(({ position }) => position).sort((a, b) => a - b);
    this.#demand(
      positions.every((position, index) => position === index) && book.slots.size === history.length,
      `a history has no gap: ${run.id} ${positions.join(" ")}, ${book.slots.size} slots`,
    );
    const active = tables.activeRuns.get(`${run.account}\n${run.runId}`);
    this.#demand((active?.run === run.id) === !ended, `a run goes on until it ends: ${run.id} ${row.state}`);
    const counted = ended ? row.steps : active?.steps;
    this.#demand(counted === history.length, `steps are counted: ${run.id} ${counted} of ${history.length}`);
    if (!ended) this.#demand(active?.waiting === book.waiters.size, `steps that wait are counted: ${run.id} ${active?.waiting}`);
    if (!ended) return;
    this.#demand(book.waiters.size + book.notifications.size === 0, `nothing waits for a run that has ended: ${run.id}`);
  }

  /** What was answered is so. */
  #checkAnswers({ calls, result }: Case, of: { added: readonly Step[]; endedNow: ReadonlySet<Book>; tables: Tables }): void {
    calls.forEach(({ name, input }, index) => {
      const reply = result.replies[index];
      if (!reply || !("answer" in reply)) return;
      if (name === "notify") {
        const { notified, stored } = reply.answer as { notified: { messageId: string; waiter: { run: string } }[]; stored: boolean };
        const { body, account, ...rest } = input as InputOf<"notify">;
        const out = Buffer.from(body).toString("base64");
        const results = of.added.filter((step) => isResult(step) && step.head?.stepType === "Wait" && toldIn(step).out === out);
        for (const { messageId } of notified)
          this.#demand(
            results.some((step) => step.messageId === messageId),
            `who is said to be woken has the event: ${messageId}`,
          );
        if (!stored || !("runId" in rest)) return;
        const isKept = [...of.tables.notifications.values()].some((one) => one.account === account && textOf(one.body) === textOf(body));
        const isOver = [...of.endedNow].some(({ run }) => run.runId === rest.runId);
        this.#demand(isKept || isOver || results.length === 1, `an event that is said to be kept is kept: for ${rest.runId}`);
      }
      if (name === "resumeRun") {
        const { account, dlqId } = input as InputOf<"resumeRun">;
        this.#demand(!of.tables.deadLetters.has(`${account}\n${dlqId}`), `what is resumed is no dead letter any more: ${dlqId}`);
      }
      if (name === "finishRun" && (reply.answer as { finished: boolean }).finished) {
        const { runId } = input as InputOf<"finishRun">;
        this.#demand(
          [...of.endedNow].some(({ run }) => run.runId === runId),
          `what is said to be finished has ended: ${runId}`,
        );
      }
    });
  }

  /** A delivery carries the history up to its own step, and nothing after it. */
  #checkDelivery({ message: { run, id, body } }: Delivery): void {
    const book = run && this.#books.get(run.run);
    if (!run || !book || run.kind === "failure" || run.kind === "call") return;
    const steps = book.history.filter(({ position }) => position <= run.position).sort((a, b) => a.position - b.position);
    const own = steps.at(-1);
    const entries = steps.map(({ messageId, body: bytes, callType }) => {
      return { messageId, body: Buffer.from(bytes).toString("base64"), callType };
    });
    this.#demand(own?.messageId === id && slotIn(own.id) === run.slot, `a message carries a step of its own: ${id}`);
    const expected = run.kind === "result" ? textOf(own?.body ?? new Uint8Array()) : JSON.stringify(entries);
    this.#demand(textOf(body) === expected, `a delivery carries the history up to its step: ${id} ${textOf(body)} instead of ${expected}`);
  }
}

const isResult = (step: Step): boolean => slotIn(step.id).startsWith("r");

/** Does a batch concern runs, besides their own rows? */
const ofRuns = ({ changes }: Case): boolean =>
  changes.messages.some(({ before, after }) => (after ?? before)?.run !== null) ||
  changes.deadLetters.some(({ after }) => after?.run !== undefined) ||
  changes.envelopes.some(({ after }) => after?.run !== undefined);
