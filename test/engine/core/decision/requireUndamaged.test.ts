import { expect, test } from "vitest";
import { damagedRefusal, requireUndamaged } from "../../../../src/engine/core/decision/requireUndamaged.ts";
import { damagedUrlGroup } from "../../../../src/engine/core/model/damagedRows.ts";

test("a damaged dead letter cannot be sent again", () => {
  expect(damagedRefusal("deadLetters", "x".repeat(101))).toMatchObject({
    code: "invalid",
    message:
      `dlqId: ${"x".repeat(100)} is damaged in the store and cannot be sent again; restore a ` +
      "backup, or delete it",
  });
});

test("a row is refused if it is damaged, and any other row is returned", () => {
  const group = damagedUrlGroup({ account: "acme", name: "g" });
  const { damaged: _damaged, ...sound } = group;
  expect(() => requireUndamaged("urlGroups", ["acme", "g"], group)).toThrow(
    "the URL group g is damaged in the store",
  );
  expect(requireUndamaged("urlGroups", ["acme", "g"], sound)).toBe(sound);
  expect(requireUndamaged("urlGroups", ["acme", "g"], undefined)).toBeUndefined();
});
