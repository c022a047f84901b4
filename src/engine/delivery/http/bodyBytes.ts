import { readLaneAccount } from "../../core/admission/capacity.ts";
import { alarm } from "../../clock/clock.ts";
import { isWithinLastPart } from "../../core/node/lastPart.ts";
import {
  countProgress,
  freeForResponses,
  hasResponseRoom,
  hasStalled,
  needsProgress,
  type RoomProgress,
} from "../../core/node/responseRoom.ts";
import type { AccountId } from "../../core/values/basics.ts";

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
  /** Names the body that arrives in this room, or null once all of it has arrived. */
  watch(body: ArrivingBody | null): void;
  /** Gives back all but this many bytes. */
  shrinkTo(bytes: number): void;
};

/** A body that arrives. `stall` ends it, because it arrives too slowly while others wait for memory. */
export type ArrivingBody = { readonly size: number; stall(): void };

const nothing = (): void => undefined;

/** A room without a limit. */
export const unlimitedRoom: ResponseRoom = {
  add: nothing,
  take: () => true,
  wait: (_bytes, taken) => {
    taken();
    return nothing;
  },
  watch: nothing,
  shrinkTo: nothing,
};

/** The time between two looks at the responses that have room, in milliseconds. */
const lookInterval = 1000;

/** The memory of a node for bodies: of messages being sent, and of their responses until these are stored. */
export class BodyByteBudget {
  readonly #total: number;
  #sending = 0;
  #responses = 0;
  readonly #byLane = new Map<string, number>();
  readonly #byAccount = new Map<AccountId, number>();
  readonly #responsesByAccount = new Map<AccountId, number>();
  /** The bytes of responses with room for all of their bytes, by destination. */
  readonly #roomByLane = new Map<string, number>();
  /** Responses with room for all of their bytes. */
  readonly #granted = new Set<DeliveryRoom>();
  /** Responses that wait for memory, oldest first. */
  readonly #waiting = new Set<WaitingResponse>();
  #isLooking = false;

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

  /** Returns the room of one delivery. */
  openRoom(lane: string): DeliveryRoom {
    return new DeliveryRoom(this, lane);
  }

