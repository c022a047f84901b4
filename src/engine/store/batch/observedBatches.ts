import type { BatchObserver, RunBatch } from "../store.ts";

/** Returns a function that runs batches and reports them to an observer, once one is set. */
export function observeBatches(run: RunBatch): {
  runBatch: RunBatch;
  observe(observer: BatchObserver): void;
} {
  let observer: BatchObserver | null = null;
  return {
    runBatch: async (calls, capacity) => {
      observer?.began();
      const result = await run(calls, capacity);
      observer?.stored(result);
      return result;
    },
    observe: (newObserver) => void (observer = newObserver),
  };
}
