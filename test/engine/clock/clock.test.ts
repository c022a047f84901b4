import { setImmediate as nextTick } from "node:timers/promises";
import { beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { alarm, systemClock, systemRandom } from "../../../src/engine/clock/clock.ts";

const day = 86_400_000;

beforeEach(() => {
  vi.useFakeTimers({ now: 1_000 });
  onTestFinished(() => void vi.useRealTimers());
});

/** Reports whether the promise has settled by now. */
async function hasEnded(promise: Promise<void>): Promise<boolean> {
  let ended = false;
  void promise.then(() => (ended = true));
  await vi.advanceTimersByTimeAsync(0);
  return ended;
}

describe("sleep", () => {
  const never = new AbortController().signal;

  test("ends at most 1 ms after its time and not before, however far away", async () => {
    for (const length of [1, 1_000, 100 * day]) {
      const sleep = systemClock.sleep(systemClock.now() + length, never);
      await vi.advanceTimersByTimeAsync(length - 1);
      expect(await hasEnded(sleep)).toBe(false);
      await vi.advanceTimersByTimeAsync(2);
      expect(await hasEnded(sleep)).toBe(true);
    }
  });

  test("asks for a timer that is 1 ms longer than the wait or its step of 10 s", () => {
    const setTimer = vi.spyOn(globalThis, "setTimeout");
    onTestFinished(() => void vi.restoreAllMocks());
    for (const length of [1, 9_999, 10_000, 10_001, day, Infinity])
      void systemClock.sleep(systemClock.now() + length, never);
    const delays = setTimer.mock.calls.map(([, delay]) => delay);
    expect(delays).toEqual([2, 10_000, 10_001, 10_001, 10_001, 2 ** 31 - 1]);
  });

  test("takes one timer, although a timer of Node may fire early", async () => {
    vi.useRealTimers();
    const setTimer = vi.spyOn(globalThis, "setTimeout");
    // The clock of a machine may be slowed down while it is corrected, and then a wait does take two timers.
    vi.spyOn(Date, "now").mockImplementation(() => Math.floor(performance.timeOrigin + performance.now()));
    onTestFinished(() => void vi.restoreAllMocks());
    const sleeps: Promise<void>[] = [];
    for (let at = 0; at < 500; at++) {
      sleeps.push(systemClock.sleep(Date.now() + 30, never));
      // They begin at different fractions of a millisecond.
      for (const next = performance.now() + 0.13; performance.now() < next;);
      if (at % 20 === 0) await nextTick();
    }
    await Promise.all(sleeps);
    expect(setTimer).toHaveBeenCalledTimes(sleeps.length);
  });

  test("keeps its length if the system clock is set back, or forward by less", async () => {
    for (const by of [-day, 20_000, -day]) {
      const sleep = systemClock.sleep(systemClock.now() + 40_000, never);
      await vi.advanceTimersByTimeAsync(4_000);
      vi.setSystemTime(Date.now() + by);
      await vi.advanceTimersByTimeAsync(by > 0 ? 15_999 : 35_999);
      expect(await hasEnded(sleep)).toBe(false);
      await vi.advanceTimersByTimeAsync(2);
      expect(await hasEnded(sleep)).toBe(true);
    }
  });

  test("ends soon after the system clock is set past its end, as after a suspended machine", async () => {
    const sleep = systemClock.sleep(systemClock.now() + 3_600_000, never);
    await vi.advanceTimersByTimeAsync(4_000);
    vi.setSystemTime(Date.now() + day);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await hasEnded(sleep)).toBe(true);
  });

  test("ends when it is woken, and leaves no timer", async () => {
    const wake = new AbortController();
    const sleep = systemClock.sleep(Infinity, wake.signal);
    expect(await hasEnded(sleep)).toBe(false);
    wake.abort();
    expect(await hasEnded(sleep)).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("ends at once if its time has passed or it has already been woken", async () => {
    expect(await hasEnded(systemClock.sleep(999, never))).toBe(true);
    expect(await hasEnded(systemClock.sleep(Infinity, AbortSignal.abort()))).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });
});

test("an alarm fires once, never after it is cancelled, and not early if it is far away", () => {
  const rung: string[] = [];
  alarm(1_000, () => rung.push("rung"));
  alarm(1_000, () => rung.push("silenced"))();
  alarm(100 * day, () => rung.push("far"));
  vi.advanceTimersByTime(5_000);
  expect(rung).toEqual(["rung"]);
});

test("random numbers fill the range from 0 to 1 evenly and use all their bits", () => {
  const numbers = Array.from({ length: 10_000 }, systemRandom);
  expect(numbers.every((number) => number >= 0 && number < 1)).toBe(true);
  expect(new Set(numbers).size).toBe(numbers.length);
  const tenths = Map.groupBy(numbers, (number) => Math.floor(number * 10));
  // 1,000 ± 11 standard deviations.
  expect([...tenths.values()].map(({ length }) => length > 670 && length < 1_330)).toEqual(
    Array.from({ length: 10 }, () => true),
  );
  expect(numbers.some((number) => (number * 2 ** 53) % 2 === 1)).toBe(true);
});
