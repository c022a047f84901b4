import { JobRunner } from "../../../src/operations/jobs/runner.ts";
import type { Store } from "../../../src/engine/store/store.ts";

type Options = {
  store: Store;
  now(): number;
  node?: string;
  hasOtherNodes?: boolean;
  logFailure?(message: string, error: unknown): void;
};

/** Returns the job runner of a node, whose rounds the test calls. It throws what it would log. */
export const createJobRunner = ({
  store,
  now,
  node = "nod_1",
  hasOtherNodes = true,
  logFailure = (_message, error) => {
    throw error;
  },
}: Options): JobRunner =>
  new JobRunner({ store, clock: { now, sleep: () => Promise.resolve() }, node, hasOtherNodes, logFailure });
