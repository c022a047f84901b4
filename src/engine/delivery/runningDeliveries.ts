import type { TakenCapacity } from "../core/admission/capacity.ts";
import { hasCapacity, laneName } from "../core/admission/capacity.ts";
import type { HostInFlight } from "../core/explain/hostConditions.ts";
import type { HostFailures } from "../core/node/failingLanes.ts";
import { FailingLanes } from "../core/node/failingLanes.ts";
import type { AccountId, MessageId, Millis } from "../core/values/basics.ts";
import type { Delivery } from "../core/model/delivery.ts";
import type { LeaseRef, ReturnedLease } from "../core/model/messageState.ts";
import type { Outcome } from "../core/model/attempt.ts";
import { isSuccessStatus } from "../core/values/status.ts";
import type { DeliveryCall } from "./deliver.ts";
import { abortedError } from "./deliveryError.ts";
import { BodyByteBudget } from "./http/bodyBytes.ts";

/**
 * A running delivery. `sentAt` is when it began, and `leasedAt` when its lease was last taken or renewed, by
 * this node's clock. `index` is its position in the list of running deliveries, or `notRunning`.
 * `responseRoom` is the memory of its response. `isSettled`: its message has finished, and its outcome need
 * not be stored. `followedAt` is when this node first had a step to send that was posted in it.
 */
export type Running = {
  delivery: Delivery;
  lane: string;
  call: DeliveryCall;
  sentAt: Millis;
  leasedAt: Millis;
  index: number;
  responseRoom: { close(): void };
  isSettled: boolean;
  followedAt?: Millis;
};

const nothingTaken: TakenCapacity = { all: 0, lane: 0, bytes: 0, laneBytes: 0 };

/** The index of a delivery that has not started, has ended, or was given back. */
export const notRunning = -1;

/**
 * The running deliveries of a node, counted by account and by lane, the memory of their bodies, and the lanes
 * that fail. A lane is the deliveries of one account to one host. For each delivery, the caller calls `add`
 * at the start, then `uncount`, `remove` and `countEnded(1)` when the request has ended, and `countEnded(-1)`
 * when the outcome is stored.
 */
export class RunningDeliveries {
  /** A plain array with reused positions: see docs/decisions/0034. */
  #list: Running[] = [];
  readonly #byLane = new Map<string, number>();
  readonly #byAccount = new Map<AccountId, number>();
  /** Deliveries that have ended, by lane. Their outcomes are being stored. */
  readonly #endedByLane = new Map<string, number>();
  #ended = 0;
  /** The deliveries of messages of runs, which a step can settle. */
  readonly #ofRuns = new Map<MessageId, Running>();
  /** The memory for the bodies of messages being sent and of their responses. */
  readonly bodyBytes: BodyByteBudget;
  readonly failingLanes = new FailingLanes();

  /** `totalBytes` is the memory for bodies, in bytes. */
  constructor(totalBytes: number) {
    this.bodyBytes = new BodyByteBudget(totalBytes);
  }

  /** The number of running deliveries. */
  get count(): number {
    return this.#list.length;
  }

  /** The number of deliveries that have ended, and whose outcome is not stored yet. */
  get ended(): number {
    return this.#ended;
  }

  /** The number of deliveries by lane (`laneName`). */
  get byLane(): ReadonlyMap<string, number> {
    return this.#byLane;
  }

  /** The number of deliveries by account. */
  get byAccount(): ReadonlyMap<AccountId, number> {
    return this.#byAccount;
  }

