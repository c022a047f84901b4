import type { ServedOperation } from "../operation.ts";
import { createSelfCheckTask } from "./task.ts";

/** Finds work that would never be done, and repairs it. */
export const selfCheck: ServedOperation = {
  routes: [],
  run: ({ store, clock, sender, onRepair, repairs }) => ({
    tasks: repairs ? [createSelfCheckTask({ store, clock, sender, onRepair })] : [],
  }),
};