  /** Counts bytes of a room. The number is negative if the room gives them back. */
  countRoom(room: DeliveryRoom, bytes: number): void {
    this.#responses += bytes;
    addToCount(this.#responsesByAccount, room.account, bytes);
    if (this.#granted.has(room)) addToCount(this.#roomByLane, room.lane, bytes);
    this.#countFor(room.lane, bytes);
    if (bytes < 0) this.#grantWaiting();
  }

  /** Tries to take memory for a response. Returns whether it was taken. */
  take(waiting: WaitingResponse): boolean {
    this.#waiting.add(waiting);
    this.#grantWaiting();
    return !this.stopWaiting(waiting);
  }

  /** Lets a response wait for memory, and gives it the memory at once if there is some. */
  wait(waiting: WaitingResponse): void {
    this.#waiting.add(waiting);
    this.#grantWaiting();
    if (!this.#isLooking && this.#waiting.size > 0) {
      for (const room of this.#granted) room.beginProgress();
      this.#lookLater();
    }
  }

  /** Returns whether the response was still waiting. */
  stopWaiting(waiting: WaitingResponse): boolean {
    const isLeft = this.#waiting.delete(waiting);
    if (isLeft) this.#grantWaiting();
    return isLeft;
  }

  /** Counts a room that gives back everything it holds. */
  closeRoom(room: DeliveryRoom, held: number): void {
    if (held > 0) this.countRoom(room, -held);
    if (this.#granted.delete(room)) this.#grantWaiting();
  }

  #countFor(lane: string, bytes: number): void {
    addToCount(this.#byLane, lane, bytes);
    addToCount(this.#byAccount, readLaneAccount(lane), bytes);
  }

  /**
   * Grants memory to waiting responses. The destination whose responses have the least room comes first, and
   * then the response that has waited longest. A response that needs more than is free blocks all responses
   * behind it. A response whose account has reached its share blocks only other responses of the account.
   */
  #grantWaiting(): void {
    if (this.#waiting.size === 0) return;
    const full = new Set<AccountId>();
    for (let next = this.#findNext(full); next; next = this.#findNext(full)) {
      const { room, bytes, onTaken } = next;
      const memory = {
        total: this.#total,
        sending: this.#sending,
        responses: this.#responses,
        granted: this.#granted.size,
      };
      if (hasResponseRoom(memory, this.#heldByResponses(room.account), bytes)) {
        this.#waiting.delete(next);
        this.#grant(room, bytes);
        onTaken();
      } else if (bytes > freeForResponses(memory)) return;
      else full.add(room.account);
    }
  }

  /** Returns the waiting response that comes first, without those of some accounts. */
  #findNext(without: ReadonlySet<AccountId>): WaitingResponse | null {
    let first: WaitingResponse | null = null;
    let least = Infinity;
    for (const waiting of this.#waiting) {
      const { account, lane } = waiting.room;
      const bytes = this.#roomByLane.get(lane) ?? 0;
      if (bytes >= least || without.has(account)) continue;
      if (bytes === 0) return waiting;
      first = waiting;
      least = bytes;
    }
    return first;
  }

  #grant(room: DeliveryRoom, bytes: number): void {
    if (!this.#granted.has(room)) {
      this.#granted.add(room);
      room.beginProgress();
      addToCount(this.#roomByLane, room.lane, room.held);
    }
    room.add(bytes);
  }

  #lookLater(): void {
    this.#isLooking = true;
    alarm(lookInterval, () => {
      this.#look();
      if (this.#waiting.size > 0) this.#lookLater();
      else this.#isLooking = false;
    });
  }

  /** Ends responses that arrive too slowly, until no other waits for memory. */
  #look(): void {
    const waitingAccounts = new Set<AccountId>();
    let isShareWaiting = false;
    for (const { room } of this.#waiting) {
      waitingAccounts.add(room.account);
      isShareWaiting ||= isWithinLastPart(this.#total, this.#byAccount.get(room.account) ?? 0);
    }
    const stalled: DeliveryRoom[] = [];
    for (const room of this.#granted) {
      const { account } = room;
      const waiters = { isOwnWaiting: waitingAccounts.has(account), isShareWaiting };
      if (!needsProgress(this.#total, this.#heldByResponses(account), waiters)) room.beginProgress();
      else if (room.hasStalled()) stalled.push(room);
    }
    for (const room of stalled) if (this.#waiting.size > 0) room.stall();
  }

  #heldByResponses(account: AccountId): number {
    return this.#responsesByAccount.get(account) ?? 0;
  }
}

type WaitingResponse = { room: DeliveryRoom; bytes: number; onTaken: () => void };

/** The room of one delivery. */
class DeliveryRoom implements ResponseRoom {
  readonly lane: string;
  readonly account: AccountId;
  /** The bytes that it holds. */
  held = 0;
  readonly #budget: BodyByteBudget;
  #body: ArrivingBody | null = null;
  #progress: RoomProgress | null = null;

  constructor(budget: BodyByteBudget, lane: string) {
    this.#budget = budget;
    this.lane = lane;
    this.account = readLaneAccount(lane);
  }

  add(bytes: number): void {
    this.held += bytes;
    this.#budget.countRoom(this, bytes);
  }

  take(bytes: number): boolean {
    return this.#budget.take({ room: this, bytes, onTaken: nothing });
  }

  wait(bytes: number, onTaken: () => void): () => void {
    const waiting = { room: this, bytes, onTaken };
    this.#budget.wait(waiting);
    return () => void this.#budget.stopWaiting(waiting);
  }

  watch(body: ArrivingBody | null): void {
    this.#body = body;
  }

  shrinkTo(bytes: number): void {
    if (this.held > bytes) this.add(bytes - this.held);
  }

  /** Releases everything it still holds. */
  close(): void {
    const { held } = this;
    this.held = 0;
    this.#body = null;
    this.#budget.closeRoom(this, held);
  }

  /** Forgets the looks so far. */
  beginProgress(): void {
    this.#progress = null;
  }

  /** Looks at how much has arrived. Returns whether that is too little since the last looks. */
  hasStalled(): boolean {
    if (this.#body === null) return false;
    const { size } = this.#body;
    this.#progress = countProgress(this.#progress, size);
    return hasStalled(this.#progress);
  }

  stall(): void {
    this.#body?.stall();
  }
}

/** Adds to a named count, and removes the count at 0. */
function addToCount(counts: Map<string, number>, name: string, by: number): void {
  const count = (counts.get(name) ?? 0) + by;
  if (count === 0) counts.delete(name);
  else counts.set(name, count);
}
