import { Refusal } from "../../core/values/errors.ts";
import { memory } from "../../core/values/limits.ts";
import type { AccountId } from "../../core/model/message.ts";

/** Bytes of answers that an account may have on their way: some of the longest pages. */
const maxOutgoingBytes = 4 * memory.page;
/** Shorter answers are not counted: there are not enough connections for them to come to much. */
const minCountedBytes = 64 * 1024;
/** So many answers to reads of one account are made at once: each may be as long as the longest page before anybody knows. */
const maxConcurrentReads = 4;

/**
 * Keeps long answers that are on their way within the memory there is. Whoever asks for many of them at once, or reads none
 * of them, is refused more for a while; other accounts do not feel it.
 */
export class ResponseLimits {
  readonly #limit: number;
  readonly #taken = new Map<AccountId, number>();
  /** Callbacks of answers that have begun and wait for room, by account. */
  readonly #waitingForRoom = new Map<AccountId, (() => void)[]>();
  /** Those that are being made, and who waits for one of their places. */
  readonly #reads = new Map<AccountId, { count: number; waiting: (() => void)[] }>();

  constructor(limit = maxOutgoingBytes) {
    this.#limit = limit;
  }

  /** Throws a `Refusal` when an account has as much on its way as it may have. */
  checkRoom(account: AccountId): void {
    if (this.#hasRoom(account)) return;
    throw new Refusal("busy", "this account has as many long answers on their way as there is room for; read those first, and ask again");
  }

  /** Makes an answer when its turn has come. Throws a `Refusal` when there is no room for it then. */
  async runInTurn<T>(account: AccountId, make: () => Promise<T>): Promise<T> {
    return this.#withPlace(account, () => {
      this.checkRoom(account);
      return make();
    });
  }

  /**
   * Makes the next page of an answer that has begun, when there is room for it and its turn has come. The caller must call `gone` when the page has
   * left. `gone` is null for a short page.
   */
  async runWhenRoom<T>(
    account: AccountId,
    make: () => Promise<T>,
    measure: (page: T) => number,
  ): Promise<{ page: T; gone: (() => void) | null }> {
    for (;;) {
      // Without a place among those that are being made: short answers continue while this one waits.
      if (!this.#hasRoom(account)) await this.#waitForRoom(account);
      const result = await this.#withPlace(account, async () => {
        if (!this.#hasRoom(account)) return null;
        const page = await make();
        return { page, gone: this.reserve(account, measure(page)) };
      });
      if (result) return result;
    }
  }

  async #withPlace<T>(account: AccountId, make: () => Promise<T>): Promise<T> {
    const reads = this.#reads.get(account) ?? { count: 0, waiting: [] };
    this.#reads.set(account, reads);
    // Whoever ends hands its place on.
    if (reads.count < maxConcurrentReads) reads.count++;
    else await new Promise<void>((resolve) => reads.waiting.push(resolve));
    try {
      return await make();
    } finally {
      const next = reads.waiting.shift();
      if (next) next();
      else if (--reads.count === 0) this.#reads.delete(account);
    }
  }

  /** Counts an answer, if it is long: null otherwise. What it answers is to be called when the answer has gone, or its connection has. */
  reserve(account: AccountId, bytes: number): (() => void) | null {
    if (bytes <= minCountedBytes) return null;
    this.#add(account, bytes);
    return () => this.#add(account, -bytes);
  }

  #hasRoom(account: AccountId): boolean {
    return (this.#taken.get(account) ?? 0) < this.#limit;
  }

  #waitForRoom(account: AccountId): Promise<void> {
    return new Promise((resolve) => this.#waitingForRoom.set(account, [...(this.#waitingForRoom.get(account) ?? []), resolve]));
  }

  #add(account: AccountId, bytes: number): void {
    const taken = (this.#taken.get(account) ?? 0) + bytes;
    if (taken > 0) this.#taken.set(account, taken);
    else this.#taken.delete(account);
    if (!this.#hasRoom(account)) return;
    const waiting = this.#waitingForRoom.get(account) ?? [];
    this.#waitingForRoom.delete(account);
    for (const resume of waiting) resume();
  }
}