  /** Whether a call to the endpoint of a run is running, in which the endpoint may still post. */
  get hasCallsOfRuns(): boolean {
    for (const { index, isSettled, delivery } of this.#ofRuns.values())
      if (index !== notRunning && !isSettled && delivery.message.run?.kind !== "call") return true;
    return false;
  }

  /** Returns a copy of the list. */
  list(): Running[] {
    return [...this.#list];
  }

  /** Adds a delivery and counts it. */
  add(running: Running): void {
    running.index = this.#list.length;
    this.#list.push(running);
    const { message } = running.delivery;
    if (message.run) this.#ofRuns.set(message.id, running);
    this.#count(running, 1);
  }

  /**
   * Stops counting a delivery whose request has ended. A request that this node aborted, or that may not have
   * arrived, counts neither as a failure nor as a success of its host. Nor does an attempt that is pulled.
   */
  uncount(running: Running, { status, error, unanswered }: Outcome, now: Millis): void {
    this.#count(running, -1);
    if (error !== abortedError && unanswered !== true && running.delivery.pullKey === undefined)
      this.failingLanes.count(running.lane, { hasSucceeded: isSuccessStatus(status), now });
  }

  /** Returns the hosts of an account whose last attempts by this node have all failed. */
  listFailingHosts(account: AccountId): HostFailures[] {
    const prefix = laneName(account, "");
    const found: HostFailures[] = [];
    for (const [lane, failures] of this.failingLanes.all)
      if (lane.startsWith(prefix)) found.push({ host: lane.slice(prefix.length), ...failures });
    return found;
  }

  /** Returns what is in flight of an account, by host. */
  listInFlight(account: AccountId): HostInFlight[] {
    const prefix = laneName(account, "");
    const byHost = new Map<string, HostInFlight>();
    for (const { lane, sentAt } of this.#list) {
      if (!lane.startsWith(prefix)) continue;
      const host = lane.slice(prefix.length);
      const known = byHost.get(host);
      byHost.set(host, {
        host,
        count: (known?.count ?? 0) + 1,
        since: Math.min(known?.since ?? sentAt, sentAt),
      });
    }
    return [...byHost.values()];
  }

  /** Removes a delivery in constant time: the last one takes its position. */
  remove(running: Running): void {
    const last = this.#list.pop();
    if (last !== undefined && last !== running) {
      this.#list[running.index] = last;
      last.index = running.index;
    }
    running.index = notRunning;
  }

  /** Removes a delivery that does not begin, so that it is not settled. Returns its lease. */
  giveBack(running: Running): LeaseRef[] {
    this.remove(running);
    this.#forget(running);
    return running.isSettled ? [] : [toLeaseRef(running.delivery)];
  }

  #forget(running: Running): void {
    const { id } = running.delivery.message;
    if (this.#ofRuns.get(id) === running) this.#ofRuns.delete(id);
  }

  /** Returns the running call that a delivery follows, if this node is making it. */
  findFollowed({ follows, message: { account } }: Delivery): Running | undefined {
    const running = follows === undefined ? undefined : this.#ofRuns.get(follows);
    return running?.delivery.message.account === account && running.index !== notRunning
      ? running
      : undefined;
  }

  /** Marks a delivery as settled. */
  settle({ account, messageId, attempt }: LeaseRef): void {
    const running = this.#ofRuns.get(messageId);
    if (running?.delivery.message.account === account && running.delivery.attempt === attempt)
      running.isSettled = true;
  }

  /**
   * Counts a delivery as ended (`by` is 1) until its outcome is stored (-1). A step can settle it until then.
   */
  countEnded(running: Running, by: 1 | -1): void {
    this.#ended += by;
    addToCount(this.#endedByLane, running.lane, by);
    if (by === -1) this.#forget(running);
  }

  /** Aborts the request of a cancelled message. Its slots are released when the outcome is settled. */
  abort({ account, messageId, attempt }: LeaseRef): void {
    for (const { delivery, call } of this.#list) {
      const { message } = delivery;
      if (message.id === messageId && message.account === account && delivery.attempt === attempt)
        call.abort();
    }
  }

  /** Aborts all deliveries and removes them, so that they are not settled. Returns their leases. */
  abortAll(): ReturnedLease[] {
    const left = this.#list;
    this.#list = [];
    this.#ofRuns.clear();
    for (const running of left) running.index = notRunning;
    for (const { call } of left) call.abort();
    return left.flatMap(({ delivery, isSettled }) => (isSettled ? [] : toReturnedLease(delivery)));
  }

  /**
   * Reports whether a second delivery like this one could start now. If so, no message waits for the capacity
   * that this delivery uses. The capacity of deliveries whose outcomes are being stored counts as used.
   */
  hasSpareCapacity(
    { lane, delivery }: Running,
    { total, perHost }: { total: number; perHost: number },
  ): boolean {
    const { bodyBytes } = this;
    // Messages to a failing host may wait although there is capacity.
    if (this.failingLanes.isFailing(lane)) return false;
    const capacity = {
      free: total - this.count - this.#ended,
      perHost,
      backlog: false,
      runningByLane: new Map([[lane, (this.#byLane.get(lane) ?? 0) + (this.#endedByLane.get(lane) ?? 0)]]),
      bytes: { free: bodyBytes.free, perBatch: 0, byLane: { [lane]: bodyBytes.ofLane(lane) } },
      heldByAccount: {
        deliveries: { total, byAccount: this.#byAccount },
        bytes: bodyBytes.heldBy(delivery.message.account),
      },
    };
    return hasCapacity(capacity, nothingTaken, { lane, size: sizeOf(delivery) });
  }

  #count({ delivery, lane }: Running, by: 1 | -1): void {
    addToCount(this.#byLane, lane, by);
    addToCount(this.#byAccount, delivery.message.account, by);
    this.bodyBytes.count(lane, by * sizeOf(delivery));
  }
}

/** Returns the bytes of the body of a delivery. */
const sizeOf = ({ history, message }: Delivery): number => (history ?? message.body).byteLength;

/** Adds to a named count, and removes the count at 0. */
export function addToCount(counts: Map<string, number>, name: string, by: number): void {
  const count = (counts.get(name) ?? 0) + by;
  if (count === 0) counts.delete(name);
  else counts.set(name, count);
}

/** Returns the lease of a delivery. */
export const toLeaseRef = ({ message, attempt }: Delivery): LeaseRef => ({
  account: message.account,
  messageId: message.id,
  attempt,
});

const toReturnedLease = (delivery: Delivery): ReturnedLease => ({
  ...toLeaseRef(delivery),
  hasToken: (delivery.message.ackKey ?? delivery.pullKey) !== undefined,
});
