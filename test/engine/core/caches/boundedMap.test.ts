import { expect, test } from "vitest";
import { BoundedMap } from "../../../../src/engine/core/caches/boundedMap.ts";

const letters = ["a", "b", "c", "d"];
const kept = (map: BoundedMap<string, number>): string[] =>
  letters.filter((letter) => map.get(letter) !== undefined);

/** Returns a map of two entries. `a` is the older one. */
function full(): BoundedMap<string, number> {
  const map = new BoundedMap<string, number>(2);
  map.set("a", 1);
  map.set("b", 2);
  return map;
}

test("the oldest entry is dropped for a new one, even if it is looked up often", () => {
  const map = full();
  expect([map.get("a"), map.get("a"), map.size]).toEqual([1, 1, 2]);
  map.set("c", 3);
  expect([kept(map), map.size]).toEqual([["b", "c"], 2]);
});

test("an entry that is set again has the new value, drops no entry, and keeps its age", () => {
  const map = full();
  map.set("a", 3);
  expect([map.get("a"), kept(map)]).toEqual([3, ["a", "b"]]);
  map.set("c", 4);
  expect(kept(map)).toEqual(["b", "c"]);
});

test("an entry that is renewed has the new value, drops no entry, and is the newest", () => {
  const map = full();
  map.renew("a", 3);
  expect([map.get("a"), kept(map)]).toEqual([3, ["a", "b"]]);
  map.renew("c", 4);
  expect(kept(map)).toEqual(["a", "c"]);
});

test("a deleted entry makes room for another", () => {
  const map = full();
  map.delete("b");
  map.delete("d");
  map.set("c", 3);
  expect([kept(map), map.size]).toEqual([["a", "c"], 2]);
  map.clear();
  expect([kept(map), map.size]).toEqual([[], 0]);
});

test("the newest entries are kept, regardless of their keys", () => {
  const map = new BoundedMap<number, number>(100);
  for (let key = 0; key < 10_000; key++) map.set(key, key);
  expect([map.size, map.get(9_899), map.get(9_900), map.get(9_999)]).toEqual([100, undefined, 9_900, 9_999]);
});
