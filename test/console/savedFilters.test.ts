import { expect, test } from "vitest";
import {
  addFilter,
  pickFilter,
  readSavedFilters,
  writeSavedFilters,
} from "../../console/src/parts/savedFilters.ts";

/** A storage of a browser in memory. */
function makePlace() {
  const kept = new Map<string, string>();
  return {
    kept,
    getItem: (key: string): string | null => kept.get(key) ?? null,
    setItem: (key: string, value: string): void => void kept.set(key, value),
  };
}

const filter = (name: string, label = name) => ({ name, search: { label } });

test("a filter is kept for its page and its account alone", () => {
  const place = makePlace();
  const kept = [filter("orders")];
  expect(writeSavedFilters(() => place, { account: "acc_1", page: "/messages" }, kept)).toBe(true);
  expect(readSavedFilters(() => place, "acc_1", "/messages")).toEqual(kept);
  expect(readSavedFilters(() => place, "acc_1", "/runs")).toEqual([]);
  expect(readSavedFilters(() => place, "acc_2", "/messages")).toEqual([]);
});

test("filters are in the order of their names, and a second one with a name replaces the first", () => {
  const all = addFilter(addFilter([], filter("b")) ?? [], filter("a")) ?? [];
  expect(all.map(({ name }) => name)).toEqual(["a", "b"]);
  expect(addFilter(all, filter("b", "other"))).toEqual([filter("a"), filter("b", "other")]);
  const many = Array.from({ length: 50 }, (_, at) => filter(String(at)));
  expect(addFilter(many, filter("51"))).toBeNull();
  expect(addFilter(many, filter("7", "again"))).toHaveLength(50);
});

test("a filter has neither the place in a list nor the open entry", () => {
  expect(pickFilter({ open: "msg_1", cursor: "x", back: "y" })).toBeNull();
  expect(pickFilter({ open: "msg_1", state: "held", order: undefined })).toEqual({ state: "held" });
});

test("a storage that is damaged, foreign or turned off keeps nothing, and fails nothing", () => {
  const place = makePlace();
  for (const text of [
    "{",
    "7",
    '[{"name":1,"search":{}}]',
    '[{"name":"x","search":{"a":{"b":1}}}]',
    "[null]",
  ]) {
    place.kept.set("waypost-filters acc_1 /messages", text);
    expect(readSavedFilters(() => place, "acc_1", "/messages")).toEqual([]);
  }
  const refuse = (): never => {
    throw new Error("turned off");
  };
  // A browser refuses either the storage itself or its use.
  for (const off of [refuse, () => ({ getItem: refuse, setItem: refuse })]) {
    expect(readSavedFilters(off, "acc_1", "/messages")).toEqual([]);
    expect(writeSavedFilters(off, { account: "acc_1", page: "/messages" }, [])).toBe(false);
  }
});
