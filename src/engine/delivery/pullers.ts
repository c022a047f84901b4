import { laneName } from "../core/admission/capacity.ts";
import { leavesReserve } from "../core/node/lastPart.ts";
import type { Outcome } from "../core/model/attempt.ts";
import type { Delivery } from "../core/model/delivery.ts";
import { notPulledError } from "../core/sending/endedAttempt.ts";
import { noResponse } from "../core/sending/recordOutcome.ts";
import { Refusal } from "../core/values/errors.ts";
import { limits, spans } from "../core/values/limits.ts";
import { second } from "../core/values/time.ts";
import { parseHost, parseUrl } from "../core/values/url.ts";
import type { AccountId, IdKind, Millis } from "../core/values/basics.ts";
import type { AlarmClock } from "../clock/clock.ts";
import type { Store } from "../store/store.ts";
import { makeAttemptToken } from "./attemptToken.ts";
import type { DeliveryCall } from "./deliver.ts";
import { composeRequest } from "./deliveryRequest.ts";
import { abortedError, toErrorText } from "./deliveryError.ts";
import type { HttpRequest } from "./http/connection.ts";
import { addToCount } from "./runningDeliveries.ts";

/** A request for attempts to one host. `hasLeft` is aborted when the client has gone. */
export type Pull = {
  account: AccountId;
  host: string;
  /** The maximum number of attempts. */
  max: number;
  /** How long to wait for the first attempt. */
  wait: Millis;
  /** For how long the puller holds the attempts. */
  lease: Millis;
  hasLeft: AbortSignal;
};

/** An attempt for a puller: the request that it makes, and the token with which it reports the outcome. */
export type PulledAttempt = { delivery: Delivery; request: HttpRequest; token: string };

/**
 * The attempts for a pull. None: nothing came in time, or the origin is pulled no more (`isRemoved`). The
 * caller must call `end` once the response was sent, or could not be sent.
 */
export type Pulled = { attempts: readonly PulledAttempt[]; isRemoved?: true; end(wasSent: boolean): void };

type Offer = PulledAttempt & { resolve: (outcome: Outcome) => void; isAborted: boolean };

/** A pull that waits. */
type WaitingPull = Pull & { lane: string; offers: Offer[]; answer: (pulled: Pulled) => void };

/** The pulls of one destination that have no attempt yet, the oldest first. `isDry`: no message waits. */
type Lane = { pulls: WaitingPull[]; isDry: boolean; serving: Promise<void> | null; mustServe: boolean };

type PullersOptions = {
  store: Pick<Store, "execute" | "onDue" | "read">;
  clock: AlarmClock;
  region: string;
  newId: (kind: IdKind) => string;
  /** Whether other nodes use the store. Their messages may wait for a pull of this node. */
  isShared: boolean;
};

/**
 * Other nodes make the messages that wait for a pull due within this time: after `spans.waitlistCheck` by the
 * clock of the store. The rest is the difference between two clocks.
 */
const soon: Millis = spans.waitlistCheck + 5 * second;

/** Changes on other nodes are looked at once in this time, with one read for all pulls. */
const signalPause: Millis = 500;

/**
 * The clients that wait on this node to pull messages. A batch of the store gives them messages as it gives
 * messages to destinations: see `DeliveryCapacity.pulls`. The store is asked when a pull begins to wait where
 * messages may wait, and after signals of other nodes. So pulls that wait for nothing cost the store nothing.
 */
export class Pullers {
  readonly #options: PullersOptions;
  readonly #lanes = new Map<string, Lane>();
  readonly #byAccount = new Map<AccountId, number>();
  #count = 0;
  #isClosed = false;
  #isSignalled = false;
  readonly #unsubscribe: () => void;

