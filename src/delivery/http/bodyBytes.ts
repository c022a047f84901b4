import { readLaneAccount } from "../../core/admission/capacity.ts";
import type { AccountId } from "../../core/model/message.ts";
import { freeForResponses, hasResponseRoom } from "../../core/fairness/responseRoom.ts";

/** Memory for the body of one response. It is held until the outcome of its attempt is stored. */
export type ResponseRoom = {
  /** Takes bytes that have been read already. */
  add(bytes: number): void;
  /** Takes this many bytes and returns true, or returns false if there is no room for them now. */
  take(bytes: number): boolean;
  /**
   * Waits until there is room for this many bytes, takes them and calls `onTaken`, possibly before it
   * returns. Returns a function that stops waiting.
   */
  wait(bytes: number, onTaken: () => void): () => void;
  /** Gives back all but this many bytes. */
  shrinkTo(bytes: number): void;
};

/** A room without a limit. */
export const unlimitedRoom: ResponseRoom = {
  add: () => undefined,
  take: () => true,
  wait: (_bytes, taken) => {
    taken();
    return () => undefined;
  },
  shrinkTo: () => undefined,
};

/** The memory of a node for bodies: of messages being sent, and of their responses until these are stored. */
export class BodyByteBudget {
  readonly #total: number;
  #sending = 0;
  #responses = 0;
  #granted = 0;
  readonly #byLane = new Map<string, number>();
  readonly #byAccount = new Map<AccountId, number>();
  readonly #responsesByAccount = new Map<AccountId, number>();
  /** Responses that wait for memory, oldest first. */
  readonly #waiting = new Set<WaitingResponse>();

  /** `total` is the number of bytes available. */
  constructor(total: number) {
    this.#total = total;
  }

  /** The number of free bytes. It is negative if more is held than allowed. */
  get free(): number {
    return this.#total - this.#sending - this.#responses;
  }

  /** Bytes by lane (`laneName`). */
  get byLane(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#byLane);
  }

  /** Returns the bytes of a destination (`laneName`). */
  ofLane(lane: string): number {
    return this.#byLane.get(lane) ?? 0;
  }

  /** Returns the total, and the bytes that one account holds. */
  heldBy(account: AccountId): { total: number; byAccount: ReadonlyMap<AccountId, number> } {
    return { total: this.#total, byAccount: new Map([[account, this.#byAccount.get(account) ?? 0]]) };
  }

  /** The total, and the bytes that each account holds. */
  get heldByAccount(): { total: number; byAccount: ReadonlyMap<AccountId, number> } {
    return { total: this.#total, byAccount: new Map(this.#byAccount) };
  }

  /** Counts the body of a message when its delivery begins, or with a negative number when it ends. */
  count(lane: string, bytes: number): void {
    this.#sending += bytes;
    this.#countFor(lane, bytes);
    if (bytes < 0) this.#grantWaiting();
  }

  /** Returns the room of one delivery. `close` releases everything it still holds. */
  openRoom(lane: string): ResponseRoom & { close(): void } {
    const account = readLaneAccount(lane);
    let held = 0;
    let isGranted = false;
    const add = (bytes: number): void => {
      held += bytes;
      this.#responses += bytes;
      addToCount(this.#responsesByAccount, account, bytes);
      this.#countFor(lane, bytes);
    };
    const grant = (bytes: number): void => {
      if (!isGranted) this.#granted++;
      isGranted = true;
      add(bytes);
    };
    const wait = (bytes: number, onTaken: () => void): WaitingResponse => {
      const waiting: WaitingResponse = {
        account,
        bytes,
        grant: () => {
          grant(bytes);
          onTaken();
        },
      };
      this.#waiting.add(waiting);
      this.#grantWaiting();
      return waiting;
    };
    const stopWaiting = (waiting: WaitingResponse): boolean => {
      const isLeft = this.#waiting.delete(waiting);
      if (isLeft) this.#grantWaiting();
      return isLeft;
    };
    const shrinkTo = (bytes: number): void => {
      if (held <= bytes) return;
      add(bytes - held);
      this.#grantWaiting();
    };
    return {
      add,
      take: (bytes) => !stopWaiting(wait(bytes, () => undefined)),
      wait: (bytes, onTaken) => {
        const waiting = wait(bytes, onTaken);
        return () => void stopWaiting(waiting);
      },
      shrinkTo,
      close: () => {
        if (isGranted) this.#granted--;
        isGranted = false;
        if (held > 0) add(-held);
        this.#grantWaiting();
      },
    };
  }

  #countFor(lane: string, bytes: number): void {
    addToCount(this.#byLane, lane, bytes);
    addToCount(this.#byAccount, readLaneAccount(lane), bytes);
  }

  /**
   * Grants memory to waiting responses in order. A response that needs more than is free blocks all responses
   * behind it. A response whose account has reached its share blocks only other responses of the account.
   */
  #grantWaiting(): void {
    if (this.#waiting.size === 0) return;
    const full = new Set<AccountId>();
    for (const waiting of this.#waiting) {
      const { account, bytes } = waiting;
      if (full.has(account)) continue;
      const memory = {
        total: this.#total,
        sending: this.#sending,
        responses: this.#responses,
        granted: this.#granted,
      };
      if (hasResponseRoom(memory, this.#responsesByAccount.get(account) ?? 0, bytes)) {
        this.#waiting.delete(waiting);
        waiting.grant();
      } else if (bytes > freeForResponses(memory)) return;
      else full.add(account);
    }
  }
}

type WaitingResponse = { account: AccountId; bytes: number; grant(): void };

/** Adds to a named count, and removes the count at 0. */
function addToCount(counts: Map<string, number>, name: string, by: number): void {
  const count = (counts.get(name) ?? 0) + by;
  if (count === 0) counts.delete(name);
  else counts.set(name, count);
}
