import { expect, test } from "vitest";
import { OwnerTurns } from "../../../../src/engine/core/node/ownerTurns.ts";

test("owners take turns, and the items of each keep their order", () => {
  const turns = new OwnerTurns<string>();
  for (const item of ["a1", "a2", "a3", "b1", "c1", "c2"]) turns.add(item.slice(0, 1), item);
  const taken = [turns.take(), turns.take()];
  turns.add("b", "b2");
  while (!turns.isEmpty) taken.push(turns.take());
  expect(taken).toEqual(["a1", "b1", "c1", "a2", "b2", "c2", "a3"]);
  expect(turns.take()).toBeNull();
});
