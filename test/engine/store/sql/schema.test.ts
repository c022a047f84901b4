import { expect, test } from "vitest";
import { findUpgrade, type Migration, migrations } from "../../../../src/engine/store/sql/schema.ts";

const migration = (from: string, to: string): Migration => ({
  version: `of ${to}`,
  from: { sqlite: from, postgres: `p${from}` },
  to: { sqlite: to, postgres: `p${to}` },
  sql: "",
  allowsOlder: true,
});
const steps = [migration("a", "b"), migration("b", "c"), migration("c", "d")];
const upgrade = (found: string[], target: string, all = steps) =>
  findUpgrade(all, "sqlite", { found: new Set(found), target })?.map(({ to }) => to.sqlite) ?? null;

test("a store of any older version is upgraded in steps", () => {
  expect(upgrade(["a"], "d")).toEqual(["b", "c", "d"]);
  expect(upgrade(["b", "c"], "d")).toEqual(["d"]);
  expect(upgrade(["a", "b"], "b")).toEqual([]);
  const hashes = { found: new Set(["pa"]), target: "pb" };
  expect(findUpgrade(steps, "postgres", hashes)?.map(({ version }) => version)).toEqual(["of b"]);
});

test("a migration that changes one kind of database is skipped for the other", () => {
  const sqliteOnly = { ...migration("d", "e"), to: { sqlite: "e", postgres: "pd" } };
  const all = [...steps, sqliteOnly];
  expect(upgrade(["c"], "e", all)).toEqual(["d", "e"]);
  const versions = (found: string, target: string) =>
    findUpgrade(all, "postgres", { found: new Set([found]), target })?.map(({ version }) => version);
  expect(versions("pb", "pd")).toEqual(["of c", "of d"]);
  expect(
    findUpgrade([sqliteOnly, ...steps], "postgres", { found: new Set(["pb"]), target: "pd" }),
  ).toHaveLength(2);
  expect(versions("px", "pd")).toBeUndefined();
});

test("a store of a newer or an unknown version cannot be upgraded", () => {
  expect(upgrade(["d"], "c")).toBeNull();
  expect(upgrade(["x"], "d")).toBeNull();
  expect(upgrade([], "d")).toBeNull();
  expect(upgrade(["x"], "b", [migration("c", "b"), migration("b", "c")])).toBeNull();
});

test("each schema has at most one migration to it", () => {
  for (const database of ["sqlite", "postgres"] as const) {
    const changing = migrations.filter(({ from, to }) => from[database] !== to[database]);
    const targets = changing.map(({ to }) => to[database]);
    expect(new Set(targets).size).toBe(targets.length);
  }
});
