import { systemClock } from "../../../src/engine/clock/clock.ts";
import { fillStoreCounts } from "../../../src/engine/core/explain/storeCounts.ts";
import { StoreSampler } from "../../../src/operations/monitoring/storeSampler.ts";
import { sumOutboxes } from "../../../src/operations/outbox/figures.ts";
import { expect, onTestFinished, test, vi } from "vitest";

/** Runs a sampler whose samples take these times, and returns its pauses. A null sample fails. */
async function samplePauses(times: readonly (number | null)[], { isIdle = false } = {}) {
  let now = 1_000_000;
  let elapsed = 0;
  const left = [...times];
  const pauses: number[] = [];
  let ended = (): void => undefined;
  const end = new Promise<void>((resolve) => (ended = resolve));
  const sampler: StoreSampler = new StoreSampler({
    takesChanges: async () => true,
    readFigures: async () => {
      const took = left.shift();
      if (took === null) throw new Error("unavailable");
      elapsed += took ?? 0;
      if (!isIdle) sampler.noteChange();
      return {
        counts: fillStoreCounts({ pending: times.length - left.length }),
        leased: 0,
        acknowledging: 0,
        oldestDueAt: null,
      };
    },
    readDisk: async () => null,
    readOutboxes: async (now) => sumOutboxes([], now),
    clock: {
      now: () => now,
      sleep: async (until, signal) => {
        pauses.push(until - now);
        now = until;
        if (left.length > 0 || signal.aborted) return;
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

test("while nothing is stored, a sample comes every 10 s", async () => {
  const { pauses } = await samplePauses([0, 5], { isIdle: true });
  // The second number of each pair is the rest of the shortest pause, which is over by then.
  expect(pauses.filter((pause) => pause > 0)).toEqual([10_000, 10_000]);
});

test("a change ends the long pause, but no sample comes within a second of the last one", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const samples: number[] = [];
  const sampler = new StoreSampler({
    takesChanges: async () => true,
    readFigures: async () => {
      samples.push(Date.now());
      return { counts: fillStoreCounts({}), leased: 0, acknowledging: 0, oldestDueAt: null };
    },
    readDisk: async () => null,
    readOutboxes: async (now) => sumOutboxes([], now),
    clock: systemClock,
    elapsed: () => performance.now(),
  });
  const startedAt = Date.now();
  await sampler.start();
  await vi.advanceTimersByTimeAsync(200);
  sampler.noteChange();
  await vi.advanceTimersByTimeAsync(1_000);
  // The millisecond is the one by which a timer may fire early.
  expect(samples.map((at) => at - startedAt)).toEqual([0, 1_001]);
  await vi.advanceTimersByTimeAsync(4_000);
  expect(samples).toHaveLength(2);
  sampler.noteChange();
  await vi.advanceTimersByTimeAsync(0);
  expect(samples).toHaveLength(3);
  await sampler.stop();
});

test("a failed read keeps the last sample and its time", async () => {
  const { last } = await samplePauses([0, 1, null, null]);
  expect(last).toMatchObject({ counts: { pending: 2 }, at: 1_001_000 });
});

test("a sample notes whether the store saves changes, even if its figures cannot be read", async () => {
  let answer = async (): Promise<boolean> => true;
  const sampler = new StoreSampler({
    takesChanges: () => answer(),
    readFigures: () => Promise.reject(new Error("unavailable")),
    readDisk: async () => null,
    readOutboxes: async (now) => sumOutboxes([], now),
    clock: { now: () => 0, sleep: () => new Promise(() => undefined) },
    elapsed: () => 0,
  });
  await sampler.start();
  expect(sampler.takesChanges).toBe(true);
  answer = async () => false;
  await sampler.start();
  expect(sampler.takesChanges).toBe(false);
  answer = () => Promise.reject(new Error("unavailable"));
  await sampler.start();
  expect(sampler.takesChanges).toBe(false);
});
