import type { Burst, BurstShare } from "../../engine/core/limits/requestRate.ts";
import { readRequestRateLimit } from "../../engine/core/limits/requestRate.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { Store } from "../../engine/store/store.ts";
import { Bursts } from "./bursts.ts";

/** The store through which nodes share the requests of a second, and the clock of this node. */
export type BurstSharing = {
  store: Pick<Store, "execute">;
  now(): Millis;
  sleep(until: Millis, wake: AbortSignal): Promise<void>;
};

/**
 * The longest time that a request waits for other nodes. After that, or if the store fails, this node counts
 * the request alone.
 */
const grace: Millis = 2_000;

/**
 * Counts the requests of accounts at all nodes together in the current second, by the clock of the store.
 * Each node takes a few requests of the second at a time (see `engine/core/limits/requestRate.ts`). It asks
 * the store for more only when those are used up and more may be left.
 */
export class SharedBursts {
  readonly #burstSharing: BurstSharing;
  readonly #ownBursts = new Bursts();
  readonly #accounts = new Map<AccountId, AccountShare>();
  #sweptAt: Millis = 0;

  constructor(sharing: BurstSharing) {
    this.#burstSharing = sharing;
  }

  /**
   * Counts one more request. Returns null if the account has no limit, and a promise if the store must be
   * asked.
   */
  count(account: Account, now: Millis): Burst | null | Promise<Burst | null> {
    if (readRequestRateLimit(account) === null) return null;
    this.#sweep(now);
    let share = this.#accounts.get(account.id);
    if (!share) this.#accounts.set(account.id, (share = new AccountShare(this.#burstSharing, account.id)));
    if (share.isLate) return this.#ownBursts.count(account, now);
    return (
      share.count(now) ??
      share
        .waitForShare()
        .then((burst) => (burst === "unknown" ? this.#ownBursts.count(account, now) : burst))
    );
  }

  /** Drops accounts that sent no request in this second or the one before. */
  #sweep(now: Millis): void {
    if (now >= this.#sweptAt && now < this.#sweptAt + 1000) return;
    this.#sweptAt = now;
    for (const [id, share] of this.#accounts) if (share.isOver(now)) this.#accounts.delete(id);
  }
}

/**
 * The result for a request that had to wait. Null: the account no longer has a limit. "unknown": the store
 * failed or did not answer in time.
 */
type WaitResult = Burst | null | "unknown";

/** This node's share of the second for one account, and the requests that wait for more. */
class AccountShare {
  /** Whether the store has not answered in time and may still answer. */
  isLate = false;
  readonly #sharing: BurstSharing;
  readonly #account: AccountId;
  #share: BurstShare = { granted: 0, left: 0, limit: 0, second: 0, endsIn: 0 };
  /** The number of requests that can be admitted without asking the store. */
  #available = 0;
  /** The number of requests that this node was granted in this second. */
  #granted = 0;
  /**
   * The share counts as current from `#from` until before `#until`, by the clock of this node. Its second
   * ends at `#until` or later.
   */
  #from: Millis = 0;
  #until: Millis = 0;
  #waiting: ((ended: WaitResult) => void)[] = [];
  #isFetching = false;

  constructor(sharing: BurstSharing, account: AccountId) {
    this.#sharing = sharing;
    this.#account = account;
  }

  isOver(now: Millis): boolean {
    return !this.#isFetching && !this.isLate && !this.#isCurrent(now);
  }

  /** Returns the result if it is known at once, or null if the store must be asked. */
  count(now: Millis): Burst | null {
    if (!this.#isCurrent(now)) return null;
    if (this.#available > 0 && this.#waiting.length === 0) return this.#admit();
    return this.#available === 0 && this.#share.left === 0 ? this.#refuse() : null;
  }

  waitForShare(): Promise<WaitResult> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      if (!this.#isFetching) void this.#fetch();
    });
  }

  /** Asks the store once for all requests that wait, and repeats this until none waits. */
  async #fetch(): Promise<void> {
    this.#isFetching = true;
    while (this.#waiting.length > 0) {
      const waitingCount = this.#waiting.length;
      const askedAt = this.#sharing.now();
      const recent = this.#isCurrent(askedAt) ? this.#granted : 0;
      const share = await this.#withTimeout(
        this.#sharing.store.execute("takeBurst", { account: this.#account, needed: waitingCount, recent }),
      );
      if (share === null || share === "unknown") {
        for (const resolve of this.#waiting.splice(0)) resolve(share);
        continue;
      }
      this.#addShare(share, askedAt);
      // The share belongs to the second that was asked for, even if that second has ended since.
      for (const resolve of this.#waiting.splice(0, waitingCount))
        resolve(this.#available > 0 ? this.#admit() : this.#refuse());
      this.#admitWaiting();
    }
    this.#isFetching = false;
  }

  /** Admits or refuses the requests that arrived during the call. */
  #admitWaiting(): void {
    const waiting = this.#waiting.splice(0);
    for (const [index, resolve] of waiting.entries()) {
      const burst = this.count(this.#sharing.now());
      if (burst === null) return void this.#waiting.push(...waiting.slice(index));
      resolve(burst);
    }
  }

  #addShare(share: BurstShare, askedAt: Millis): void {
    const isSame = share.second === this.#share.second;
    this.#available = (isSame ? this.#available : 0) + share.granted;
    this.#granted = (isSame ? this.#granted : 0) + share.granted;
    this.#share = share;
    // `endsIn` counts from the store's answer, which came after `askedAt`, so the second ends at `#until` or
    // later.
    this.#from = askedAt;
    this.#until = askedAt + share.endsIn;
  }

  /**
   * Returns "unknown" if the store does not answer within `grace`. Until the late answer arrives, further
   * requests do not wait for the store.
   */
  async #withTimeout(response: Promise<BurstShare | null>): Promise<BurstShare | null | "unknown"> {
    const settled = response.catch((): "unknown" => "unknown");
    const { now, sleep } = this.#sharing;
    const wake = new AbortController();
    const first = await Promise.race([settled, sleep(now() + grace, wake.signal).then((): "late" => "late")]);
    wake.abort();
    if (first !== "late") return first;
    this.isLate = true;
    void settled.then(() => (this.isLate = false));
    return "unknown";
  }

  #isCurrent(now: Millis): boolean {
    return now >= this.#from && now < this.#until;
  }

  #admit(): Burst {
    this.#available--;
    return { ...this.#describe(), taken: true };
  }

  #refuse(): Burst {
    return { ...this.#describe(), taken: false };
  }

  #describe(): Omit<Burst, "taken"> {
    const { limit, second, left } = this.#share;
    return { limit, remaining: this.#available + left, resetAt: second + 1 };
  }
}
