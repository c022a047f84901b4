import type { AnswerOf, CommandName, InputOf } from "../core/commands.ts";
import type { ErrorCode } from "../core/errors.ts";
import { Refusal, errorCodes } from "../core/errors.ts";
import { noHands } from "../core/hands.ts";
import { limits } from "../core/limits.ts";
import type { Letter, Millis } from "../core/message.ts";
import { gather, type Look } from "./gather.ts";
import type { Queries } from "./queries.ts";
import type { BatchResult, Call, Desk, Haste, Reply, RunBatch, Store, Unsubscribe } from "./store.ts";
import { Outdated, Unavailable } from "./store.ts";

/** At most so many calls, and so many bytes of bodies, in one transaction. */
const maxCalls = 512;
export const maxBatchBytes = 16 * 1024 * 1024;

/** `bytes`: those of the bodies that the call carries. */
type Waiting = Call & { bytes: number; canWait: boolean; resolve(answer: never): void; reject(error: Error): void };

export type Parts = {
  runBatch: RunBatch;
  read: Queries;
  nextDueAt(): Promise<Millis | null>;
  /** Stores a change that means nothing. Rejects when that is not possible. */
  tryToStore?(): Promise<void>;
  /** Hears of what other nodes left due. */
  hearOthers?(listener: (at: Millis) => void): void;
  /** The same of accounts that were changed. */
  hearAccounts?(listener: () => void): void;
  tellAccounts?(): Promise<void>;
  forgetBefore?(time: Millis): Promise<void>;
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
    onDue: (listener) => group.onDue(listener),
    onAccounts: (listener) => group.onAccounts(listener),
    attach: (desk) => group.attach(desk),
    forgetBefore: async (time) => parts.forgetBefore?.(time),
    close: () => group.close(),
  };
}

/** Commands that change who may do what. */
const ofAccounts: ReadonlySet<CommandName> = new Set([
  ...(["createAccount", "changeAccount", "deleteAccount", "removeAccount", "rotateToken", "revokeToken"] as const),
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
  #trial: Promise<void> | null = null;
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
      this.#waiting.push({ name, input, bytes: bytesOf(input), canWait, resolve, reject });
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

  /** That a batch came through is no proof: a disk that is full takes one that changes nothing. */
  async takesChanges(): Promise<boolean> {
    if (!this.#isAway) return true;
    this.#trial ??= this.#try().finally(() => (this.#trial = null));
    await this.#trial;
    return !this.#isAway;
  }

  async #try(): Promise<void> {
    try {
      await this.#parts.tryToStore?.();
      this.#isAway = false;
    } catch {
      // It is still as it was.
    }
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
      return rejectAll(batch, error instanceof Outdated ? outdated(error) : unavailable(error, notKnown));
    }
    if (batch.length === 1) return rejectAll(batch, error);
    for (const call of batch) await this.#run([call]);
  }

  #tellDue(at: Millis): void {
    for (const listener of this.#listeners) listener(at);
  }
}

const notKnown = "whether this was stored is not known; ask again later";

/** What a caller is told while the storage cannot be reached. The cause is for our own eyes. */
const unavailable = (cause: Error, advice = "ask again later"): Refusal => away(cause, `the storage cannot be reached: ${advice}`);

/** What he is told by a node that newer ones have left behind. One of those takes it. */
const outdated = (cause: Error): Refusal =>
  away(cause, "the tables are of a newer version than this server, so nothing was stored; ask again later");

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

function nextBatch(waiting: Waiting[]): Waiting[] {
  let bytes = 0;
  let count = 0;
  for (const call of waiting) {
    bytes += call.bytes;
    if (count > 0 && (count === maxCalls || bytes > maxBatchBytes)) break;
    count++;
  }
  return waiting.splice(0, count);
}

/** The bytes of the bodies that a call carries. */
export function bytesOf(input: unknown): number {
  if (typeof input !== "object" || input === null) return 0;
  if ("letters" in input && Array.isArray(input.letters)) {
    let bytes = 0;
    // To a group it is as many messages as that has endpoints.
    for (const { body, group } of input.letters as readonly Pick<Letter, "body" | "group">[])
      bytes += (group === null ? 1 : limits.endpoints) * body.byteLength;
    return bytes;
  }
  return "body" in input && input.body instanceof Uint8Array ? input.body.byteLength : 0;
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
