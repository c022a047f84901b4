import type { Millis } from "../core/model/message.ts";
import type { Store, Unsubscribe } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";

/** When something first came in since a duty last ran: what tells it that there may be something to do. */
export class WorkSignal {
  readonly #store: Pick<Store, "onDue">;
  readonly #clock: Pick<Clock, "now">;
  #since: Millis | null;

  /** `since`: what is taken for news at the beginning; null: nothing is. */
  constructor({ store, clock, since = null }: { store: Pick<Store, "onDue">; clock: Pick<Clock, "now">; since?: Millis | null }) {
    this.#store = store;
    this.#clock = clock;
    this.#since = since;
  }

  /** Null: nothing has come in. */
  get since(): Millis | null {
    return this.#since;
  }

  /** The first thing that comes in is told; what follows it tells no more. */
  listen(listener: () => void): Unsubscribe {
    return this.#store.onDue(() => {
      if (this.#since !== null) return;
      this.#since = this.#clock.now();
      listener();
    });
  }

  /** Does what is due to what came in. When that fails, it is news still. */
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
