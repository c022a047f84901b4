import { addToCount, toLeaseRef } from "./runningDeliveries.ts";
import { Refusal } from "../core/values/errors.ts";
import type { DeliveryCapacity } from "../core/admission/capacity.ts";
import { laneName } from "../core/admission/capacity.ts";
import { leavesReserve } from "../core/fairness/lastPart.ts";
import { memory, spans } from "../core/values/limits.ts";
import type { AccountId, Delivery, LeaseRef, Millis, Outcome } from "../core/model/message.ts";
import { parseHost } from "../core/values/url.ts";
import type { Settled } from "../core/commands/settle.ts";
import type { Claimed } from "../core/commands/claim.ts";
import type { Store, Unsubscribe } from "../store/store.ts";
import { BodyByteBudget } from "./http/bodyBytes.ts";
import { Claimer } from "./claimer.ts";
import type { Clock } from "../clock/clock.ts";
import type { Deliver, DeliveryCall } from "./deliver.ts";
import { DeniedHosts } from "./deniedHosts.ts";
import { failUnsendable } from "./unsendable.ts";
import { SessionLeaseGuard } from "./sessionLeaseGuard.ts";
import { minute } from "../core/values/time.ts";

export type DispatcherLog = {
  attempt(delivery: Delivery, outcome: Outcome, settled: Settled["became"]): void;
  failure(message: string, error: unknown): void;
};

export type DispatcherOptions = {
  store: Store;
  deliver: Deliver;
  clock: Clock;
  log: DispatcherLog;
  /** Deliveries running at once: in all, and to one host. */
  capacity: { total: number; perHost: number; bytes?: DispatcherBytes };
};

/** Bytes of bodies: of all that are being sent or received, and of what one batch loads to be sent. */
type DispatcherBytes = { total: number; perBatch: number };

/**
 * `leasedAt`: when its lease was taken or renewed last, by the clock of this node. `place`: among those that run; `over` after that.
 * `room`: the memory of its response.
 */
type Running = { delivery: Delivery; lane: string; call: DeliveryCall; leasedAt: Millis; index: number; responseRoom: { close(): void } };

/** Most messages that one claim looks at. Publishes wait for it: during a backlog their p99 was 30 ms with 64, and 80 ms with 256. */
const claimLimit = 64;
/** With fewer deliveries running, no destination can have a line of waiting messages, and outcomes need no haste. */
const quietBelow = 32;
const immediately: Millis = 0;
/** The place of what does not run any more. */
const notRunning = -1;
/** After a fault of the storage: how long until the next try. */
const retryPause = 1000;
/** After so long the same trouble is told of again. */
const logInterval: Millis = minute;

