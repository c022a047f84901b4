import { expect, test } from "vitest";
import { readOwner } from "../../../../src/engine/store/sqlite/readOwner.ts";

test("the owner of a query is the account that it names, in any place", () => {
  expect(readOwner([{ account: "acme", count: 1 }])).toBe("acme");
  expect(readOwner(["acme", "1m", 0])).toBe("acme");
  expect(readOwner(["schedules", "acme", "scd_1"])).toBe("acme");
  expect(readOwner(["limiters", { account: "acme", limit: 1 }])).toBe("acme");
});

test("a query of the server itself has no owner", () => {
  expect([readOwner([]), readOwner([1, 2]), readOwner(["accounts", { limit: 1 }])]).toEqual(["", "", ""]);
});
