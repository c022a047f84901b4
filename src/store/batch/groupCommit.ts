import type { AnswerOf, CommandName, InputOf } from "../../core/commands/index.ts";
import { hasCaller } from "../../core/commands/index.ts";
import type { ErrorCode } from "../../core/values/errors.ts";
import { Refusal, errorCodes } from "../../core/values/errors.ts";
import { noHands } from "../../core/admission/capacity.ts";
import type { Millis } from "../../core/model/message.ts";
import { weightOf } from "../../core/fairness/weight.ts";
import { gather, type Look } from "./coalesce.ts";
import { nextBatch } from "./nextBatch.ts";
import type { Queries } from "../queries/index.ts";
import type { BatchResult, Call, Desk, Haste, Hold, Reply, RunBatch, Store, Unsubscribe } from "../store.ts";
import { Interrupted, Outdated, Unavailable } from "../store.ts";

/** How often a store looks after a batch in flight and the calls behind it. */
const beat: Millis = 500;
/** A batch that takes longer than 2 s: until it ends, nobody knows whether the storage takes anything. */
const doubtfulBeats = 4;
/** A call that a caller waits for is refused if it has not joined a batch after 10 s. */
const mostBeats = 20;
/** The storage is probed at most this often. */
const probePause: Millis = 1_000;

/** `weight`: what the call costs a transaction, see `core/fairness/weight.ts`. `beats`: how long it has waited for a batch, in beats. */
type Waiting = Call & {
  weight: number;
  passed: number;
  canWait: boolean;
  beats: number;
  resolve(answer: never): void;
  reject(error: Error): void;
};

export type Parts = {
  runBatch: RunBatch;
  read: Queries;
  nextDueAt(): Promise<Millis | null>;
  /** Stores a change without a meaning, as durably as a batch. Rejects if that is not possible. */
  tryToStore?(): Promise<void>;
  /** Waits for this many milliseconds. If it is missing, a batch may take any time and calls wait without a limit. */
  pause?(time: Millis): Promise<void>;
  /** Hears of what other nodes left due. */
  hearOthers?(listener: (at: Millis) => void): void;
  /** The same of accounts that were changed. */
  hearAccounts?(listener: () => void): void;
  tellAccounts?(): Promise<void>;
  forgetBefore?(time: Millis): Promise<void>;
  hold?: Hold;
  /** Not given: a batch waits for nobody who comes in after this turn of the event loop. */
  look?: Look;
  /** For so long calls that can wait do, for the company of others; not at all where this is not given. */
  linger?: () => Promise<void>;
  close(): Promise<void>;
};

/** Makes a store of something that can run a batch. */
export function groupCommit(parts: Parts): Store {
  const group = new GroupCommit(parts);
  return {
    execute: (name, input, how) => {
      const answer = group.execute(name, input, how);
      return ofAccounts.has(name) ? group.tellingAccounts(answer) : answer;
    },
    read: parts.read,
    nextDueAt: () => parts.nextDueAt(),
    takesChanges: () => group.takesChanges(),
    isInDoubt: () => group.isInDoubt(),
    onDue: (listener) => group.onDue(listener),
    onAccounts: (listener) => group.onAccounts(listener),
    ...(parts.hold && { hold: parts.hold }),
    attach: (desk) => group.attach(desk),
    forgetBefore: async (time) => parts.forgetBefore?.(time),
    close: () => group.close(),
  };
}

/** Commands that change who may do what. */
const ofAccounts: ReadonlySet<CommandName> = new Set([
  ...(["createAccount", "changeAccount", "deleteAccount", "removeAccount", "rotateToken", "revokeToken", "noteStorage"] as const),
]);

/**
 * Whoever waits while one batch is on its way to the disk shares the next one, so the number of commits settles by
 * itself: one for a lone caller, at once; one for hundreds under load.
 */
class GroupCommit {
  readonly #parts: Parts;
  readonly #waiting: Waiting[] = [];
  #isRunning = false;
  readonly #listeners = new Set<(at: Millis) => void>();
  readonly #accountListeners = new Set<() => void>();
  #desk: Desk | null = null;
  #isPumping = false;
  /** The storage was away for a batch, or could not take it, and nothing shows that it is well again. */
  #isAway = false;
  #probe: Promise<void> | null = null;
  /** How long the batch in flight has run, in beats. */
  #batchBeats = 0;
  #isBeating = false;
  #isLingering = false;
  #closing: Promise<void> | null = null;
  #emptied: () => void = () => undefined;

