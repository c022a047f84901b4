import { Refusal } from "../core/values/errors.ts";
import type { Hands } from "../core/admission/capacity.ts";
import { laneOf } from "../core/admission/capacity.ts";
import { leavesLastPart } from "../core/fairness/lastPart.ts";
import { memory, spans } from "../core/values/limits.ts";
import type { AccountId, Delivery, Held, Millis, Outcome } from "../core/model/message.ts";
import { hostOf } from "../core/values/url.ts";
import type { Settled } from "../core/commands/settle.ts";
import type { Claimed } from "../core/commands/claim.ts";
import type { Store, Unsubscribe } from "../store/store.ts";
import { BodyBytes } from "./http/bodyBytes.ts";
import { Claims } from "./claims.ts";
import type { Clock } from "../clock/clock.ts";
import type { Deliver, DeliveryCall } from "./deliver.ts";
import { DeniedHosts } from "./deniedHosts.ts";
import { unsent } from "./unsent.ts";
import { HoldGuard } from "./holdGuard.ts";
import { minute } from "../core/values/time.ts";

export type DispatcherLog = {
  attempt(delivery: Delivery, outcome: Outcome, settled: Settled["became"]): void;
  trouble(what: string, error: unknown): void;
};

export type DispatcherParts = {
  store: Store;
  deliver: Deliver;
  clock: Clock;
  log: DispatcherLog;
  /** Deliveries running at once: in all, and to one host. */
  hands: { total: number; perHost: number; bytes?: DispatcherBytes };
};

/** Bytes of bodies: of all that are being sent or received, and of what one batch loads to be sent. */
type DispatcherBytes = { total: number; perBatch: number };

/**
 * `leasedAt`: when its lease was taken or renewed last, by the clock of this node. `place`: among those that run; `over` after that.
 * `room`: the memory of its response.
 */
type Running = { delivery: Delivery; lane: string; call: DeliveryCall; leasedAt: Millis; place: number; room: { close(): void } };

/** Most messages that one claim looks at. Publishes wait for it: during a backlog their p99 was 30 ms with 64, and 80 ms with 256. */
const claimLimit = 64;
/** With fewer deliveries running, no destination can have a line of waiting messages, and outcomes need no haste. */
const quietBelow = 32;
const atOnce: Millis = 0;
/** The place of what does not run any more. */
const over = -1;
/** After a fault of the storage: how long until the next try. */
const patience = 1000;
/** After so long the same trouble is told of again. */
const refrain: Millis = minute;

/**
 * Sends what is due: claim → deliver → settle. It claims when the store says that something is due and a hand is
 * free, never else; most messages come to it already leased, from the very batch that took them in.
 */
export class Dispatcher {
  readonly #parts: DispatcherParts;
  readonly #claims: Claims;
  readonly #guard: HoldGuard | null;
  /** A plain list, whose places are handed on: see docs/decisions/0034. */
  #running: Running[] = [];
  readonly #busy = new Map<string, number>();
  readonly #busyByAccount = new Map<AccountId, number>();
  readonly #bytes: BodyBytes;
  readonly #denied: DeniedHosts;
  /** Outcomes on their way to the store. */
  #reports = 0;
  /** When the storage could not take one of them last, because it was away. Each is tried again soon after. */
  #awayAt: Millis = Number.NEGATIVE_INFINITY;
  /** When to claim next, in the time of the store; `atOnce` is always past. */
  #nextAt: Millis | null = null;
  /** By how much the clock of this node is ahead of the store's, as far as the last claim could tell. */
  #ahead: Millis = 0;
  /** Why claiming failed, as it was told last; null when it has succeeded since. */
  #told: { what: string; at: Millis } | null = null;
  #starved = false;
  #behind: Hands["behind"] = true;
  /** Where the next claim begins its turns through the accounts. */
  #last: Pick<Claimed, "turns" | "behind"> = { turns: {}, behind: [] };
  #stopping = false;
  #renewing = false;
  #alarm = new AbortController();
  /** The time to stop is over: what is running is cut off. */
  #isCut = false;
  #loop: Promise<void> | null = null;
  #unsubscribe: Unsubscribe = () => undefined;
  #emptied: () => void = () => undefined;