  constructor(options: PullersOptions) {
    this.#options = options;
    const { store, clock, isShared } = options;
    const onDue = (at: Millis): void => void (at <= clock.now() + soon && this.#lookSoon());
    this.#unsubscribe = isShared ? store.onDue(onDue) : () => undefined;
  }

  /** The messages that pulls wait for, by lane. Undefined: there is no pull. */
  get room(): ReadonlyMap<string, number> | undefined {
    if (this.#lanes.size === 0) return undefined;
    return new Map([...this.#lanes].map(([lane, { pulls }]) => [lane, countRoom(pulls)]));
  }

  /** Waits for attempts. Throws `Refusal` if too many pulls wait. */
  pull(pull: Pull): Promise<Pulled> {
    const { account } = pull;
    if (this.#isClosed) throw new Refusal("stopping", "the server is stopping; retry later");
    const own = this.#byAccount.get(account) ?? 0;
    const total = limits.serverPulls;
    if (this.#count >= total) throw makeBusy(`${total} pulls wait on this server`);
    // A few accounts must not take all places.
    if (own >= limits.pulls || !leavesReserve({ total, free: total - this.#count }, own, 1))
      throw makeBusy(`${own} pulls of the account wait on this server, which is its share`);
    const { promise, resolve } = Promise.withResolvers<Pulled>();
    const lane = laneName(account, pull.host);
    const waiting: WaitingPull = { ...pull, lane, offers: [], answer: () => undefined };
    const end = (): void => answerEmpty(waiting);
    // A pull that does not wait still gets what waits for it.
    const expire = (): void => void Promise.resolve(this.#lanes.get(waiting.lane)?.serving).then(end);
    const cancel = this.#options.clock.alarm(pull.wait, expire);
    waiting.answer = (pulled) => {
      waiting.answer = () => undefined;
      cancel();
      pull.hasLeft.removeEventListener("abort", end);
      this.#remove(waiting);
      resolve(pulled);
    };
    this.#add(waiting);
    if (pull.hasLeft.aborted) end();
    else pull.hasLeft.addEventListener("abort", end);
    return promise;
  }

  /** Gives the messages that wait at a host to its pulls. If its origin is pulled no more, they end. */
  look(account: AccountId, host: string): void {
    this.#serve(laneName(account, host), { isDry: false });
  }

  /** Gives a delivery to a pull that waits. */
  take(delivery: Delivery, lane: string): DeliveryCall {
    const { promise, resolve } = Promise.withResolvers<Outcome>();
    const call = {
      outcome: promise,
      abort: () => resolve(this.#makeOutcome(delivery, { error: abortedError })),
    };
    const waiting = this.#lanes.get(lane)?.pulls.find(({ offers, max }) => offers.length < max);
    if (!waiting) {
      resolve(this.#makeOutcome(delivery, notPulled));
      return call;
    }
    try {
      const { message, attempt, pullKey = "" } = delivery;
      const { request } = composeRequest(delivery, parseUrl(message.url), this.#options);
      const token = makeAttemptToken({ ...message, ackKey: message.ackKey ?? pullKey }, attempt);
      const offer: Offer = { delivery, request, token, resolve, isAborted: false };
      // All messages of a batch are given at once, and then the pull is answered.
      if (waiting.offers.push(offer) === 1) process.nextTick(() => this.#answer(waiting));
      return {
        outcome: promise,
        abort: () => {
          offer.isAborted = true;
          call.abort();
        },
      };
    } catch (error) {
      resolve(this.#makeOutcome(delivery, { error: toErrorText(error) }));
      return call;
    }
  }

  /** Ends all pulls without attempts, and lets no more wait. */
  close(): void {
    this.#isClosed = true;
    this.#unsubscribe();
    for (const { pulls } of this.#lanes.values()) for (const waiting of [...pulls]) answerEmpty(waiting);
  }

  #answer(waiting: WaitingPull): void {
    const attempts = waiting.offers.filter(({ isAborted }) => !isAborted);
    const { lane, lease, max, hasLeft } = waiting;
    // While this pull was full, messages may have been held although another pull waits now.
    if (waiting.offers.length === max) this.#serve(lane, { isDry: false });
    const end = (wasSent: boolean): void => {
      for (const { delivery, resolve } of attempts)
        resolve(this.#makeOutcome(delivery, wasSent ? { heldFor: lease, error: null } : notPulled));
    };
    if (hasLeft.aborted) end(false);
    waiting.answer({ attempts, end });
  }

  #makeOutcome(
    { message, attempt }: Delivery,
    result: Pick<Outcome, "error"> & Partial<Pick<Outcome, "heldFor" | "isReturned">>,
  ): Outcome {
    const { account, id: messageId, url } = message;
    return { ...noResponse, account, messageId, host: parseHost(url), attempt, took: 0, ...result };
  }

  #add(waiting: WaitingPull): void {
    const { account, lane: name } = waiting;
    const lane = this.#lanes.get(name) ?? { pulls: [], isDry: false, serving: null, mustServe: false };
    this.#lanes.set(name, lane);
    lane.pulls.push(waiting);
    this.#count++;
    addToCount(this.#byAccount, account, 1);
    if (!lane.isDry) this.#serve(name, { isDry: false });
  }

  #remove(waiting: WaitingPull): void {
    const { account, lane: name } = waiting;
    const lane = this.#lanes.get(name);
    const at = lane?.pulls.indexOf(waiting) ?? -1;
    if (!lane || at < 0) return;
    lane.pulls.splice(at, 1);
    if (lane.pulls.length === 0) this.#lanes.delete(name);
    this.#count--;
    addToCount(this.#byAccount, account, -1);
  }

  #lookSoon(): void {
    if (this.#isSignalled || this.#lanes.size === 0 || this.#isClosed) return;
    this.#isSignalled = true;
    this.#options.clock.alarm(signalPause, () => {
      this.#isSignalled = false;
      void this.#lookAtAll();
    });
  }

  /** Serves the lanes for which messages wait in the store. */
  async #lookAtAll(): Promise<void> {
    const waited = [...this.#lanes.values()].flatMap(({ pulls: [first] }) => first ?? []);
    try {
      for (const { account, host } of await this.#options.store.read.pulledWork(waited))
        this.look(account, host);
    } catch {
      this.#lookSoon();
    }
  }

  /** Lets the store give the messages of a lane that wait. */
  #serve(name: string, { isDry }: { isDry: boolean }): void {
    const lane = this.#lanes.get(name);
    if (!lane) return;
    lane.isDry = isDry;
    lane.mustServe = true;
    lane.serving ??= this.#serveLane(name, lane);
  }

  async #serveLane(name: string, lane: Lane): Promise<void> {
    // Pulls that begin together need only one look.
    await Promise.resolve();
    while (lane.mustServe && this.#lanes.get(name) === lane && !this.#isClosed) {
      lane.mustServe = false;
      const [first] = lane.pulls;
      if (!first) break;
      const limit = Math.min(Math.max(countRoom(lane.pulls), 1), limits.pulledAttempts);
      const input = { account: first.account, host: first.host, limit };
      // If this fails, the waitlist is served when it is due.
      const { areLeft, isPulled } = await this.#options.store
        .execute("servePullers", input)
        .catch(() => ({ areLeft: true, isPulled: true }));
      lane.isDry = !areLeft && !lane.mustServe;
      if (!isPulled) for (const waiting of [...lane.pulls]) answerEmpty(waiting, { isRemoved: true });
    }
    lane.serving = null;
  }
}

const makeBusy = (why: string): Refusal => new Refusal("busy", `pull: ${why}; retry later`);

/** Returns how many more attempts pulls take. */
const countRoom = (pulls: readonly WaitingPull[]): number =>
  pulls.reduce((sum, { max, offers }) => sum + max - offers.length, 0);

/** Ends a pull without attempts. A pull that has some is answered at once. */
function answerEmpty({ offers, answer }: WaitingPull, why: Pick<Pulled, "isRemoved"> = {}): void {
  if (offers.length === 0) answer({ attempts: [], ...why, end: () => undefined });
}

const notPulled = { error: notPulledError, isReturned: true } as const;
