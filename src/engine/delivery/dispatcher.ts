import { notRunning, RunningDeliveries, type Running, toLeaseRef } from "./runningDeliveries.ts";
import { isUnavailable } from "../core/values/errors.ts";
import { type DeliveryCapacity, findShortage, laneName } from "../core/admission/capacity.ts";
import { leavesReserve } from "../core/node/lastPart.ts";
import { memory, spans } from "../core/values/limits.ts";
import type { Delivery } from "../core/model/delivery.ts";
import type { Millis } from "../core/values/basics.ts";
import type { Outcome } from "../core/model/attempt.ts";
import { parseHost } from "../core/values/url.ts";
import type { Settled } from "../core/attempts/applyOutcome.ts";
import type { Claimed } from "../core/commands/claim.ts";
import type { Store, Unsubscribe } from "../store/store.ts";
import { Claimer } from "./claimer.ts";
import type { AlarmClock } from "../clock/clock.ts";
import { woken } from "../clock/clock.ts";
import { LeaseRenewal } from "./leaseRenewal.ts";
import type { Deliver, DeliveryCall } from "./deliver.ts";
import { abortedError } from "./deliveryError.ts";
import { beginAfter } from "./followingCall.ts";
import { Pullers } from "./pullers.ts";
import { WaitingHosts } from "./waitingHosts.ts";
import { failUnsendable, makeUnsentOutcome } from "./unsendable.ts";
import { MembershipGuard } from "./membershipGuard.ts";
import { minute } from "../core/values/time.ts";

const noPulling = { region: "", newId: () => "", isShared: false };

/** Where the dispatcher reports attempts and failures. */
export type DispatcherLog = {
  attempt(delivery: Delivery, outcome: Outcome, settled: Settled["became"]): void;
  failure(message: string, error: unknown): void;
};

/** The parts that a dispatcher connects, and its capacity. */
export type DispatcherOptions = {
  store: Store;
  deliver: Deliver;
  clock: AlarmClock;
  log: DispatcherLog;
  /** Parts for `Pullers`. Default: no message is pulled. */
  pulling?: Pick<ConstructorParameters<typeof Pullers>[0], "region" | "newId" | "isShared">;
  /** Deliveries that may run at once: in total and per host. */
  capacity: { total: number; perHost: number; bytes?: DispatcherBytes };
};

/**
 * The memory for bodies, in bytes. `total`: for all running deliveries and their responses. `perBatch`: for
 * the messages that one batch loads to send them.
 */
type DispatcherBytes = { total: number; perBatch: number };

/**
 * The maximum number of messages that one claim looks at. Publishes wait for a claim. During a backlog, their
 * p99 was 30 ms with 64, and 80 ms with 256.
 */
const claimLimit = 64;
/** Outcomes may be stored with a delay while at most this number of deliveries runs. */
const quietUpTo = 32;
const immediately: Millis = 0;
/** The pause after a storage failure. */
const retryPause = 1000;
/** A claim error that repeats is logged at most once in this time. */
const logInterval: Millis = minute;

