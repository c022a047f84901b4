import { spans } from "../core/values/limits.ts";
import type { LeaseRef, Millis } from "../core/model/message.ts";
import { sessionLossTimeout } from "../core/nodes/takeover.ts";
import type { SessionLease, Store } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";

/** Between two tries to give back. */
const retryPause: Millis = 1000;

/** `abortAll` ends all deliveries in flight without a report, and returns them. `resume` is called when the node may send again. */
type SessionLeaseGuardOptions = { sessionLease: SessionLease; store: Store; clock: Clock; abortAll(): LeaseRef[]; resume(): void };

/**
 * Ends what a node is sending when it has been without its hold on its leases for 1.5 s: half a second later other nodes may send it.
 * See docs/decisions/0051.
 */
export class SessionLeaseGuard {
  readonly #options: SessionLeaseGuardOptions;
  readonly #unsubscribe: () => void;
  readonly #returning = new Set<Promise<void>>();
  readonly #ended = new AbortController();
  /** How often the hold was lost or taken again. */
  #changes = 0;

  constructor(options: SessionLeaseGuardOptions) {
    this.#options = options;
    this.#unsubscribe = options.sessionLease.onChange(() => void this.#handleChange());
  }

  /** Whether this node may send. Not while anything is given back: a second try could take back what was leased anew meanwhile. */
  get maySend(): boolean {
    return this.#options.sessionLease.isHeld() && this.#returning.size === 0;
  }

  /** Gives leases back as soon as the storage takes that, for as long as they last. */
  returnLeases(leases: readonly LeaseRef[]): void {
    const returning: Promise<void> = this.#returnLeases(leases).then(() => {
      this.#returning.delete(returning);
      if (this.maySend) this.#options.resume();
    });
    this.#returning.add(returning);
  }

  /** Resolves when what is to be given back has been tried once more. */
  async end(): Promise<void> {
    this.#unsubscribe();
    this.#changes++;
    this.#ended.abort();
    await Promise.all(this.#returning);
  }

  async #handleChange(): Promise<void> {
    const { sessionLease, clock, abortAll, resume } = this.#options;
    const change = ++this.#changes;
    if (sessionLease.isHeld()) return this.maySend ? resume() : undefined;
    await clock.sleep(clock.now() + Math.max(0, sessionLossTimeout - sessionLease.lostFor()), this.#ended.signal);
    if (change === this.#changes) this.returnLeases(abortAll());
  }

  async #returnLeases(leases: readonly LeaseRef[]): Promise<void> {
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
