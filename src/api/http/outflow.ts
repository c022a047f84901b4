import { Refusal } from "../../core/values/errors.ts";
import { memory } from "../../core/values/limits.ts";
import type { AccountId } from "../../core/model/message.ts";

/** Bytes of answers that an account may have on their way: some of the longest pages. */
const bytesOnTheirWay = 4 * memory.page;
/** Shorter answers are not counted: there are not enough connections for them to come to much. */
const counted = 64 * 1024;
/** So many answers to reads of one account are made at once: each may be as long as the longest page before anybody knows. */
const madeAtOnce = 4;

/**
 * Keeps long answers that are on their way within the memory there is. Whoever asks for many of them at once, or reads none
 * of them, is refused more for a while; other accounts do not feel it.
 */
export class Outflow {
  readonly #room: number;
  readonly #taken = new Map<AccountId, number>();
  /** Callbacks of answers that have begun and wait for room, by account. */
  readonly #roomless = new Map<AccountId, (() => void)[]>();
  /** Those that are being made, and who waits for one of their places. */
  readonly #making = new Map<AccountId, { count: number; waiting: (() => void)[] }>();

  constructor(room = bytesOnTheirWay) {
    this.#room = room;
  }

  /** Throws a `Refusal` when an account has as much on its way as it may have. */
  mustHaveRoom(account: AccountId): void {
    if (this.#hasRoom(account)) return;
    throw new Refusal("busy", "this account has as many long answers on their way as there is room for; read those first, and ask again");
  }

  /** Makes an answer when its turn has come. Throws a `Refusal` when there is no room for it then. */
  async inTurn<T>(account: AccountId, make: () => Promise<T>): Promise<T> {
    return this.#inPlace(account, () => {
      this.mustHaveRoom(account);
      return make();
    });
  }

  /**
   * Makes the next page of an answer that has begun, when there is room for it and its turn has come. The caller must call `gone` when the page has
   * left. `gone` is null for a short page.
   */
  async whenRoom<T>(
    account: AccountId,
    make: () => Promise<T>,
    lengthOf: (page: T) => number,
  ): Promise<{ page: T; gone: (() => void) | null }> {
    for (;;) {
      // Without a place among those that are being made: short answers continue while this one waits.
      if (!this.#hasRoom(account)) await this.#untilRoom(account);
      const made = await this.#inPlace(account, async () => {
        if (!this.#hasRoom(account)) return null;
        const page = await make();
        return { page, gone: this.hold(account, lengthOf(page)) };
      });
      if (made) return made;
    }
  }

  async #inPlace<T>(account: AccountId, make: () => Promise<T>): Promise<T> {
    const making = this.#making.get(account) ?? { count: 0, waiting: [] };
    this.#making.set(account, making);
    // Whoever ends hands its place on.
    if (making.count < madeAtOnce) making.count++;
    else await new Promise<void>((resolve) => making.waiting.push(resolve));
    try {
      return await make();
    } finally {
      const next = making.waiting.shift();
      if (next) next();
      else if (--making.count === 0) this.#making.delete(account);
    }
  }

  /** Counts an answer, if it is long: null otherwise. What it answers is to be called when the answer has gone, or its connection has. */
  hold(account: AccountId, bytes: number): (() => void) | null {
    if (bytes <= counted) return null;
    this.#add(account, bytes);
    return () => this.#add(account, -bytes);
  }

  #hasRoom(account: AccountId): boolean {
    return (this.#taken.get(account) ?? 0) < this.#room;
  }

  #untilRoom(account: AccountId): Promise<void> {
    return new Promise((resolve) => this.#roomless.set(account, [...(this.#roomless.get(account) ?? []), resolve]));
  }

  #add(account: AccountId, bytes: number): void {
    const taken = (this.#taken.get(account) ?? 0) + bytes;
    if (taken > 0) this.#taken.set(account, taken);
    else this.#taken.delete(account);
    if (!this.#hasRoom(account)) return;
    const waiting = this.#roomless.get(account) ?? [];
    this.#roomless.delete(account);
    for (const goOn of waiting) goOn();
  }
}