/**
 * Sends due messages: claim, deliver, settle. It claims only when the store reports due messages and there is
 * free capacity. Most messages need no claim, because the batch that accepts them also leases them.
 */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #claimer: Claimer;
  readonly #leaseGuard: MembershipGuard;
  /** The deliveries that this node is sending. */
  readonly deliveries: RunningDeliveries;
  readonly #leaseRenewal: LeaseRenewal;
  readonly #waitingHosts: WaitingHosts;
  /** The clients that wait to pull messages. */
  readonly pullers: Pullers;
  /**
   * When an outcome last could not be stored because the storage was unavailable. Storing it is retried soon
   * after.
   */
  #unavailableAt: Millis = Number.NEGATIVE_INFINITY;
  /** When to claim next, in the store's time. `immediately` is always past. */
  #nextAt: Millis | null = null;
  /** How far this node's clock is ahead of the store's clock, estimated at the last claim. */
  #clockOffset: Millis = 0;
  /** The last claim error that was logged, or null after a successful claim. */
  #loggedClaimFailure: { message: string; at: Millis } | null = null;
  /** The shortage at the last claim. */
  #shortage: ReturnType<typeof findShortage> = null;
  #backlog: DeliveryCapacity["backlog"] = true;
  /** Where the next claim continues its round of the accounts. */
  #claimPosition: Pick<Claimed, "turns" | "backlogged"> = { turns: {}, backlogged: [] };
  #isStopping = false;
  /** Whether nothing may be sent until the operator ends the hold. */
  #isOnHold = false;
  #wake = new AbortController();
  /** Set when the grace period has ended and running deliveries are aborted. */
  #isCut = false;
  #loop: Promise<void> | null = null;
  #unsubscribe: Unsubscribe = () => undefined;
  #resolveEmpty: () => void = () => undefined;
  #resolveCallsEnded: () => void = () => undefined;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.deliveries = new RunningDeliveries(options.capacity.bytes?.total ?? memory.sending);
    const { store, clock, log, pulling = noPulling } = options;
    this.pullers = new Pullers({ store, clock, ...pulling });
    this.#leaseRenewal = new LeaseRenewal({ store, clock, log, running: this.deliveries });
    // If waking a waitlist fails, a claim serves it a little later, when it is due.
    this.#waitingHosts = new WaitingHosts((account, hosts) =>
      store.execute("wakeHostWaitlists", { account, hosts }).catch(() => undefined),
    );
    this.#claimer = new Claimer({
      store,
      now: () => clock.now(),
      logFailure: (message, error) => log.failure(message, error),
    });
    this.#leaseGuard = new MembershipGuard({
      store,
      clock,
      abortAll: () => this.deliveries.abortAll(),
      resume: () => this.wake(),
    });
  }

  /** Starts sending. Messages that are already due are claimed at once. */
  start(): void {
    const { store } = this.#options;
    store.attach({
      readCapacity: () => this.readCapacity(),
      deliver: (delivery) => this.#send(delivery),
      abort: (lease) => this.deliveries.abort(lease),
      renewLeases: () => void this.#leaseRenewal.renewNow(),
      settled: (lease) => {
        this.deliveries.settle(lease);
        this.#checkEmpty();
      },
      fault: (message) => this.#options.log.failure("the stored data is inconsistent", new Error(message)),
    });
    this.#unsubscribe = store.onDue((at) => this.#claimAt(at));
    this.#nextAt = immediately;
    this.#loop = this.#run();
  }

  /**
   * Starts nothing more, and waits up to `grace` until no endpoint of a run posts anything more. The API must
   * be open until then: a step whose post is refused is executed a second time.
   */
  async endCallsOfRuns(grace: Millis): Promise<void> {
    const { clock } = this.#options;
    this.pullers.close();
    this.#isStopping = true;
    this.#wake.abort();
    if (!this.deliveries.hasCallsOfRuns) return;
    const cancelGrace = new AbortController();
    const ended = new Promise<void>((resolve) => (this.#resolveCallsEnded = resolve));
    await Promise.race([ended, clock.sleep(clock.now() + grace, cancelGrace.signal)]);
    cancelGrace.abort();
  }

  /**
   * Stops claiming, waits up to `grace` for running deliveries, then aborts the rest and gives their leases
   * back. The aborted messages are sent again, by this server or another. An aborted attempt does not count.
   */
  async stop(grace: Millis): Promise<void> {
    const { clock } = this.#options;
    this.pullers.close();
    this.#isStopping = true;
    this.#unsubscribe();
    this.#wake.abort();
    await this.#loop;
    const emptied = new Promise<void>((resolve) => (this.#resolveEmpty = resolve));
    const cancelGrace = new AbortController();
    if (this.deliveries.count + this.deliveries.ended > 0)
      await Promise.race([emptied, clock.sleep(clock.now() + grace, cancelGrace.signal)]);
    cancelGrace.abort();
    this.#isCut = true;
    const left = this.deliveries.abortAll();
    await this.#leaseGuard.end();
    if (left.length === 0) return;
    const failureText =
      "could not give back unfinished messages; they are sent again when their leases expire";
    await this.#leaseRenewal.update("returnLeases", left, failureText);
  }

  /** Returns the current delivery capacity of this node. */
  readCapacity(): DeliveryCapacity {
    const { total, perHost, bytes: { perBatch } = { perBatch: memory.batch } } = this.#options.capacity;
    const { bodyBytes, failingLanes } = this.deliveries;
    const pulls = this.pullers.room;
    const beginsNone = this.#beginsNone;
    return {
      free: beginsNone ? 0 : total - this.deliveries.count,
      beginsNone,
      perHost,
      backlog: this.#backlog,
      runningByLane: new Map(this.deliveries.byLane),
      ...(pulls && { pulls }),
      bytes: { free: bodyBytes.free, perBatch, byLane: bodyBytes.byLane },
      heldByAccount: {
        deliveries: { total, byAccount: new Map(this.deliveries.byAccount) },
        bytes: bodyBytes.heldByAccount,
      },
      denied: (lane) => this.#waitingHosts.note(lane),
      ...failingLanes.at(this.#options.clock.now()),
    };
  }

  /**
   * Holds all deliveries that have not begun, or ends the hold. While it lasts, nothing is claimed: schedules
   * do not fire, and waits do not end.
   */
  setHold(isOnHold: boolean): void {
    this.#isOnHold = isOnHold;
    if (!isOnHold) this.wake();
  }

  /** Looks for due messages now. */
  wake(): void {
    this.#shortage = null;
    this.#claimAt(immediately);
  }

  /** Reports whether this node may send more, and knows of nothing due that it has not claimed. */
  couldSend(): boolean {
    const hasShortage = findShortage(this.readCapacity()) !== null;
    return !hasShortage && this.#backlog === false && !this.#claimer.hasPausedRows;
  }

  get #maySend(): boolean {
    return this.#leaseGuard.maySend;
  }

  get #beginsNone(): boolean {
    return this.#isStopping || this.#isOnHold || !this.#maySend;
  }

  /**
   * The number of deliveries that are running, or have ended and whose outcome is not stored yet. Messages
   * that wait, for example for a retry, are not counted.
   */
  get inFlight(): number {
    return this.deliveries.count + this.deliveries.ended;
  }

  /** Claims due messages, up to the free capacity, and schedules the next claim. */
  async tick(): Promise<void> {
    const { clock } = this.#options;
    const capacity = this.readCapacity();
    this.#nextAt = null;
    this.#shortage = findShortage(capacity);
    if (this.#shortage === "deliveries") return void (this.#backlog = true);
    // While the memory is used up, waitlists stay due. The delivery that releases some wakes this node.
    const takesWaitlists = this.#shortage === null;
    const askedAt = clock.now();
    const heads = Math.min(claimLimit, capacity.free);
    const { more, now, turns, backlogged } = await this.#claimer.next({
      limit: claimLimit,
      heads,
      hostWaitlists: takesWaitlists ? heads : 0,
      ...this.#claimPosition,
    });
    this.#claimPosition = { turns, backlogged };
    // The store read its clock between our request and its response. If the clocks can be equal, the offset
    // is 0.
    this.#clockOffset = Math.max(askedAt - now, Math.min(0, clock.now() - now));
    this.#backlog = more && new Set(backlogged);
    const next = more ? immediately : await this.#claimer.nextDueAt({ now, takesWaitlists });
    if (next !== null) this.#claimAt(next);
  }

  async #run(): Promise<void> {
    const { clock } = this.#options;
    for (await this.#untilDue(); !this.#isStopping; await this.#untilDue()) {
      try {
        // After an outage, store outcomes before claiming: their leases may have expired while nothing could
        // be stored.
        const sinceUnavailable = clock.now() - this.#unavailableAt;
        if (sinceUnavailable >= 0 && sinceUnavailable < retryPause / 2)
          this.#nextAt = this.#unavailableAt - this.#clockOffset + retryPause / 2;
        else {
          await this.#leaseRenewal.renewOverdue();
          await this.tick();
          this.#loggedClaimFailure = null;
        }
      } catch (error) {
        this.#logClaimFailure(error);
        this.#nextAt = clock.now() - this.#clockOffset + retryPause;
      }
    }
  }

  /** Logs a claim error. During an outage the same error comes every second; it is logged once a minute. */
  #logClaimFailure(error: unknown): void {
    const { clock, log } = this.#options;
    const message = String(error);
    const at = clock.now();
    if (
      this.#loggedClaimFailure?.message === message &&
      Math.abs(at - this.#loggedClaimFailure.at) < logInterval
    )
      return;
    this.#loggedClaimFailure = { message, at };
    log.failure("could not claim due messages; retrying every second", error);
  }

  /**
   * Sleeps until the next claim is due. After a change of the clock, the due time is checked again, so that
   * no claim comes too early.
   */
  async #untilDue(): Promise<void> {
    const { clock } = this.#options;
    while (!this.#isStopping) {
      const until = (this.#nextAt ?? Infinity) + this.#clockOffset;
      if (until <= clock.now()) return;
      const wake = new AbortController();
      this.#wake = wake;
      await clock.sleep(until, wake.signal);
      if (!wake.signal.aborted) return;
    }
  }

  #claimAt(at: Millis): void {
    if (this.#shortage === "deliveries" || (this.#nextAt !== null && this.#nextAt <= at)) return;
    this.#nextAt = at;
    this.#wake.abort(woken);
  }

  #send(delivery: Delivery): void {
    if (!this.#maySend) return this.#leaseGuard.returnLeases([toLeaseRef(delivery)]);
    const lane = laneName(delivery.message.account, parseHost(delivery.message.url));
    const responseRoom = this.deliveries.bodyBytes.openRoom(lane);
    const begin = (): DeliveryCall =>
      delivery.unsendable !== undefined
        ? failUnsendable(delivery)
        : delivery.pullKey !== undefined
          ? this.pullers.take(delivery, lane)
          : this.#options.deliver(delivery, responseRoom);
    const now = this.#options.clock.now();
    const followed = delivery.pullKey === undefined ? this.deliveries.findFollowed(delivery) : undefined;
    const call = followed
      ? beginAfter(followed, this.#options.clock, {
          begin,
          mayBegin: () => !this.#beginsNone,
          end: (why) => {
            if (why === "held") this.#leaseGuard.returnLeases(this.deliveries.giveBack(running));
            return makeUnsentOutcome(delivery, abortedError);
          },
        })
      : begin();
    const running: Running = {
      delivery,
      lane,
      call,
      sentAt: now,
      leasedAt: now,
      index: notRunning,
      responseRoom,
      isSettled: false,
    };
    if (this.#isCut) running.call.abort();
    this.deliveries.add(running);
    this.#leaseRenewal.start();
    void this.#sendAndSettle(running);
  }

  async #sendAndSettle(running: Running): Promise<void> {
    const { log } = this.#options;
    const { delivery, call } = running;
    const outcome = await call.outcome;
    // A settled delivery has nothing to store, but only an outcome gives its capacity to others that wait.
    const isAwaited =
      !running.isSettled || !this.deliveries.hasSpareCapacity(running, this.#options.capacity);
    const canWait = this.#canWait(running);
    this.deliveries.uncount(running, outcome, this.#options.clock.now());
    // The lease has been given back, so the outcome is not stored.
    if (running.index === notRunning) {
      running.responseRoom.close();
      return this.#checkEmpty();
    }
    this.deliveries.remove(running);
    this.deliveries.countEnded(running, 1);
    this.#offerReleased(delivery);
    const settled = isAwaited && (await this.#settle(outcome, canWait));
    running.responseRoom.close();
    if (outcome.body.byteLength > 0) this.#offerReleased(delivery);
    const became = running.isSettled ? "delivered" : settled && settled.became;
    if (became) log.attempt(delivery, outcome, became);
    this.deliveries.countEnded(running, -1);
    this.#checkEmpty();
  }

  /**
   * Offers released capacity or memory to all messages, if it was used up, and to a host whose messages wait
   * because its account used its whole share.
   */
  #offerReleased({ message }: Delivery): void {
    if (this.#shortage !== null && findShortage(this.readCapacity()) !== this.#shortage) this.wake();
    if (this.#waitingHosts.isEmpty) return;
    const { total } = this.#options.capacity;
    const capacity = { total, free: total - this.deliveries.count };
    void this.#waitingHosts.ended(message.account, (account) =>
      leavesReserve(capacity, this.deliveries.byAccount.get(account) ?? 0, 1),
    );
  }

  #checkEmpty(): void {
    if (!this.#isStopping) return;
    if (!this.deliveries.hasCallsOfRuns) this.#resolveCallsEnded();
    if (this.deliveries.count + this.deliveries.ended === 0) this.#resolveEmpty();
  }

  /**
   * Stores an outcome. After a failure, retries until the lease has expired, because another node may have
   * sent the message again by then. While the storage is unavailable, retries for as long as the server runs.
   * No other node can take over the lease then, and the outcome counts if it is the first to be stored.
   * Returns null if it gave up.
   */
  async #settle(outcome: Outcome, canWait: boolean): Promise<Settled | null> {
    const { store, clock, log } = this.#options;
    const until = clock.now() + spans.lease;
    let wasAway = false;
    for (;;) {
      try {
        return await store.execute("settle", outcome, { canWait });
      } catch (error) {
        const isAway = isUnavailable(error) && !this.#isStopping;
        if (!(isAway && wasAway)) log.failure(`could not store the outcome of ${outcome.messageId}`, error);
        wasAway = isAway;
        if (isAway) this.#unavailableAt = clock.now();
        if (!isAway && clock.now() >= until) return null;
        await clock.sleep(clock.now() + (isAway ? retryPause / 4 : retryPause), new AbortController().signal);
      }
    }
  }

  /** Reports whether nothing waits for the outcome of a delivery: no message, no callback, and no stop. */
  #canWait(running: Running): boolean {
    const isQuiet = !this.#backlog && this.#shortage === null && !this.#isStopping;
    if (!isQuiet || running.delivery.settlesAtOnce || this.deliveries.count > quietUpTo) return false;
    return this.deliveries.hasSpareCapacity(running, this.#options.capacity);
  }
}
