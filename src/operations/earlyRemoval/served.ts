import type { ServedOperation } from "../operation.ts";
import { createEarlyRemovalTask } from "./task.ts";

/** Removes history before its retention ends while the disk has little room. */
export const earlyRemoval: ServedOperation = {
  routes: [],
  run: ({ store, clock, retention, onRemovedEarly }) => ({
    tasks: [createEarlyRemovalTask({ store, clock, retention, onRemoved: onRemovedEarly })],
  }),
};
