import { expect, test } from "vitest";
import { joinHeaders } from "../../../../src/engine/core/values/headers.ts";

test("the headers of the second list replace those of the same name; all others stay, in order", () => {
  const forwarded = [
    ["X-A", "1"],
    ["X-B", "2"],
    ["X-A", "3"],
    ["X-C", "4"],
  ] as const;
  const overriding = [
    ["X-A", "5"],
    ["X-D", "6"],
    ["X-A", "7"],
  ] as const;
  expect(joinHeaders(forwarded, overriding)).toEqual([
    ["X-B", "2"],
    ["X-C", "4"],
    ["X-A", "5"],
    ["X-D", "6"],
    ["X-A", "7"],
  ]);
});

test("an empty list changes nothing", () => {
  expect(joinHeaders([["X-A", "1"]], [])).toEqual([["X-A", "1"]]);
  expect(joinHeaders([], [["X-A", "1"]])).toEqual([["X-A", "1"]]);
});
