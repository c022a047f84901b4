import { fc } from "../../../seeds.ts";
import { expect, test } from "vitest";
import { coalesce } from "../../../../src/engine/store/batch/coalesce.ts";

/**
 * Runs polls that each bring this many calls. Returns how many calls had arrived and how many polls had run
 * when the batch began.
 */
function gathered(bring: readonly number[]): { count: number; polls: number } {
  let count = 1;
  let polls = 0;
  let next: (() => void) | null = null;
  let begun: { count: number; polls: number } | null = null;
  const begin = (): void => {
    if (begun) throw new Error("the batch has begun twice");
    begun = { count, polls };
  };
  coalesce(
    (run) => (next = run),
    () => count,
    begin,
  );
  while (next !== null) {
    const run: () => void = next;
    next = null;
    count += bring[polls++] ?? 0;
    run();
  }
  if (begun === null) throw new Error("the batch has not begun");
  return begun;
}

test("a single call starts a batch after two polls", () => {
  expect(gathered([])).toEqual({ count: 1, polls: 2 });
});

test("each poll that brings a call is followed by two more polls", () => {
  expect(gathered([3])).toEqual({ count: 4, polls: 3 });
  expect(gathered([0, 1, 0, 2])).toEqual({ count: 4, polls: 6 });
  expect(gathered([0, 0, 5])).toEqual({ count: 1, polls: 2 });
});

test("an endless stream of calls does not delay the batch", () => {
  expect(gathered(Array.from({ length: 100 }, () => 1))).toEqual({ count: 17, polls: 16 });
});

test("a batch begins once, after 2 to 16 polls, with all calls that had arrived by then", () => {
  fc.assert(
    fc.property(fc.array(fc.nat({ max: 3 }), { maxLength: 40 }), (bring) => {
      const { count, polls } = gathered(bring);
      expect(polls).toBeGreaterThanOrEqual(2);
      expect(polls).toBeLessThanOrEqual(16);
      expect(count).toBe(1 + bring.slice(0, polls).reduce((sum, calls) => sum + calls, 0));
      const isQuiet = bring.slice(polls - 2, polls).every((calls) => calls === 0);
      expect(isQuiet || polls === 16).toBe(true);
    }),
  );
});
