import type { Clock } from "../clock/clock.ts";
import type { Millis } from "../core/values/basics.ts";
import { minute } from "../core/values/time.ts";
import type { Store } from "../store/store.ts";
import type { MaintenanceTask } from "./scheduler.ts";

/** A run is this short, so that it does not keep the server from stopping. */
const stepsPerRun = 100;
/** The pause between two steps, in which others use the disk. */
const stepPause: Millis = 20;

/**
 * Returns the task that gives free pages of a database file back to the disk, at most 50 MiB a minute.
 * Retention frees pages, and without this task the file would never become smaller.
 */
export function createSpaceTask({ store, clock }: { store: Store; clock: Clock }): MaintenanceTask {
  const { disk } = store.upkeep;
  return {
    name: "giving space back",
    nextAt: async () => (disk ? clock.now() : Infinity),
    pause: minute,
    run: async () => {
      for (let step = 0; step < stepsPerRun && (await disk?.giveBackSpace()); step++)
        await clock.sleep(clock.now() + stepPause, neverAborted);
    },
    onWork: () => () => undefined,
  };
}

const neverAborted = new AbortController().signal;
