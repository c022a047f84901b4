import { fc } from "../../../seeds.ts";
import { expect, test } from "vitest";
import { findNearest } from "../../../../src/engine/core/values/nearest.ts";

test.each([
  ["lable", ["label", "delay"], "label"],
  ["retires", ["retries"], "retries"],
  ["dealy", ["delay"], "delay"],
  ["lbael", ["label"], "label"],
  ["elabl", ["label"], null],
  ["lebals", ["label"], null],
  ["x", ["y"], "y"],
  ["nothing", ["label", "delay"], null],
  ["l".repeat(65), ["l".repeat(65)], null],
])("%s among %j", (name, known, expected) => {
  expect(findNearest(name, known)).toBe(expected);
});

test("two swapped neighbours are one change in any position", () => {
  fc.assert(
    fc.property(fc.string({ minLength: 3, maxLength: 60 }), fc.nat(), (name, n) => {
      const at = n % (name.length - 1);
      expect(findNearest(name.slice(0, at) + name[at + 1] + name[at] + name.slice(at + 2), [name])).toBe(
        name,
      );
    }),
  );
});
