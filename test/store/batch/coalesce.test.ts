import fc from "fast-check";
import { expect, test } from "vitest";
import { coalesce } from "../../../src/store/batch/coalesce.ts";

/** Looks that bring so many calls each, one after another. Answers how many had asked at the beginning, and after how many looks it came. */
function gathered(bring: readonly number[]): { count: number; looks: number } {
  let count = 1;
  let looks = 0;
  let next: (() => void) | null = null;
  let begun: { count: number; looks: number } | null = null;
  const begin = (): void => {
    if (begun) throw new Error("it has begun twice");
    begun = { count, looks };
  };
  coalesce(
    (run) => (next = run),
    () => count,
    begin,
  );
  while (next !== null) {
    const run: () => void = next;
    next = null;
    count += bring[looks++] ?? 0;
    run();
  }
  if (begun === null) throw new Error("it has not begun");
  return begun;
}

test("a lone call goes after two looks", () => {
  expect(gathered([])).toEqual({ count: 1, looks: 2 });
});

test("each look that brings something is followed by two more", () => {
  expect(gathered([3])).toEqual({ count: 4, looks: 3 });
  expect(gathered([0, 1, 0, 2])).toEqual({ count: 4, looks: 6 });
  expect(gathered([0, 0, 5])).toEqual({ count: 1, looks: 2 });
});

test("a stream without end does not hold it up", () => {
  expect(gathered(Array.from({ length: 100 }, () => 1))).toEqual({ count: 17, looks: 16 });
});

test("whatever comes, it begins once, after 2 to 16 looks, with all that had asked by then", () => {
  fc.assert(
    fc.property(fc.array(fc.nat({ max: 3 }), { maxLength: 40 }), (bring) => {
      const { count, looks } = gathered(bring);
      expect(looks).toBeGreaterThanOrEqual(2);
      expect(looks).toBeLessThanOrEqual(16);
      expect(count).toBe(1 + bring.slice(0, looks).reduce((sum, calls) => sum + calls, 0));
      const isQuiet = bring.slice(looks - 2, looks).every((calls) => calls === 0);
      expect(isQuiet || looks === 16).toBe(true);
    }),
  );
});
