import type { Clock } from "../clock/clock.ts";
import type { Millis } from "../core/values/basics.ts";
import { day, minute, second } from "../core/values/time.ts";
import type { Store } from "../store/store.ts";
import type { MaintenanceTask } from "./scheduler.ts";

/** After the start of the server, others need the disk more. */
const firstDelay: Millis = minute;
/** The pause between two looks at all tables. */
const roundPause: Millis = day;
const pause: Millis = 10 * second;

/**
 * Returns the task that reads all tables and indexes of a database file, one table after another, a minute
 * after the start and then once a day. The start itself compares only a sample of a large file. The store
 * reports what is damaged. While the disk has little room, no table is begun.
 */
export function createContentCheckTask({ store, clock }: { store: Store; clock: Clock }): MaintenanceTask {
  const { disk } = store.upkeep;
  let after: string | null = null;
  let nextAt = clock.now() + firstDelay;
  return {
    name: "the check of the stored tables",
    nextAt: async () => (disk ? nextAt : Infinity),
    pause,
    run: async () => {
      // While a table is read, the write-ahead log only grows.
      if (!disk || disk.isShort()) return;
      after = await disk.checkTable(after);
      nextAt = clock.now() + (after === null ? roundPause : 0);
    },
    onWork: () => () => undefined,
  };
}
