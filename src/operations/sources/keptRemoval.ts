import type { Clock } from "../../engine/clock/clock.ts";
import { minute } from "../../engine/core/values/time.ts";
import type { Store } from "../../engine/store/store.ts";
import type { MaintenanceTask } from "../../engine/upkeep/scheduler.ts";
import { callKept } from "./keptCall.ts";

/** The calls that are read together. Each may have a large body. */
const batchSize = 4;

/** Removes rejected calls whose day is over. It sleeps while none is kept. */
export class KeptCallRemoval {
  readonly task: MaintenanceTask;
  readonly #listeners = new Set<() => void>();

  constructor({ store, clock }: { store: Pick<Store, "read" | "execute">; clock: Pick<Clock, "now"> }) {
    const { read, execute } = store;
    this.task = {
      name: "removal of rejected calls",
      pause: minute,
      nextAt: async () => (await read.dueKeptCalls(clock.now() + 2 * callKept, 1))[0]?.dueAt ?? Infinity,
      onWork: (listener) => {
        this.#listeners.add(listener);
        return () => this.#listeners.delete(listener);
      },
      run: async () => {
        const list = () => read.dueKeptCalls(clock.now(), batchSize);
        for (let rows = await list(); rows.length > 0; rows = await list()) {
          let removed = 0;
          for (const { account, id } of rows)
            removed += (await execute("removeKeptCalls", { account, ids: [id] })).removed;
          if (removed === 0) return;
        }
      },
    };
  }

  /** Looks again for the next call to remove. */
  wake(): void {
    for (const listener of this.#listeners) listener();
  }
}
