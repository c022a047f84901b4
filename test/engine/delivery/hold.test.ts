import { expect, test } from "vitest";
import { HoldWatch } from "../../../src/engine/delivery/holdWatch.ts";
import type { Hold } from "../../../src/engine/store/store.ts";

/** Starts a watch whose clock moves on only in `step`. */
async function startWatch({ isOnHold, isShared }: { isOnHold: boolean; isShared: boolean }) {
  let held: boolean | Error = isOnHold;
  let wake: (() => void) | null = null;
  const changes: boolean[] = [];
  const failures: string[] = [];
  const pauses: number[] = [];
  const hold: Hold = {
    isOnHold: async () => {
      if (held instanceof Error) throw held;
      return held;
    },
    set: async (value) => void (held = value),
  };
  const watch = new HoldWatch({
    store: { hold },
    clock: {
      now: () => 0,
      sleep: (until, signal) => {
        pauses.push(until);
        return new Promise((resolve) => {
          wake = resolve;
          signal.addEventListener("abort", () => resolve());
        });
      },
    },
    isShared,
    onChange: (value) => changes.push(value),
    logFailure: (message) => failures.push(message),
  });
  await watch.start();
  const step = async (next: boolean | Error): Promise<void> => {
    held = next;
    wake?.();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { watch, changes, failures, pauses, step };
}

test("a hold is reported at the start and looked at every second until it ends", async () => {
  const { watch, changes, pauses, step } = await startWatch({ isOnHold: true, isShared: false });
  expect({ changes: [...changes], isOnHold: watch.isOnHold }).toEqual({ changes: [true], isOnHold: true });
  await step(true);
  await step(false);
  expect(changes).toEqual([true, false]);
  // No other node can begin a hold, so the watch has ended.
  expect(pauses).toEqual([1_000, 1_000]);
  await watch.stop();
});

test("a node that shares its store notices a hold that another node begins", async () => {
  const { watch, changes, pauses, step } = await startWatch({ isOnHold: false, isShared: true });
  await step(true);
  await step(false);
  expect(changes).toEqual([true, false]);
  expect(pauses).toEqual([5_000, 1_000, 5_000]);
  await watch.stop();
});

test("a failure changes nothing and is logged once", async () => {
  const { watch, changes, failures, step } = await startWatch({ isOnHold: true, isShared: true });
  await step(new Error("gone"));
  await step(new Error("gone"));
  expect(failures).toEqual(["could not read whether deliveries are paused; retrying"]);
  expect(watch.isOnHold).toBe(true);
  await step(false);
  expect(changes).toEqual([true, false]);
  await watch.stop();
});
