import { expect, test } from "vitest";
import { countPagesToGiveBack } from "../../../../src/engine/core/node/freeSpace.ts";

test.each([
  { pages: 100, free: 100, given: 0 },
  { pages: 8_000, free: 1_024, given: 0 },
  { pages: 8_000, free: 1_025, given: 1 },
  { pages: 80_000, free: 10_000, given: 0 },
  { pages: 80_000, free: 10_063, given: 63 },
  { pages: 80_000, free: 40_000, given: 64 },
  { pages: 0, free: 0, given: 0 },
])("of $pages pages with $free free, the next step gives back $given", ({ pages, free, given }) => {
  expect(countPagesToGiveBack({ pages, free }, false)).toBe(given);
});

test("if the disk has little room, all free pages are given back", () => {
  expect(countPagesToGiveBack({ pages: 100, free: 7 }, true)).toBe(7);
  expect(countPagesToGiveBack({ pages: 8_000, free: 1_024 }, true)).toBe(64);
  expect(countPagesToGiveBack({ pages: 8_000, free: 0 }, true)).toBe(0);
});
