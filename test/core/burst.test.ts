import { expect, test } from "vitest";
import { burstOf } from "../../src/core/burst.ts";

const now = 1_800_000_000_250;

test.each([
  [3, 0, { taken: true, remaining: 2 }],
  [3, 2, { taken: true, remaining: 0 }],
  [3, 3, { taken: false, remaining: 0 }],
  [1, 0, { taken: true, remaining: 0 }],
])("of %d requests in a second, after %d", (limit, asked, expected) => {
  expect(burstOf(limit, asked, now)).toEqual({ ...expected, limit, resetAt: 1_800_000_001 });
});
