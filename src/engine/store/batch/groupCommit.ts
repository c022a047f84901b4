import type { CommandResult, CommandName, CommandInput } from "../catalog/commands.ts";
import { passEffects } from "./effects.ts";
import { changesAccounts, hasCaller } from "../catalog/commands.ts";
import type { ErrorCode } from "../../core/values/errors.ts";
import { Refusal, errorCodes, makeUnavailable } from "../../core/values/errors.ts";
import { noCapacity } from "../../core/admission/capacity.ts";
import { countBodyBytes, weighCommand } from "../../core/node/weight.ts";
import type { Millis } from "../../core/values/basics.ts";
import { coalesce, type AfterNextPoll } from "./coalesce.ts";
import { createHoldInMemory } from "./holdInMemory.ts";
import { takeNextBatch } from "./nextBatch.ts";
import type { Queries } from "../catalog/queries.ts";
import { StorageHealth } from "./storageHealth.ts";
import { observeBatches } from "./observedBatches.ts";
import type {
  BatchResult,
  CommandCall,
  DeliverySink,
  ExecuteOptions,
  Hold,
  BatchObserver,
  CommandReply,
  RunBatch,
  Store,
  StoreUpkeep,
  Unsubscribe,
} from "../store.ts";
import { soleNode } from "../store.ts";
import { Interrupted, Outdated, Unavailable } from "../layout/storageErrors.ts";

/** The interval at which a store checks the batch in flight and the waiting calls. */
const tickInterval: Millis = 500;
/**
 * The number of ticks, 2 s, after which a batch is late. Until it ends, it is unknown whether the storage
 * takes changes.
 */
const doubtfulTicks = 4;
/**
 * The number of ticks, 5 s, after which a call that still waits for a batch is refused, if a caller waits
 * for its result. Together with the longest batch (`batchTimeout` on PostgreSQL), this is less than the time
 * within which a request is answered.
 */
const maxTicks = 10;

/**
 * `weight`: the cost of the call for a transaction, see `engine/core/node/weight.ts`. `ticks`: how long the
 * call has waited for a batch, in ticks. `calledAt`: when a publish was called, by the clock of the observer.
 */
type WaitingCall = CommandCall & {
  calledAt: Millis;
  weight: number;
  passedOver: number;
  canWait: boolean;
  ticks: number;
  resolve(result: never): void;
  reject(error: Error): void;
};

/** The functions of a storage from which a store is created. */
export type StoreBackend = {
  runBatch: RunBatch;
  read: Queries;
  nextDueAt(): Promise<Millis | null>;
  /**
   * Stores a change without effect, as durably as a batch. It writes at least this many bytes, for which the
   * storage needs additional room. Rejects if that is not possible.
   */
  probe?(bytes: number): Promise<void>;
  /** A monotonic clock. If it is missing, a storage that lacked room is probed without a delay. */
  elapsed?(): Millis;
  /** Waits for this many milliseconds. If it is missing, a batch may take any time, and calls wait for it. */
  pause?(time: Millis): Promise<void>;
  /** Calls the listener when another node left a row due. */
  onOtherNodesDue?(listener: (at: Millis) => void): void;
  /** Calls the listener when another node changed an account. */
  onAccountsChanged?(listener: () => void): void;
  notifyAccountsChanged?(): Promise<void>;
  /** Calls the listener when another node may have ended deliveries of this node. */
  onLeasesEnded?(listener: () => void): void;
  notifyLeasesEnded?(): void;
  forgetBefore?(time: Millis): Promise<void>;
  /** If it is missing, the hold is kept in memory. */
  hold?: Hold;
  /** If a part is missing, it does nothing. */
  upkeep?: Partial<StoreUpkeep>;
  /** If it is missing, a batch starts after the current turn of the event loop. */
  afterNextPoll?: AfterNextPoll;
  /**
   * Runs a function after the longest delay of calls with `canWait`. Returns a function that cancels this.
   * If it is missing, these calls are not delayed.
   */
  coalesceDelay?: (run: () => void) => () => void;
  close(): Promise<void>;
};

/** Returns a store that runs its calls in batches on a backend. */
export function createGroupCommitStore(backend: StoreBackend): Store {
  const { runBatch, observe } = observeBatches(backend.runBatch);
  const group = new GroupCommit({ ...backend, runBatch });
  return {
    execute: (name, input, options) => {
      const result = group.execute(name, input, options);
      return changesAccounts(name) ? group.withAccountNotification(result) : result;
    },
    read: backend.read,
    nextDueAt: () => backend.nextDueAt(),
    takesChanges: () => group.takesChanges(),
    isInDoubt: () => group.isInDoubt(),
    onDue: (listener) => group.onDue(listener),
    onAccounts: (listener) => group.onAccounts(listener),
    upkeep: { disk: null, ...soleNode, ...backend.upkeep },
    attach: (sink) => group.attach(sink),
    observe: (observer) => {
      observe(observer);
      group.observe(observer);
    },
    hold: backend.hold ?? createHoldInMemory(),
    forgetBefore: async (time) => backend.forgetBefore?.(time),
    close: () => group.close(),
  };
}