/**
 * Sends what is due: claim → deliver → settle. It claims when the store says that something is due and a hand is
 * free, never else; most messages come to it already leased, from the very batch that took them in.
 */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #claimer: Claimer;
  readonly #leaseGuard: SessionLeaseGuard | null;
  /** A plain list, whose places are handed on: see docs/decisions/0034. */
  #running: Running[] = [];
  readonly #runningByLane = new Map<string, number>();
  readonly #runningByAccount = new Map<AccountId, number>();
  readonly #bodyBytes: BodyByteBudget;
  readonly #deniedHosts: DeniedHosts;
  /** Outcomes on their way to the store. */
  #settling = 0;
  /** When the storage could not take one of them last, because it was away. Each is tried again soon after. */
  #unavailableAt: Millis = Number.NEGATIVE_INFINITY;
  /** When to claim next, in the time of the store; `atOnce` is always past. */
  #nextAt: Millis | null = null;
  /** By how much the clock of this node is ahead of the store's, as far as the last claim could tell. */
  #clockOffset: Millis = 0;
  /** Why claiming failed, as it was told last; null when it has succeeded since. */
  #loggedClaimFailure: { message: string; at: Millis } | null = null;
  #isOutOfCapacity = false;
  #backlog: DeliveryCapacity["backlog"] = true;
  /** Where the next claim begins its turns through the accounts. */
  #claimPosition: Pick<Claimed, "turns" | "backlogged"> = { turns: {}, backlogged: [] };
  #isStopping = false;
  #isRenewing = false;
  #wake = new AbortController();
  /** The time to stop is over: what is running is cut off. */
  #isCut = false;
  #loop: Promise<void> | null = null;
  #unsubscribe: Unsubscribe = () => undefined;
  #resolveEmpty: () => void = () => undefined;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#bodyBytes = new BodyByteBudget(options.capacity.bytes?.total ?? memory.sending);
    const { store, clock, log } = options;
    // A line that was not woken is looked at all the same, a little later.
    this.#deniedHosts = new DeniedHosts((account, hosts) => store.execute("wakeHostWaitlists", { account, hosts }).catch(() => undefined));
    this.#claimer = new Claimer({ store, now: () => clock.now(), logFailure: (message, error) => log.failure(message, error) });
    const resume = (): void => {
      this.#isOutOfCapacity = false;
      this.#claimAt(immediately);
    };
    this.#leaseGuard = store.sessionLease
      ? new SessionLeaseGuard({ sessionLease: store.sessionLease, store, clock, abortAll: () => this.#abortAll(), resume })
      : null;
  }

  /** Begins to send. What is due already is claimed at once. */
  start(): void {
    const { store } = this.#options;
    store.attach({
      readCapacity: () => this.readCapacity(),
      deliver: (delivery) => this.#send(delivery),
      abort: (lease) => this.#abort(lease),
      fault: (message) => this.#options.log.failure("the storage is damaged", new Error(message)),
    });
    this.#unsubscribe = store.onDue((at) => this.#claimAt(at));
    this.#nextAt = immediately;
    this.#loop = this.#run();
  }

  /**
   * Takes no more, waits for what is running, and after `grace` gives back what still is: it will be sent again, by
   * whoever serves next, and the cut attempt does not count.
   */
  async stop(grace: Millis): Promise<void> {
    const { clock } = this.#options;
    this.#isStopping = true;
    this.#unsubscribe();
    this.#wake.abort();
    await this.#loop;
    const emptied = new Promise<void>((resolve) => (this.#resolveEmpty = resolve));
    const cancelGrace = new AbortController();
    if (this.#running.length + this.#settling > 0) await Promise.race([emptied, clock.sleep(clock.now() + grace, cancelGrace.signal)]);
    cancelGrace.abort();
    this.#isCut = true;
    const left = this.#abortAll();
    await this.#leaseGuard?.end();
    if (left.length === 0) return;
    const failureText = "giving back what was not finished failed; it is sent again when its leases run out";
    await this.#updateLeases("returnLeases", left, failureText);
  }

  /** The hands of this node, as they are now. */
  readCapacity(): DeliveryCapacity {
    const { total, perHost, bytes: { perBatch } = { perBatch: memory.batch } } = this.#options.capacity;
    const free = this.#isStopping || !this.#maySend ? 0 : total - this.#running.length;
    return {
      free,
      perHost,
      backlog: this.#backlog,
      runningByLane: new Map(this.#runningByLane),
      bytes: { free: this.#bodyBytes.free, perBatch, byLane: this.#bodyBytes.byLane },
      heldByAccount: { deliveries: { total, byAccount: new Map(this.#runningByAccount) }, bytes: this.#bodyBytes.heldByAccount },
      denied: (lane) => this.#deniedHosts.note(lane),
    };
  }

  get #maySend(): boolean {
    return this.#leaseGuard?.maySend ?? true;
  }

  /** Ends all deliveries without a report, and returns them. */
  #abortAll(): LeaseRef[] {
    const left = this.#running;
    this.#running = [];
    for (const running of left) running.index = notRunning;
    for (const { call } of left) call.abort();
    return left.map(({ delivery }) => toLeaseRef(delivery));
  }

  /** How many deliveries are running. */
  get running(): number {
    return this.#running.length;
  }

  /** How many deliveries are running, or have ended and are not settled yet. Messages that wait, also for a retry, are not among them. */
  get inFlight(): number {
    return this.#running.length + this.#settling;
  }

  /** One turn: claims what is due, as far as hands are free, and notes when to look again. */
  async tick(): Promise<void> {
    const { store, clock } = this.#options;
    const free = this.readCapacity().free;
    this.#nextAt = null;
    this.#isOutOfCapacity = free <= 0;
    if (this.#isOutOfCapacity) return void (this.#backlog = true);
    const askedAt = clock.now();
    const hostWaitlists = Math.min(claimLimit, free);
    const { more, now, turns, backlogged } = await this.#claimer.next({
      limit: claimLimit,
      hostWaitlists,
      ...this.#claimPosition,
    });
    this.#claimPosition = { turns, backlogged };
    // It was `now` between the question and the answer. If both clocks can have been right, they are taken to be.
    this.#clockOffset = Math.max(askedAt - now, Math.min(0, clock.now() - now));
    this.#backlog = more && new Set(backlogged);
    const next = more ? immediately : await store.nextDueAt();
    // What is left alone is due all the time.
    const hasPausedRows = !more && this.#claimer.hasPausedRows;
    if (next !== null) this.#claimAt(hasPausedRows ? Math.max(next, now + retryPause) : next);
  }

  async #run(): Promise<void> {
    const { clock } = this.#options;
    for (await this.#untilDue(); !this.#isStopping; await this.#untilDue()) {
      try {
        // First the outcomes of what is sent already: their leases may have run out while nobody could store anything.
        const sinceUnavailable = clock.now() - this.#unavailableAt;
        if (sinceUnavailable >= 0 && sinceUnavailable < retryPause / 2)
          this.#nextAt = this.#unavailableAt - this.#clockOffset + retryPause / 2;
        else {
          await this.#renewLate();
          await this.tick();
          this.#loggedClaimFailure = null;
        }
      } catch (error) {
        this.#logClaimFailure(error);
        this.#nextAt = clock.now() - this.#clockOffset + retryPause;
      }
    }
  }

  /** An outage fails each second in the same way, and is told of once a minute. */
  #logClaimFailure(error: unknown): void {
    const { clock, log } = this.#options;
    const message = String(error);
    const at = clock.now();
    if (this.#loggedClaimFailure?.message === message && Math.abs(at - this.#loggedClaimFailure.at) < logInterval) return;
    this.#loggedClaimFailure = { message, at };
    log.failure("claiming what is due failed; it is tried again each second", error);
  }

  /** Sleeps until there is something to claim. A clock that is wrong, or is set meanwhile, does not make it claim in vain. */
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
    if (this.#isOutOfCapacity || (this.#nextAt !== null && this.#nextAt <= at)) return;
    this.#nextAt = at;
    this.#wake.abort();
  }

  #send(delivery: Delivery): void {
    if (!this.#maySend) return this.#leaseGuard?.returnLeases([toLeaseRef(delivery)]);
    const host = parseHost(delivery.message.url);
    const lane = laneName(delivery.message.account, host);
    const responseRoom = this.#bodyBytes.openRoom(lane);
    const call = delivery.unsendable === undefined ? this.#options.deliver(delivery, responseRoom) : failUnsendable(delivery);
    const running: Running = { delivery, lane, call, leasedAt: this.#options.clock.now(), index: this.#running.length, responseRoom };
    if (this.#isCut) running.call.abort();
    this.#running.push(running);
    this.#count(running, 1);
    if (!this.#isRenewing) void this.#renew();
    void this.#sendAndSettle(running);
  }

  /** Of a cancelled message. Its places are free when its outcome has been settled, as those of any other. */
  #abort({ account, messageId, attempt }: LeaseRef): void {
    for (const { delivery, call } of this.#running) {
      const { message } = delivery;
      if (message.id === messageId && message.account === account && delivery.attempt === attempt) call.abort();
    }
  }

  /** The last one takes its place. */
  #remove(running: Running): void {
    const last = this.#running.pop();
    if (last !== undefined && last !== running) {
      this.#running[running.index] = last;
      last.index = running.index;
    }
    running.index = notRunning;
  }

  #count({ delivery, lane }: Running, by: 1 | -1): void {
    addToCount(this.#runningByLane, lane, by);
    addToCount(this.#runningByAccount, delivery.message.account, by);
    this.#bodyBytes.count(lane, by * delivery.message.body.byteLength);
  }

  async #sendAndSettle(running: Running): Promise<void> {
    const { log } = this.#options;
    const { delivery, call } = running;
    const outcome = await call.outcome;
    this.#count(running, -1);
    // Not running any more: it is given back.
    if (running.index === notRunning) {
      running.responseRoom.close();
      return this.#checkEmpty();
    }
    this.#remove(running);
    this.#wakeDenied(delivery);
    this.#settling++;
    if (this.#isOutOfCapacity) {
      this.#isOutOfCapacity = false;
      this.#claimAt(immediately);
    }
    const settled = await this.#settle(delivery, outcome);
    running.responseRoom.close();
    if (outcome.body.byteLength > 0) this.#wakeDenied(delivery);
    if (settled) log.attempt(delivery, outcome, settled.became);
    this.#settling--;
    this.#checkEmpty();
  }

  /** Offers the capacity or the memory that a delivery has left to a host that waits because its account held its share. */
  #wakeDenied({ message }: Delivery): void {
    const capacity = { total: this.#options.capacity.total, free: this.#options.capacity.total - this.#running.length };
    void this.#deniedHosts.ended(message.account, (account) => leavesReserve(capacity, this.#runningByAccount.get(account) ?? 0, 1));
  }

  #checkEmpty(): void {
    if (this.#running.length + this.#settling === 0) this.#resolveEmpty();
  }

  /**
   * Reports until the store takes it, for as long as the report can matter: past the lease another node has sent it again. Not while
   * the storage is away: nobody can take over a lease then, so as soon as it is back the report counts if it is there first.
   */
  async #settle({ message }: Delivery, outcome: Outcome): Promise<Settled | null> {
    const { store, clock, log } = this.#options;
    const until = clock.now() + spans.lease;
    // Others may stand in line for its place; that of a callback is the place of what it tells of.
    const mustSettleSoon = message.queue !== null || message.flowControl !== null || message.reportsOn !== null;
    let wasUnavailable = false;
    for (;;) {
      try {
        return await store.execute("settle", outcome, { canWait: !mustSettleSoon && this.#isQuiet() });
      } catch (error) {
        const isUnavailable = error instanceof Refusal && error.code === "unavailable" && !this.#isStopping;
        if (!(isUnavailable && wasUnavailable)) log.failure(`storing the outcome of ${outcome.messageId} failed`, error);
        wasUnavailable = isUnavailable;
        if (isUnavailable) this.#unavailableAt = clock.now();
        if (!isUnavailable && clock.now() >= until) return null;
        await clock.sleep(clock.now() + (isUnavailable ? retryPause / 4 : retryPause), new AbortController().signal);
      }
    }
  }

  /** Nothing waits for the outcomes of this node: no hand, no backlog. */
  #isQuiet(): boolean {
    return !this.#backlog && !this.#isOutOfCapacity && !this.#isStopping && this.#running.length < quietBelow;
  }

  /** Keeps the leases of deliveries that take long. Sleeps only while there are any. */
  async #renew(): Promise<void> {
    const { clock } = this.#options;
    // Two rounds may fail before a lease runs out.
    const period = spans.lease / 4;
    this.#isRenewing = true;
    while (this.#running.length > 0) {
      const runningBefore = [...this.#running];
      await clock.sleep(clock.now() + period, new AbortController().signal);
      const stillRunning = runningBefore.filter(({ index }) => index !== notRunning);
      if (stillRunning.length > 0) await this.#renewAll(stillRunning);
    }
    this.#isRenewing = false;
  }

  /** The clock was put forward, or this process stood still: the leases go on before a claim takes them for lost. */
  async #renewLate(): Promise<void> {
    const before = this.#options.clock.now() - (3 * spans.lease) / 4;
    const late = this.#running.filter(({ leasedAt }) => leasedAt < before);
    if (late.length > 0) await this.#renewAll(late);
  }

  async #renewAll(deliveries: readonly Running[]): Promise<void> {
    const now = this.#options.clock.now();
    for (const running of deliveries) running.leasedAt = now;
    const leases = deliveries.map(({ delivery }) => toLeaseRef(delivery));
    await this.#updateLeases("renew", leases, "renewing leases failed; trying again");
  }

  /** All leases together; when that cannot be stored, in halves: one of them must not cost the others theirs. */
  async #updateLeases(command: "renew" | "returnLeases", leases: readonly LeaseRef[], failureText: string): Promise<void> {
    const { store, log } = this.#options;
    try {
      await store.execute(command, { leases });
    } catch (error) {
      if (leases.length === 1 || error instanceof Refusal) return log.failure(failureText, error);
      const middle = Math.ceil(leases.length / 2);
      await this.#updateLeases(command, leases.slice(0, middle), failureText);
      await this.#updateLeases(command, leases.slice(middle), failureText);
    }
  }
}
