import { Refusal } from "../../engine/core/values/errors.ts";
import { memory } from "../../engine/core/values/limits.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";

/** The maximum number of bytes of responses in flight for an account, a few of the longest pages. */
const maxOutgoingBytes = 4 * memory.page;
/** Shorter responses are not counted. There are too few connections for them to need much memory. */
const minCountedBytes = 64 * 1024;
/**
 * The maximum number of reads of one account that run at once. Until the length of a response is known, it
 * may be as long as the longest page.
 */
const maxConcurrentReads = 4;

/**
 * Limits the memory of long responses in flight. If an account requests many long responses at once, or does
 * not read them, its further requests are refused until there is room. Other accounts are not affected.
 */
export class ResponseLimits {
  readonly #limit: number;
  readonly #taken = new Map<AccountId, number>();
  /** Callbacks of started responses that wait for room, by account. */
  readonly #waitingForRoom = new Map<AccountId, (() => void)[]>();
  /** The number of reads that run, and the reads that wait for one of their slots, by account. */
  readonly #reads = new Map<AccountId, { count: number; waiting: (() => void)[] }>();

  constructor(limit = maxOutgoingBytes) {
    this.#limit = limit;
  }

  /** Throws `Refusal` if an account is at capacity for long responses. */
  assertRoom(account: AccountId): void {
    if (this.#hasRoom(account)) return;
    throw new Refusal("busy", "account at capacity for long responses; read those in flight, then retry");
  }

  /** Makes a response in its turn. Throws `Refusal` if there is no room for it then. */
  async runInTurn<T>(account: AccountId, make: () => Promise<T>): Promise<T> {
    return this.#withPlace(account, () => {
      this.assertRoom(account);
      return make();
    });
  }

  /**
   * Makes the next page of a started response, in its turn and when there is room for it. The caller must
   * call `gone` when the page has been sent. `gone` is null for a short page.
   */
  async runWhenRoom<T>(
    account: AccountId,
    make: () => Promise<T>,
    measure: (page: T) => number,
  ): Promise<{ page: T; gone: (() => void) | null }> {
    for (;;) {
      // A response that waits for room takes no slot among the running reads, so short responses continue.
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
    // A read that finishes passes its slot to the next one.
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

  /**
   * Counts a response if it is long. Returns a function to call when the response has been sent or its
   * connection has closed, or null for a short response.
   */
  reserve(account: AccountId, bytes: number): (() => void) | null {
    if (bytes <= minCountedBytes) return null;
    this.#add(account, bytes);
    return () => this.#add(account, -bytes);
  }

  #hasRoom(account: AccountId): boolean {
    return (this.#taken.get(account) ?? 0) < this.#limit;
  }

  #waitForRoom(account: AccountId): Promise<void> {
    return new Promise((resolve) =>
      this.#waitingForRoom.set(account, [...(this.#waitingForRoom.get(account) ?? []), resolve]),
    );
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
