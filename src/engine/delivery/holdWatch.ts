import type { Clock } from "../clock/clock.ts";
import type { Millis } from "../core/values/basics.ts";
import type { Store } from "../store/store.ts";
import { second } from "../core/values/time.ts";

type HoldWatchOptions = {
  store: Pick<Store, "hold">;
  clock: Clock;
  /** Whether other nodes use the store, which can begin a hold while this node runs. */
  isShared: boolean;
  /** Called if there is a hold at the start, and after each change. */
  onChange(isOnHold: boolean): void;
  logFailure(message: string, error: unknown): void;
};

/** How often a node looks whether a hold has ended. */
const pauseWhileHeld: Millis = second;
/** How often a node looks whether another node has begun a hold. */
const pauseWhileSending: Millis = 5 * second;

/**
 * Watches whether all deliveries are on hold. The hold is kept in the store, because it applies to all nodes
 * and outlasts restarts.
 */
export class HoldWatch {
  readonly #options: HoldWatchOptions;
  readonly #end = new AbortController();
  #isOnHold = false;
  #loop: Promise<void> | null = null;

  constructor(options: HoldWatchOptions) {
    this.#options = options;
  }

  get isOnHold(): boolean {
    return this.#isOnHold;
  }

  /** Reads the hold and begins to watch it. */
  async start(): Promise<void> {
    this.#isOnHold = await this.#options.store.hold.isOnHold();
    if (this.#isOnHold) this.#options.onChange(true);
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#end.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { store, clock, isShared, onChange, logFailure } = this.#options;
    let hasFailed = false;
    while (this.#isOnHold || isShared) {
      const pause = this.#isOnHold ? pauseWhileHeld : pauseWhileSending;
      await clock.sleep(clock.now() + pause, this.#end.signal);
      if (this.#end.signal.aborted) return;
      try {
        const isOnHold = await store.hold.isOnHold();
        hasFailed = false;
        if (isOnHold === this.#isOnHold) continue;
        this.#isOnHold = isOnHold;
        onChange(isOnHold);
      } catch (error) {
        if (!hasFailed) logFailure("could not read whether deliveries are paused; retrying", error);
        hasFailed = true;
      }
    }
  }
}