  constructor(parts: DispatcherParts) {
    this.#parts = parts;
    this.#bytes = new BodyBytes(parts.hands.bytes?.total ?? memory.sending);
    const { store, clock, log } = parts;
    // A line that was not woken is looked at all the same, a little later.
    this.#denied = new DeniedHosts((account, hosts) => store.execute("wakeLines", { account, hosts }).catch(() => undefined));
    this.#claims = new Claims({ store, now: () => clock.now(), trouble: (what, error) => log.trouble(what, error) });
    const resume = (): void => {
      this.#starved = false;
      this.#lookAt(atOnce);
    };
    this.#guard = store.hold ? new HoldGuard({ hold: store.hold, store, clock, abortAll: () => this.#abortAll(), resume }) : null;
  }

  /** Begins to send. What is due already is claimed at once. */
  start(): void {
    const { store } = this.#parts;
    store.attach({
      hands: () => this.hands(),
      deliver: (delivery) => this.#send(delivery),
      callOff: (held) => this.#callOff(held),
      fault: (what) => this.#parts.log.trouble("the storage is damaged", new Error(what)),
    });
    this.#unsubscribe = store.onDue((at) => this.#lookAt(at));
    this.#nextAt = atOnce;
    this.#loop = this.#run();
  }

  /**
   * Takes no more, waits for what is running, and after `grace` gives back what still is: it will be sent again, by
   * whoever serves next, and the cut attempt does not count.
   */
  async stop(grace: Millis): Promise<void> {
    const { clock } = this.#parts;
    this.#stopping = true;
    this.#unsubscribe();
    this.#alarm.abort();
    await this.#loop;
    const empty = new Promise<void>((resolve) => (this.#emptied = resolve));
    const patienceEnds = new AbortController();
    if (this.#running.length + this.#reports > 0) await Promise.race([empty, clock.sleep(clock.now() + grace, patienceEnds.signal)]);
    patienceEnds.abort();
    this.#isCut = true;
    const left = this.#abortAll();
    await this.#guard?.end();
    if (left.length === 0) return;
    const trouble = "giving back what was not finished failed; it is sent again when its leases run out";
    await this.#ofLeases("giveBack", left, trouble);
  }

  /** The hands of this node, as they are now. */
  hands(): Hands {
    const { total, perHost, bytes: { perBatch } = { perBatch: memory.batch } } = this.#parts.hands;
    const free = this.#stopping || !this.#maySend ? 0 : total - this.#running.length;
    return {
      ...{ free, perHost, behind: this.#behind, busy: new Map(this.#busy) },
      bytes: { free: this.#bytes.free, perBatch, busy: this.#bytes.byLane },
      held: { hands: { total, byAccount: new Map(this.#busyByAccount) }, bytes: this.#bytes.held },
      denied: (lane) => this.#denied.note(lane),
    };
  }

  get #maySend(): boolean {
    return this.#guard?.maySend ?? true;
  }

  /** Ends all deliveries without a report, and returns them. */
  #abortAll(): Held[] {
    const left = this.#running;
    this.#running = [];
    for (const running of left) running.place = over;
    for (const { call } of left) call.abort();
    return left.map(({ delivery }) => heldOf(delivery));
  }

  /** How many deliveries are running. */
  get running(): number {
    return this.#running.length;
  }

  /** How many deliveries are running, or have ended and are not settled yet. Messages that wait, also for a retry, are not among them. */
  get inFlight(): number {
    return this.#running.length + this.#reports;
  }

  /** One turn: claims what is due, as far as hands are free, and notes when to look again. */
  async tick(): Promise<void> {
    const { store, clock } = this.#parts;
    const free = this.hands().free;
    this.#nextAt = null;
    this.#starved = free <= 0;
    if (this.#starved) return void (this.#behind = true);
    const asked = clock.now();
    const lines = Math.min(claimLimit, free);
    const { more, now, turns, behind } = await this.#claims.next({
      limit: claimLimit,
      lines,
      ...this.#last,
    });
    this.#last = { turns, behind };
    // It was `now` between the question and the answer. If both clocks can have been right, they are taken to be.
    this.#ahead = Math.max(asked - now, Math.min(0, clock.now() - now));
    this.#behind = more && new Set(behind);
    const next = more ? atOnce : await store.nextDueAt();
    // What is left alone is due all the time.
    const isWaiting = !more && this.#claims.leavesSome;
    if (next !== null) this.#lookAt(isWaiting ? Math.max(next, now + patience) : next);
  }

  async #run(): Promise<void> {
    const { clock } = this.#parts;
    for (await this.#untilDue(); !this.#stopping; await this.#untilDue()) {
      try {
        // First the outcomes of what is sent already: their leases may have run out while nobody could store anything.
        const sinceAway = clock.now() - this.#awayAt;
        if (sinceAway >= 0 && sinceAway < patience / 2) this.#nextAt = this.#awayAt - this.#ahead + patience / 2;
        else {
          await this.#renewLate();
          await this.tick();
          this.#told = null;
        }
      } catch (error) {
        this.#tellOfClaim(error);
        this.#nextAt = clock.now() - this.#ahead + patience;
      }
    }
  }

  /** An outage fails each second in the same way, and is told of once a minute. */
  #tellOfClaim(error: unknown): void {
    const { clock, log } = this.#parts;
    const [what, at] = [String(error), clock.now()];
    if (this.#told?.what === what && Math.abs(at - this.#told.at) < refrain) return;
    this.#told = { what, at };
    log.trouble("claiming what is due failed; it is tried again each second", error);
  }

  /** Sleeps until there is something to claim. A clock that is wrong, or is set meanwhile, does not make it claim in vain. */
  async #untilDue(): Promise<void> {
    const { clock } = this.#parts;
    while (!this.#stopping) {
      const until = (this.#nextAt ?? Infinity) + this.#ahead;
      if (until <= clock.now()) return;
      const alarm = new AbortController();
      this.#alarm = alarm;
      await clock.sleep(until, alarm.signal);
      if (!alarm.signal.aborted) return;
    }
  }

  #lookAt(at: Millis): void {
    if (this.#starved || (this.#nextAt !== null && this.#nextAt <= at)) return;
    this.#nextAt = at;
    this.#alarm.abort();
  }

  #send(delivery: Delivery): void {
    if (!this.#maySend) return this.#guard?.giveBack([heldOf(delivery)]);
    const host = hostOf(delivery.message.url);
    const lane = laneOf(delivery.message.account, host);
    const room = this.#bytes.open(lane);
    const call = delivery.unsendable === undefined ? this.#parts.deliver(delivery, room) : unsent(delivery);
    const running: Running = { delivery, lane, call, leasedAt: this.#parts.clock.now(), place: this.#running.length, room };
    if (this.#isCut) running.call.abort();
    this.#running.push(running);
    this.#count(running, 1);
    if (!this.#renewing) void this.#renew();
    void this.#sendAndSettle(running);
  }

  /** Of a cancelled message. Its places are free when its outcome has been settled, as those of any other. */
  #callOff({ account, messageId, attempt }: Held): void {
    for (const { delivery, call } of this.#running) {
      const { message } = delivery;
      if (message.id === messageId && message.account === account && delivery.attempt === attempt) call.abort();
    }
  }

  /** The last one takes its place. */
  #remove(running: Running): void {
    const last = this.#running.pop();
    if (last !== undefined && last !== running) {
      this.#running[running.place] = last;
      last.place = running.place;
    }
    running.place = over;
  }

  #count({ delivery, lane }: Running, by: 1 | -1): void {
    add(this.#busy, lane, by);
    add(this.#busyByAccount, delivery.message.account, by);
    this.#bytes.count(lane, by * delivery.message.body.byteLength);
  }

  async #sendAndSettle(running: Running): Promise<void> {
    const { log } = this.#parts;
    const { delivery, call } = running;
    const outcome = await call.outcome;
    this.#count(running, -1);
    // Not running any more: it is given back.
    if (running.place === over) {
      running.room.close();
      return this.#checkEmpty();
    }
    this.#remove(running);
    this.#wakeDenied(delivery);
    this.#reports++;
    if (this.#starved) {
      this.#starved = false;
      this.#lookAt(atOnce);
    }
    const settled = await this.#settle(delivery, outcome);
    running.room.close();
    if (outcome.body.byteLength > 0) this.#wakeDenied(delivery);
    if (settled) log.attempt(delivery, outcome, settled.became);
    this.#reports--;
    this.#checkEmpty();
  }

  /** Offers the capacity or the memory that a delivery has left to a host that waits because its account held its share. */
  #wakeDenied({ message }: Delivery): void {
    const capacity = { total: this.#parts.hands.total, free: this.#parts.hands.total - this.#running.length };
    void this.#denied.ended(message.account, (account) => leavesLastPart(capacity, this.#busyByAccount.get(account) ?? 0, 1));
  }

  #checkEmpty(): void {
    if (this.#running.length + this.#reports === 0) this.#emptied();
  }

  /**
   * Reports until the store takes it, for as long as the report can matter: past the lease another node has sent it again. Not while
   * the storage is away: nobody can take over a lease then, so as soon as it is back the report counts if it is there first.
   */
  async #settle({ message }: Delivery, outcome: Outcome): Promise<Settled | null> {
    const { store, clock, log } = this.#parts;
    const until = clock.now() + spans.lease;
    // Others may stand in line for its place; that of a callback is the place of what it tells of.
    const isWaitedFor = message.queue !== null || message.flowControl !== null || message.tells !== null;
    let wasAway = false;
    for (;;) {
      try {
        return await store.execute("settle", outcome, { canWait: !isWaitedFor && this.#isQuiet() });
      } catch (error) {
        const isAway = error instanceof Refusal && error.code === "unavailable" && !this.#stopping;
        if (!(isAway && wasAway)) log.trouble(`storing the outcome of ${outcome.messageId} failed`, error);
        wasAway = isAway;
        if (isAway) this.#awayAt = clock.now();
        if (!isAway && clock.now() >= until) return null;
        await clock.sleep(clock.now() + (isAway ? patience / 4 : patience), new AbortController().signal);
      }
    }
  }

  /** Nothing waits for the outcomes of this node: no hand, no backlog. */
  #isQuiet(): boolean {
    return !this.#behind && !this.#starved && !this.#stopping && this.#running.length < quietBelow;
  }

  /** Keeps the leases of deliveries that take long. Sleeps only while there are any. */
  async #renew(): Promise<void> {
    const { clock } = this.#parts;
    // Two rounds may fail before a lease runs out.
    const period = spans.lease / 4;
    this.#renewing = true;
    while (this.#running.length > 0) {
      const begun = [...this.#running];
      await clock.sleep(clock.now() + period, new AbortController().signal);
      const old = begun.filter(({ place }) => place !== over);
      if (old.length > 0) await this.#renewAll(old);
    }
    this.#renewing = false;
  }

  /** The clock was put forward, or this process stood still: the leases go on before a claim takes them for lost. */
  async #renewLate(): Promise<void> {
    const before = this.#parts.clock.now() - (3 * spans.lease) / 4;
    const late = this.#running.filter(({ leasedAt }) => leasedAt < before);
    if (late.length > 0) await this.#renewAll(late);
  }

  async #renewAll(all: readonly Running[]): Promise<void> {
    const now = this.#parts.clock.now();
    for (const running of all) running.leasedAt = now;
    const held = all.map(({ delivery }) => heldOf(delivery));
    await this.#ofLeases("renew", held, "renewing leases failed; trying again");
  }

  /** All leases together; when that cannot be stored, in halves: one of them must not cost the others theirs. */
  async #ofLeases(command: "renew" | "giveBack", held: readonly Held[], trouble: string): Promise<void> {
    const { store, log } = this.#parts;
    try {
      await store.execute(command, { held });
    } catch (error) {
      if (held.length === 1 || error instanceof Refusal) return log.trouble(trouble, error);
      const middle = Math.ceil(held.length / 2);
      await this.#ofLeases(command, held.slice(0, middle), trouble);
      await this.#ofLeases(command, held.slice(middle), trouble);
    }
  }
}

/** Those that have nothing left are forgotten. */
function add(counts: Map<string, number>, name: string, by: number): void {
  const count = (counts.get(name) ?? 0) + by;
  if (count === 0) counts.delete(name);
  else counts.set(name, count);
}

const heldOf = ({ message, attempt }: Delivery): Held => ({ account: message.account, messageId: message.id, attempt });
