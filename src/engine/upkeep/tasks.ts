import type { systemClock } from "../clock/clock.ts";
import { createContentCheckTask } from "./checkContents.ts";
import { createSpaceTask } from "./giveBackSpace.ts";
import { createCauseTask } from "./tagCauses.ts";
import { createSpendingDuty } from "./meterSpending.ts";
import { createPromptRetentionTask, createRetentionTask } from "./scheduler.ts";
import { createStorageTask } from "./weighStorage.ts";
import { createTrimmingTask } from "./trimHistory.ts";
import type { Store } from "../store/store.ts";

type TaskOptions = { store: Store; clock: typeof systemClock } & {
  retention: Parameters<typeof createRetentionTask>[0]["retention"];
  prices: Parameters<typeof createSpendingDuty>[0]["prices"];
};

/** Returns the background work of every server. */
export const createTasks = ({ store, clock, retention, prices }: TaskOptions) => [
  createRetentionTask({ store, clock, retention }),
  createPromptRetentionTask({ store, clock, retention }),
  createTrimmingTask({ store, clock }),
  createSpendingDuty({ store, clock, prices }),
  createStorageTask({ store, clock }),
  createSpaceTask({ store, clock }),
  createContentCheckTask({ store, clock }),
  createCauseTask({ store, clock }),
];
