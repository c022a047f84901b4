import type { Millis } from "../core/values/basics.ts";
import type { Store, Unsubscribe } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";

/**
 * Records when something was first stored since a task last ran. The task thus knows whether there may be
 * work.
 */
export class WorkSignal {
  readonly #store: Pick<Store, "onDue">;
  readonly #clock: Pick<Clock, "now">;
  #since: Millis | null;

  /** `since` is the initial time of the first change, or null for none. */
  constructor({
    store,
    clock,
    since = null,
  }: {
    store: Pick<Store, "onDue">;
    clock: Pick<Clock, "now">;
    since?: Millis | null;
  }) {
    this.#store = store;
    this.#clock = clock;
    this.#since = since;
  }

  /** When something was first stored since the last run, or null. */
  get since(): Millis | null {
    return this.#since;
  }

  /** Calls `listener` for the first change after each run. Later changes do not call it again. */
  listen(listener: () => void): Unsubscribe {
    return this.#store.onDue(() => {
      if (this.#since !== null) return;
      this.#since = this.#clock.now();
      listener();
    });
  }

  /** Runs the work for the changes so far. If the work fails, these changes count as new again. */
  async handle(run: () => Promise<void>): Promise<void> {
    const before = this.#since;
    this.#since = null;
    try {
      await run();
    } catch (error) {
      this.#since = before ?? this.#since;
      throw error;
    }
  }
}