/**
 * Groups calls into batches. Calls that wait while one batch is being stored share the next one, so the
 * number of commits adapts to the load. A single caller gets its own commit at once, and hundreds of callers
 * under load share one.
 */
class GroupCommit {
  readonly #backend: StoreBackend;
  readonly #waiting: WaitingCall[] = [];
  #isRunning = false;
  readonly #listeners = new Set<(at: Millis) => void>();
  readonly #accountListeners = new Set<() => void>();
  #sink: DeliverySink | null = null;
  #observer: BatchObserver | null = null;
  #isStartScheduled = false;
  readonly #health: StorageHealth;
  /** How long the batch in flight has run, in ticks. */
  #batchTicks = 0;
  #isWatching = false;
  /** Ends the delay of calls that can wait, as each batch does; null if no call is delayed. */
  #cancelDelay: (() => void) | null = null;
  #closing: Promise<void> | null = null;
  #resolveEmpty: () => void = () => undefined;

  constructor(backend: StoreBackend) {
    this.#backend = backend;
    this.#health = new StorageHealth(backend);
    backend.onOtherNodesDue?.((at) => this.#notifyDue(at));
    backend.onAccountsChanged?.(() => this.#notifyAccountListeners());
    backend.onLeasesEnded?.(() => this.#sink?.renewLeases());
  }

  execute<N extends CommandName>(
    name: N,
    input: CommandInput<N>,
    { canWait = false }: ExecuteOptions = {},
  ): Promise<CommandResult<N>> {
    return new Promise((resolve, reject) => {
      if (this.#closing) return reject(new Refusal("stopping", "the server is stopping; retry later"));
      this.#waiting.push({
        name,
        input,
        calledAt: name === "publish" ? (this.#observer?.elapsed() ?? 0) : 0,
        weight: weighCommand(input),
        passedOver: 0,
        canWait,
        ticks: 0,
        resolve,
        reject,
      });
      if (canWait && this.#backend.coalesceDelay !== undefined)
        return this.#coalesce(this.#backend.coalesceDelay);
      this.#scheduleStart();
    });
  }

  /**
   * Schedules the next batch, which takes all calls that arrive before it starts. While a batch runs, nothing
   * is scheduled: its end calls this function again.
   */
  #scheduleStart(): void {
    if (this.#isStartScheduled || this.#isRunning) return;
    this.#isStartScheduled = true;
    const { afterNextPoll: afterPoll } = this.#backend;
    if (afterPoll === undefined) return queueMicrotask(() => this.#startBatch());
    coalesce(
      afterPoll,
      () => this.#waiting.length,
      () => this.#startBatch(),
    );
  }

  /** Delays calls that can wait, so that outcomes share the commit of the next publish. */
  #coalesce(delay: (run: () => void) => () => void): void {
    this.#cancelDelay ??= delay(() => {
      this.#cancelDelay = null;
      this.#startBatch();
    });
  }

  onDue(listener: (at: Millis) => void): Unsubscribe {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  onAccounts(listener: () => void): Unsubscribe {
    this.#accountListeners.add(listener);
    return () => this.#accountListeners.delete(listener);
  }

  /**
   * Resolves with the result of a command once other nodes have been notified of the changed account. A
   * failed notification does not fail the command.
   */
  async withAccountNotification<T>(result: Promise<T>): Promise<T> {
    try {
      return await result;
    } finally {
      this.#notifyAccountListeners();
      await this.#backend.notifyAccountsChanged?.().catch(() => undefined);
    }
  }

  #notifyAccountListeners(): void {
    for (const listener of this.#accountListeners) listener();
  }

  attach(sink: DeliverySink): void {
    this.#sink = sink;
  }

  observe(observer: BatchObserver): void {
    this.#observer = observer;
  }

  async takesChanges(): Promise<boolean> {
    return !this.#isBatchLate() && (await this.#health.takesChanges());
  }

  /** Also starts a probe, because it is possible that nothing calls `takesChanges`. */
  isInDoubt(): boolean {
    return this.#health.isInDoubt() || this.#isBatchLate();
  }

  #isBatchLate(): boolean {
    return this.#isRunning && this.#batchTicks > doubtfulTicks;
  }

  /** Checks the batch in flight twice a second while there is one. */
  async #watch(): Promise<void> {
    if (this.#isWatching || this.#backend.pause === undefined) return;
    this.#isWatching = true;
    while (this.#isRunning) {
      await this.#backend.pause(tickInterval);
      this.#batchTicks++;
      this.#refuseLateCallers();
    }
    this.#isWatching = false;
  }

  /**
   * Refuses calls that have waited too long. A refused call is removed from the queue first, so it is never
   * stored.
   */
  #refuseLateCallers(): void {
    const late: WaitingCall[] = [];
    const kept = this.#waiting.filter((call) => {
      const isLate = ++call.ticks > maxTicks && hasCaller(call.name);
      if (isLate) late.push(call);
      return !isLate;
    });
    if (late.length === 0) return;
    this.#waiting.splice(0, this.#waiting.length, ...kept);
    rejectAll(late, makeUnavailable("notStored", new Unavailable("no batch has taken the call for 5 s")));
  }

  close(): Promise<void> {
    if (this.#closing) return this.#closing;
    const empty = new Promise<void>((resolve) => {
      this.#resolveEmpty = resolve;
      if (!this.#isRunning && this.#waiting.length === 0) resolve();
    });
    queueMicrotask(() => this.#startBatch());
    return (this.#closing = empty.then(() => this.#backend.close()));
  }

  #startBatch(): void {
    this.#isStartScheduled = false;
    if (!this.#mayStart()) return;
    this.#isRunning = true;
    this.#cancelDelay?.();
    this.#cancelDelay = null;
    this.#batchTicks = 0;
    void this.#watch();
    void this.#runBatch(takeNextBatch(this.#waiting)).then(() => {
      this.#isRunning = false;
      if (this.#waiting.length > 0) this.#scheduleStart();
      else this.#resolveEmpty();
    });
  }

  #mayStart(): boolean {
    if (this.#isRunning || this.#waiting.length === 0) return false;
    return (
      this.#cancelDelay === null || this.#closing !== null || !this.#waiting.every(({ canWait }) => canWait)
    );
  }

  async #runBatch(batch: WaitingCall[]): Promise<void> {
    let result: BatchResult;
    try {
      const calls = batch.map(({ name, input }) => ({ name, input }));
      result = await this.#backend.runBatch(calls, this.#sink?.readCapacity() ?? noCapacity);
    } catch (error) {
      return this.#runSeparately(batch, error instanceof Error ? error : new Error(String(error)));
    }
    const mustRetry = (index: number): boolean => "later" in (result.replies[index] ?? {});
    const retried = batch.length > 1 ? batch.filter((_, index) => mustRetry(index)) : [];
    batch.forEach((call, index) => retried.includes(call) || settleCall(call, result.replies[index]));
    if (this.#sink) passEffects(result, this.#sink);
    if (this.#observer) reportPublishes(batch, result.replies, this.#observer);
    if (result.dueAt !== null) this.#notifyDue(result.dueAt);
    if (result.abortsElsewhere) this.#backend.notifyLeasesEnded?.();
    // These calls need rows that could not be loaded together with the rows of the other calls.
    for (const call of retried) await this.#runBatch([call]);
  }

  /**
   * Runs each call of a failed batch in its own transaction, because one call may be the cause. If the batch
   * may have been stored, its calls are rejected instead: the caller must decide whether to retry.
   */
  async #runSeparately(batch: WaitingCall[], error: Error): Promise<void> {
    if (error instanceof Unavailable) {
      this.#health.fail(
        error,
        batch.reduce((sum, { input }) => sum + countBodyBytes(input), 0),
      );
      if (error instanceof Outdated) return rejectAll(batch, makeUnavailable("outdated", error));
      const outcome = error instanceof Interrupted ? "notStored" : "unknown";
      return rejectAll(batch, makeUnavailable(outcome, error));
    }
    if (batch.length === 1) return rejectAll(batch, error);
    for (const call of batch) await this.#runBatch([call]);
  }

  #notifyDue(at: Millis): void {
    for (const listener of this.#listeners) listener(at);
  }
}

/** Returns the result of a read, or rejects with a refusal if the storage is unavailable. */
export function withUnavailableRefusal<T>(result: Promise<T>): Promise<T> {
  return result.catch((error: unknown) => {
    throw error instanceof Unavailable ? makeUnavailable("read", error) : error;
  });
}

function rejectAll(batch: readonly WaitingCall[], error: Error): void {
  for (const { reject } of batch) reject(error);
}

function reportPublishes(
  batch: readonly WaitingCall[],
  replies: readonly CommandReply[],
  observer: BatchObserver,
): void {
  for (const [index, { name, calledAt }] of batch.entries())
    if (name === "publish" && "answer" in (replies[index] ?? {})) observer.published(calledAt);
}

function settleCall({ name, resolve, reject }: WaitingCall, reply: CommandReply | undefined): void {
  if (!reply) return reject(new Error(`${name}: the batch returned no reply`));
  if ("answer" in reply) return resolve(reply.answer as never);
  if ("later" in reply) return reject(new Error(`${name}: needs more rows than one batch can load`));
  if ("failed" in reply) return reject(new Error(`${name} failed: ${reply.failed}`));
  reject(new Refusal(toErrorCode(reply.refused.code), reply.refused.message, reply.refused));
}

/** Returns the error code of a refusal that was passed as plain data. */
export const toErrorCode = (code: string): ErrorCode =>
  code in errorCodes ? (code as ErrorCode) : "invalid";