  constructor(parts: Parts) {
    this.#parts = parts;
    parts.hearOthers?.((at) => this.#tellDue(at));
    parts.hearAccounts?.(() => this.#hearAccounts());
  }

  execute<N extends CommandName>(name: N, input: InputOf<N>, { canWait = false }: Haste = {}): Promise<AnswerOf<N>> {
    return new Promise((resolve, reject) => {
      if (this.#closing) return reject(new Refusal("stopping", "the server is stopping; ask again"));
      this.#waiting.push({ name, input, weight: weightOf(input), passed: 0, canWait, beats: 0, resolve, reject });
      if (canWait && this.#parts.linger !== undefined) return void this.#linger(this.#parts.linger);
      this.#pumpSoon();
    });
  }

  /** Whatever is asked until then goes along. While a batch runs there is nothing to begin: its end comes back here. */
  #pumpSoon(): void {
    if (this.#isPumping || this.#isRunning) return;
    this.#isPumping = true;
    const { look } = this.#parts;
    if (look === undefined) return queueMicrotask(() => this.#pump());
    gather(
      look,
      () => this.#waiting.length,
      () => this.#pump(),
    );
  }

  /** Half the commits of a quiet server are saved when outcomes ride along with what is published next. */
  async #linger(pause: () => Promise<void>): Promise<void> {
    if (this.#isLingering) return;
    this.#isLingering = true;
    await pause();
    this.#isLingering = false;
    this.#pump();
  }

  onDue(listener: (at: Millis) => void): Unsubscribe {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  onAccounts(listener: () => void): Unsubscribe {
    this.#accountListeners.add(listener);
    return () => this.#accountListeners.delete(listener);
  }

  /** Whoever asked for the change has its answer once the others were told. That they were not is no fault of the change. */
  async tellingAccounts<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } finally {
      this.#hearAccounts();
      await this.#parts.tellAccounts?.().catch(() => undefined);
    }
  }

  #hearAccounts(): void {
    for (const listener of this.#accountListeners) listener();
  }

  attach(desk: Desk): void {
    this.#desk = desk;
  }

  /** A batch that succeeds proves nothing: a full disk accepts one that changes nothing. */
  async takesChanges(): Promise<boolean> {
    if (this.#isLate()) return false;
    if (!this.#isAway) return true;
    this.#probe ??= this.#tryToStore();
    await this.#probe;
    return !this.#isAway;
  }

  /** Also begins to find out: nobody else may ask whether it takes changes. */
  isInDoubt(): boolean {
    if (this.#isAway) this.#probe ??= this.#tryToStore();
    return this.#isAway || this.#isLate();
  }

  #isLate(): boolean {
    return this.#isRunning && this.#batchBeats > doubtfulBeats;
  }

  async #tryToStore(): Promise<void> {
    try {
      await this.#parts.tryToStore?.();
      this.#isAway = false;
    } catch {
      // The storage is still in doubt.
    }
    void this.#parts.pause?.(probePause).then(() => (this.#probe = null));
    if (this.#parts.pause === undefined) queueMicrotask(() => (this.#probe = null));
  }

  /** Looks after the batch in flight, twice a second, as long as there is one. */
  async #watch(): Promise<void> {
    if (this.#isBeating || this.#parts.pause === undefined) return;
    this.#isBeating = true;
    while (this.#isRunning) {
      await this.#parts.pause(beat);
      this.#batchBeats++;
      this.#refuseLateCallers();
    }
    this.#isBeating = false;
  }

  /** A refused call has left the queue first, so it can never be stored afterwards. */
  #refuseLateCallers(): void {
    const late: Waiting[] = [];
    const kept = this.#waiting.filter((call) => {
      const isLate = ++call.beats > mostBeats && hasCaller(call.name);
      if (isLate) late.push(call);
      return !isLate;
    });
    if (late.length === 0) return;
    this.#waiting.splice(0, this.#waiting.length, ...kept);
    rejectAll(late, unavailable(new Unavailable("the batch in flight has taken longer than 10 s"), notStored));
  }

  close(): Promise<void> {
    if (this.#closing) return this.#closing;
    const empty = new Promise<void>((resolve) => {
      this.#emptied = resolve;
      if (!this.#isRunning && this.#waiting.length === 0) resolve();
    });
    queueMicrotask(() => this.#pump());
    return (this.#closing = empty.then(() => this.#parts.close()));
  }

  #pump(): void {
    this.#isPumping = false;
    if (!this.#mayBegin()) return;
    this.#isRunning = true;
    this.#batchBeats = 0;
    void this.#watch();
    void this.#run(nextBatch(this.#waiting)).then(() => {
      this.#isRunning = false;
      if (this.#waiting.length > 0) this.#pumpSoon();
      else this.#emptied();
    });
  }

  #mayBegin(): boolean {
    if (this.#isRunning || this.#waiting.length === 0) return false;
    return !this.#isLingering || this.#closing !== null || !this.#waiting.every(({ canWait }) => canWait);
  }

  async #run(batch: Waiting[]): Promise<void> {
    let result: BatchResult;
    try {
      const calls = batch.map(({ name, input }) => ({ name, input }));
      result = await this.#parts.runBatch(calls, this.#desk?.hands() ?? noHands);
    } catch (error) {
      return this.#runApart(batch, error instanceof Error ? error : new Error(String(error)));
    }
    const isLater = (index: number): boolean => "later" in (result.replies[index] ?? {});
    const later = batch.length > 1 ? batch.filter((_, index) => isLater(index)) : [];
    batch.forEach((call, index) => later.includes(call) || answer(call, result.replies[index]));
    for (const what of result.faults) this.#desk?.fault(what);
    for (const delivery of result.deliveries) this.#desk?.deliver(delivery);
    for (const held of result.calledOff) this.#desk?.callOff(held);
    if (result.dueAt !== null) this.#tellDue(result.dueAt);
    // It needs more than there was room for among the others.
    for (const call of later) await this.#run([call]);
  }

  /**
   * What cannot be stored together may be the fault of one: each gets its own transaction, and its own error. Not when
   * it may have been stored all the same: whoever asked must know, and ask again if a second time does no harm.
   */
  async #runApart(batch: Waiting[], error: Error): Promise<void> {
    if (error instanceof Unavailable) {
      this.#isAway = true;
      if (error instanceof Outdated) return rejectAll(batch, outdated(error));
      return rejectAll(batch, unavailable(error, error instanceof Interrupted ? notStored : notKnown));
    }
    if (batch.length === 1) return rejectAll(batch, error);
    for (const call of batch) await this.#run([call]);
  }

  #tellDue(at: Millis): void {
    for (const listener of this.#listeners) listener(at);
  }
}

const notKnown = "the request may or may not have been stored; check before you retry";
const notStored = "nothing was stored; retry later";

/** The refusal of a request while the storage is unavailable. The cause is for the log only. */
const unavailable = (cause: Error, advice = "retry later"): Refusal => away(cause, `storage unavailable: ${advice}`);

/** The refusal of a node whose version is too old for the tables. Newer nodes accept the request. */
const outdated = (cause: Error): Refusal =>
  away(cause, "storage unavailable: the tables are those of another version than this server; nothing was stored; retry later");

function away(cause: Error, message: string): Refusal {
  const refusal = new Refusal("unavailable", message);
  refusal.cause = cause;
  return refusal;
}

/** The answer to a read, or the refusal that says that there can be none now. */
export function orUnavailable<T>(answer: Promise<T>): Promise<T> {
  return answer.catch((error: unknown) => {
    throw error instanceof Unavailable ? unavailable(error) : error;
  });
}

function rejectAll(batch: readonly Waiting[], error: Error): void {
  for (const { reject } of batch) reject(error);
}

function answer({ name, resolve, reject }: Waiting, reply: Reply | undefined): void {
  if (!reply) return reject(new Error(`${name}: no reply came back`));
  if ("answer" in reply) return resolve(reply.answer as never);
  if ("later" in reply) return reject(new Error(`${name}: needs more than one batch can load`));
  if ("failed" in reply) return reject(new Error(`${name} failed: ${reply.failed}`));
  reject(new Refusal(codeOf(reply.refused.code), reply.refused.message, reply.refused));
}

/** The code of a refusal that was on its way as plain data. */
export const codeOf = (code: string): ErrorCode => (code in errorCodes ? (code as ErrorCode) : "invalid");
