import type { Burst, Share } from "../../core/accounts/requestRate.ts";
import { mostInSecond } from "../../core/accounts/requestRate.ts";
import type { Account, AccountId, Millis } from "../../core/model/message.ts";
import type { Store } from "../../store/store.ts";
import { Bursts } from "./bursts.ts";

/** What nodes share the requests of a second by, and how a node waits for it. */
export type Sharing = {
  store: Pick<Store, "execute">;
  now(): Millis;
  sleep(until: Millis, wake: AbortSignal): Promise<void>;
};

/** A request does not wait longer than this for other nodes: it is counted by this node alone then, as it is where the store fails. */
const patience: Millis = 2_000;

/**
 * Counts what accounts ask of all nodes together in the second that it is, by the clock of the store. Each node takes a few requests
 * of the second at a time (see `core/accounts/requestRate.ts`), and asks the store for more only when those are used up and there may be more.
 */
export class SharedBursts {
  readonly #sharing: Sharing;
  readonly #alone = new Bursts();
  readonly #accounts = new Map<AccountId, Allotted>();
  #sweptAt: Millis = 0;

  constructor(sharing: Sharing) {
    this.#sharing = sharing;
  }

  /** One more request. Null: the account has no limit. A promise, where the store must be asked. */
  ask(account: Account, now: Millis): Burst | null | Promise<Burst | null> {
    if (mostInSecond(account) === null) return null;
    this.#sweep(now);
    let allotted = this.#accounts.get(account.id);
    if (!allotted) this.#accounts.set(account.id, (allotted = new Allotted(this.#sharing, account.id)));
    if (allotted.isLate) return this.#alone.ask(account, now);
    return allotted.ask(now) ?? allotted.fetched().then((burst) => (burst === "unknown" ? this.#alone.ask(account, now) : burst));
  }

  /** Nothing is kept of accounts that have not asked in this second or the one before. */
  #sweep(now: Millis): void {
    if (now >= this.#sweptAt && now < this.#sweptAt + 1000) return;
    this.#sweptAt = now;
    for (const [id, allotted] of this.#accounts) if (allotted.isOver(now)) this.#accounts.delete(id);
  }
}

/** How it ends for a request that had to wait. Null: the account has no limit any more. `unknown`: nobody has told in time. */
type Ended = Burst | null | "unknown";

/** What this node has of the second for one account, and those that wait for more. */
class Allotted {
  /** The store has not answered in time, and may still do so. */
  isLate = false;
  readonly #sharing: Sharing;
  readonly #account: AccountId;
  #share: Share = { granted: 0, left: 0, limit: 0, second: 0, endsIn: 0 };
  /** Requests that may be let through without asking. */
  #inHand = 0;
  /** All that were granted in this second. */
  #had = 0;
  /** The second is certainly that of the share from here on, and before there, by the clock of this node. */
  #from: Millis = 0;
  #until: Millis = 0;
  #waiting: ((ended: Ended) => void)[] = [];
  #isFetching = false;

  constructor(sharing: Sharing, account: AccountId) {
    this.#sharing = sharing;
    this.#account = account;
  }

  isOver(now: Millis): boolean {
    return !this.#isFetching && !this.isLate && !this.#isCurrent(now);
  }

  /** What is known at once. Null: the store must be asked. */
  ask(now: Millis): Burst | null {
    if (!this.#isCurrent(now)) return null;
    if (this.#inHand > 0 && this.#waiting.length === 0) return this.#letIn();
    return this.#inHand === 0 && this.#share.left === 0 ? this.#refused() : null;
  }

  fetched(): Promise<Ended> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      if (!this.#isFetching) void this.#fetch();
    });
  }

  /** One question at a time, for all that wait, until nobody does. */
  async #fetch(): Promise<void> {
    this.#isFetching = true;
    while (this.#waiting.length > 0) {
      const asking = this.#waiting.length;
      const askedAt = this.#sharing.now();
      const wanted = this.#isCurrent(askedAt) ? this.#had : 0;
      const share = await this.#inTime(this.#sharing.store.execute("takeBurst", { account: this.#account, needed: asking, wanted }));
      if (share === null || share === "unknown") {
        for (const tell of this.#waiting.splice(0)) tell(share);
        continue;
      }
      this.#take(share, askedAt);
      // They are of the second that was asked for, also if it has ended since.
      for (const tell of this.#waiting.splice(0, asking)) tell(this.#inHand > 0 ? this.#letIn() : this.#refused());
      this.#serve();
    }
    this.#isFetching = false;
  }

  /** Those that came meanwhile. */
  #serve(): void {
    const waiting = this.#waiting.splice(0);
    for (const [index, tell] of waiting.entries()) {
      const burst = this.ask(this.#sharing.now());
      if (burst === null) return void this.#waiting.push(...waiting.slice(index));
      tell(burst);
    }
  }

  #take(share: Share, askedAt: Millis): void {
    const isSame = share.second === this.#share.second;
    this.#inHand = (isSame ? this.#inHand : 0) + share.granted;
    this.#had = (isSame ? this.#had : 0) + share.granted;
    this.#share = share;
    // The store said so after it was asked: the second ends there at the earliest.
    this.#from = askedAt;
    this.#until = askedAt + share.endsIn;
  }

  /** An answer that comes too late is of no use; until then nobody waits for another one. */
  async #inTime(answer: Promise<Share | null>): Promise<Share | null | "unknown"> {
    const settled = answer.catch((): "unknown" => "unknown");
    const { now, sleep } = this.#sharing;
    const wake = new AbortController();
    const first = await Promise.race([settled, sleep(now() + patience, wake.signal).then((): "late" => "late")]);
    wake.abort();
    if (first !== "late") return first;
    this.isLate = true;
    void settled.then(() => (this.isLate = false));
    return "unknown";
  }

  #isCurrent(now: Millis): boolean {
    return now >= this.#from && now < this.#until;
  }

  #letIn(): Burst {
    this.#inHand--;
    return { ...this.#told(), taken: true };
  }

  #refused(): Burst {
    return { ...this.#told(), taken: false };
  }

  #told(): Omit<Burst, "taken"> {
    const { limit, second, left } = this.#share;
    return { limit, remaining: this.#inHand + left, resetAt: second + 1 };
  }
}
