import { spans } from "../core/values/limits.ts";
import type { ReturnedLease } from "../core/model/messageState.ts";
import type { Millis } from "../core/values/basics.ts";
import { membershipLossTimeout } from "../core/cluster/takeover.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";

/** The pause between two attempts to give leases back. */
const retryPause: Millis = 1000;

/**
 * `abortAll` aborts all running deliveries without settling them, and returns their leases. `resume` is
 * called when the node may send again.
 */
type MembershipGuardOptions = {
  store: Pick<Store, "execute" | "upkeep">;
  clock: Clock;
  abortAll(): ReturnedLease[];
  resume(): void;
};

/**
 * Aborts the deliveries of a node that has been without its membership for 1.5 s. Half a second later,
 * other nodes may send these messages. See docs/decisions/0051.
 */
export class MembershipGuard {
  readonly #options: MembershipGuardOptions;
  readonly #unsubscribe: () => void;
  readonly #returning = new Set<Promise<void>>();
  readonly #ended = new AbortController();
  /** How often the membership was lost or regained. */
  #changes = 0;

  constructor(options: MembershipGuardOptions) {
    this.#options = options;
    this.#unsubscribe = options.store.upkeep.membership.onChange(() => void this.#handleChange());
  }

  /**
   * Reports whether this node may send. It may not send while leases are being given back, because a repeated
   * attempt could give back a lease that this node has taken again.
   */
  get maySend(): boolean {
    return this.#options.store.upkeep.membership.isAlive() && this.#returning.size === 0;
  }

  /** Gives leases back. Retries until the storage accepts this or the leases expire. */
  returnLeases(leases: readonly ReturnedLease[]): void {
    const returning: Promise<void> = this.#returnLeases(leases).then(() => {
      this.#returning.delete(returning);
      if (this.maySend) this.#options.resume();
    });
    this.#returning.add(returning);
  }

  /** Stops the guard. Resolves after one last attempt to give back what remains. */
  async end(): Promise<void> {
    this.#unsubscribe();
    this.#changes++;
    this.#ended.abort();
    await Promise.all(this.#returning);
  }

  async #handleChange(): Promise<void> {
    const { store, clock, abortAll, resume } = this.#options;
    const { membership } = store.upkeep;
    const change = ++this.#changes;
    if (membership.isAlive()) return this.maySend ? resume() : undefined;
    await clock.sleep(
      clock.now() + Math.max(0, membershipLossTimeout - membership.lostFor()),
      this.#ended.signal,
    );
    if (change === this.#changes) this.returnLeases(abortAll());
  }

  async #returnLeases(leases: readonly ReturnedLease[]): Promise<void> {
    const { store, clock } = this.#options;
    const until = clock.now() + spans.lease;
    while (leases.length > 0 && clock.now() < until) {
      const isLast = this.#ended.signal.aborted;
      try {
        return void (await store.execute("returnLeases", { leases }));
      } catch {
        if (isLast) return;
        await clock.sleep(clock.now() + retryPause, this.#ended.signal);
      }
    }
  }
}
