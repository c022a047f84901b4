import { expect, test } from "vitest";
import { fillStoreCounts } from "../../src/core/sending/storeCounts.ts";
import { StoreSampler } from "../../src/monitoring/storeSampler.ts";

/** Runs a sampler whose samples take these times, and returns its pauses. A null sample fails. */
async function samplePauses(times: readonly (number | null)[]) {
  let now = 1_000_000;
  let elapsed = 0;
  const left = [...times];
  const pauses: number[] = [];
  let ended = (): void => undefined;
  const end = new Promise<void>((resolve) => (ended = resolve));
  const sampler: StoreSampler = new StoreSampler({
    readFigures: async () => {
      const took = left.shift();
      if (took === null) throw new Error("unavailable");
      elapsed += took ?? 0;
      return {
        counts: fillStoreCounts({ pending: times.length - left.length }),
        leased: 0,
        oldestDueAt: null,
      };
    },
    readDisk: async () => null,
    clock: {
      now: () => now,
      sleep: async (until, signal) => {
        pauses.push(until - now);
        now = until;
        if (left.length > 0) return;
        ended();
        await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
      },
    },
    elapsed: () => elapsed,
  });
  await sampler.start();
  await end;
  await sampler.stop();
  return { pauses, last: sampler.last };
}

test("a slow sample is followed by a longer pause, of at most 10 s", async () => {
  const { pauses, last } = await samplePauses([0, 5, 40, 3_000, 2]);
  expect(pauses).toEqual([1_000, 1_000, 4_000, 10_000, 1_000]);
  expect(last).toMatchObject({ counts: { pending: 5, retrying: 0 }, at: 1_016_000 });
});

test("a failed read keeps the last sample and its time", async () => {
  const { last } = await samplePauses([0, 1, null, null]);
  expect(last).toMatchObject({ counts: { pending: 2 }, at: 1_001_000 });
});
