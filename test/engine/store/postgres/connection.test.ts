import type { QueryConfig } from "pg";
import { expect, test } from "vitest";
import { createConnection } from "../../../../src/engine/store/postgres/connection.ts";
import type { Columns } from "../../../../src/engine/store/catalog/tables.ts";

/** Returns a connection whose statements return the ids they were given, and the recorded statements. */
function connection() {
  const statements: string[][][] = [];
  const { each } = createConnection(async ({ values = [] }: QueryConfig<unknown[]>) => {
    const lists = values.map((list) => String(list).slice(1, -1).split(",").filter(Boolean));
    statements.push(lists);
    return { rows: (lists[0] ?? []).map((id): Columns => ({ id: JSON.parse(id) as string })) };
  });
  return { each, statements };
}

const megabyte = 1024 * 1024;
const rowOf = (id: string, bytes: number): [string, Uint8Array] => [id, new Uint8Array(bytes)];

test("rows with large bodies are split over several statements, in order", async () => {
  const { each, statements } = connection();
  const body = new Uint8Array(8 * megabyte);
  const rows = Array.from({ length: 10 }, (_, index): [string, Uint8Array] => [`m${index}`, body]);
  expect(await each("insert", ["text", "bytea"], rows)).toEqual(rows.map(([id]) => ({ id })));
  expect(statements.map(([ids]) => ids?.length)).toEqual([4, 4, 2]);
  const literal = `"\\\\x${"00".repeat(8 * megabyte)}"`;
  expect(statements.flatMap(([, bodies = []]) => bodies.map((one) => one === literal))).toEqual(
    rows.map(() => true),
  );
});

test("a large row has its own statement, small rows share one, and no rows need one too", async () => {
  const { each, statements } = connection();
  await each("insert", ["text", "bytea"], [rowOf("a", 1), rowOf("b", 40 * megabyte), rowOf("c", 1)]);
  await each(
    "insert",
    ["text", "bytea"],
    Array.from({ length: 5_000 }, (_, index) => rowOf(String(index), 100)),
  );
  await each("insert", ["text", "bytea"], []);
  expect(statements.map(([ids]) => ids?.length)).toEqual([1, 1, 1, 5_000, 0]);
});
