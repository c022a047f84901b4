import { accountOf } from "../../core/admission/capacity.ts";
import type { AccountId } from "../../core/model/message.ts";
import { freeForResponses, hasRoom } from "../../core/fairness/responseRoom.ts";

/** Memory for the body of one response. It is held until the outcome of its attempt is stored. */
export type Room = {
  /** Takes bytes that have been read already. */
  add(bytes: number): void;
  /** Takes this many bytes and returns true, or returns false if there is no room for them now. */
  take(bytes: number): boolean;
  /** Takes this many bytes as soon as there is room, and then calls `taken`, which may be before it returns. Returns how to stop waiting. */
  wait(bytes: number, taken: () => void): () => void;
  /** No more than this many bytes are needed any longer. */
  keep(bytes: number): void;
};

/** A room for as much as is needed. */
export const unlimited: Room = {
  add: () => undefined,
  take: () => true,
  wait: (_bytes, taken) => {
    taken();
    return () => undefined;
  },
  keep: () => undefined,
};

/** The memory of a node for bodies: bodies of messages that are being sent, and of their responses until these are stored. */
export class BodyBytes {
  readonly #total: number;
  #sending = 0;
  #responses = 0;
  #granted = 0;
  readonly #byLane = new Map<string, number>();
  readonly #byAccount = new Map<AccountId, number>();
  readonly #responsesOf = new Map<AccountId, number>();
  /** In the order in which they came. */
  readonly #waiting = new Set<Waiting>();

  /** `total`: the bytes that there may be. */
  constructor(total: number) {
    this.#total = total;
  }

  /** Below zero if more is held than there may be. */
  get free(): number {
    return this.#total - this.#sending - this.#responses;
  }

  /** Bytes by destination (`laneOf`). */
  get byLane(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#byLane);
  }

  get held(): { total: number; byAccount: ReadonlyMap<AccountId, number> } {
    return { total: this.#total, byAccount: new Map(this.#byAccount) };
  }

  /** Counts the body of a message: its delivery begins, or with a negative number ends. */
  count(lane: string, bytes: number): void {
    this.#sending += bytes;
    this.#countFor(lane, bytes);
    if (bytes < 0) this.#serve();
  }

  /** Returns the room of one delivery. `close` gives back what is still held. */
  open(lane: string): Room & { close(): void } {
    const account = accountOf(lane);
    let held = 0;
    let isGranted = false;
    const add = (bytes: number): void => {
      held += bytes;
      this.#responses += bytes;
      increase(this.#responsesOf, account, bytes);
      this.#countFor(lane, bytes);
    };
    const grant = (bytes: number): void => {
      if (!isGranted) this.#granted++;
      isGranted = true;
      add(bytes);
    };
    const wait = (bytes: number, taken: () => void): Waiting => {
      const waiting: Waiting = {
        ...{ account, bytes },
        grant: () => {
          grant(bytes);
          taken();
        },
      };
      this.#waiting.add(waiting);
      this.#serve();
      return waiting;
    };
    const stop = (waiting: Waiting): boolean => {
      const isLeft = this.#waiting.delete(waiting);
      if (isLeft) this.#serve();
      return isLeft;
    };
    const keep = (bytes: number): void => {
      if (held <= bytes) return;
      add(bytes - held);
      this.#serve();
    };
    return {
      add,
      take: (bytes) => !stop(wait(bytes, () => undefined)),
      wait: (bytes, taken) => {
        const waiting = wait(bytes, taken);
        return () => void stop(waiting);
      },
      keep,
      close: () => {
        if (isGranted) this.#granted--;
        isGranted = false;
        add(-held);
        this.#serve();
      },
    };
  }

  #countFor(lane: string, bytes: number): void {
    increase(this.#byLane, lane, bytes);
    increase(this.#byAccount, accountOf(lane), bytes);
  }

  /** A response that needs more than is free holds back all behind it; one whose account has its share, those of its account. */
  #serve(): void {
    const full = new Set<AccountId>();
    for (const waiting of this.#waiting) {
      const { account, bytes } = waiting;
      if (full.has(account)) continue;
      const memory = { total: this.#total, sending: this.#sending, responses: this.#responses, granted: this.#granted };
      if (hasRoom(memory, this.#responsesOf.get(account) ?? 0, bytes)) {
        this.#waiting.delete(waiting);
        waiting.grant();
      } else if (bytes > freeForResponses(memory)) return;
      else full.add(account);
    }
  }
}

type Waiting = { account: AccountId; bytes: number; grant(): void };

/** Names with nothing left are forgotten. */
function increase(counts: Map<string, number>, name: string, by: number): void {
  const count = (counts.get(name) ?? 0) + by;
  if (count === 0) counts.delete(name);
  else counts.set(name, count);
}
