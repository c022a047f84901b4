import { closeSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { findDifferences } from "../../../../src/engine/store/sqlite/contentCheck.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import type { Damage } from "../../../../src/engine/store/sqlite/fileCheck.ts";
import { spreadKeys } from "../../../../src/engine/store/sqlite/spreadKeys.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import { startCheckThread } from "../../../../src/engine/store/sqlite/worker.ts";
import { createSource, createTestFolder, StoreFixture, TestClock } from "../storeFixture.ts";

const minute = 60_000;

/** Returns a store with 200 messages that wait, and a way to read its file after some change of it. */
async function createFilled() {
  const path = join(createTestFolder(), "store.db");
  const clock = new TestClock();
  const world = new StoreFixture(await sqliteStore(path, createSource(clock, "nod_a")), clock, "nod_a");
  await world.account();
  for (let n = 0; n < 200; n++) await world.send({ delay: minute });
  await world.store.close();
  const alter = (run: (database: DatabaseSync) => void): void => {
    const database = new DatabaseSync(path);
    // Lets a test change what SQLite keeps consistent.
    database.enableDefensive(false);
    database.exec("pragma writable_schema = on");
    run(database);
    database.close();
  };
  const find = async (options?: { wholeUpTo: number }): Promise<Damage[]> => {
    const { connection, close } = openSqlite(path, { readOnly: true });
    try {
      return await findDifferences(connection, options);
    } finally {
      close();
    }
  };
  return { path, clock, alter, find };
}

/** Removes all entries of an index, as if its root had been replaced by an empty page. */
function emptyIndex(path: string, name: string): void {
  const database = new DatabaseSync(path);
  database.exec("pragma wal_checkpoint(truncate)");
  const root = Number(
    database.prepare("select rootpage from sqlite_schema where name = ?").get(name)?.rootpage,
  );
  const pageBytes = Number(database.prepare("pragma page_size").get()?.page_size);
  database.close();
  // The header of an empty leaf of an index: its kind, no free block, no cells, cells from the
  // end of the page.
  const header = Buffer.from([10, 0, 0, 0, 0, pageBytes >> 8, pageBytes & 255, 0]);
  const file = openSync(path, "r+");
  writeSync(
    file,
    Buffer.concat([header, Buffer.alloc(pageBytes - header.length)]),
    0,
    pageBytes,
    (root - 1) * pageBytes,
  );
  closeSync(file);
}

describe.each([
  ["read as a whole", {}],
  ["of which a sample is read", { wholeUpTo: 0 }],
])("a store, %s", (_, options) => {
  test("without damage has no differences", async () => {
    const { find } = await createFilled();
    expect(await find(options as { wholeUpTo: number })).toEqual([]);
  });

  test.each(["messages_due", "messages_turn", "messages_host", "sqlite_autoindex_stored_messages_1"])(
    "reports that the index %s is empty",
    async (name) => {
      const { path, find } = await createFilled();
      emptyIndex(path, name);
      expect(await find(options as { wholeUpTo: number })).toContainEqual({
        isFile: true,
        text: expect.stringContaining(name),
      });
    },
  );

  test("reports a count that differs from the rows", async () => {
    const { alter, find } = await createFilled();
    alter((database) => database.exec("update store_counts set value = 150 where name = 'pending'"));
    expect(await find(options as { wholeUpTo: number })).toEqual([
      { isFile: false, text: "messages should have 150 rows, and has 200" },
    ]);
  });
});

test("the thread that checks all tables passes each of them once, and reports what is damaged", async () => {
  const { path } = await createFilled();
  emptyIndex(path, "messages_due");
  const found: Damage[] = [];
  const thread = startCheckThread({ path, keys: null }, (damage) => found.push(damage));
  const checked: string[] = [];
  for (let table = await thread.checkTable(null); table !== null; table = await thread.checkTable(table))
    checked.push(table);
  await thread.close();
  const [messages, stored, waiters, ...others] = checked;
  expect([messages, stored, waiters]).toEqual(["messages", "stored_messages", "waiters"]);
  expect(others).toEqual([...new Set(others)].toSorted());
  expect(others).toContain("schedules");
  expect(others).not.toContain("messages");
  expect(found).toContainEqual({ isFile: true, text: expect.stringContaining("messages_due") });
});

test("a store whose index has another condition is not opened", async () => {
  const { path, clock, alter } = await createFilled();
  alter((database) =>
    database.exec("update sqlite_schema set sql = replace(sql, 'due_at', 'duf_at') where name = 'jobs_due'"),
  );
  await expect(sqliteStore(path, createSource(clock, "nod_b"))).rejects.toThrow(path);
});

test("a store without an index is not opened, and the error names it", async () => {
  const { path, clock, alter } = await createFilled();
  alter((database) => database.exec("drop index messages_due"));
  await expect(sqliteStore(path, createSource(clock, "nod_b"))).rejects.toThrow(
    "the definition of messages_due is missing",
  );
});

test("keys are spread between the first and the last one", () => {
  expect(spreadKeys(["a", "m10"], ["a", "m90"], 3)).toEqual([
    ["a", expect.stringMatching(/^m3/)],
    ["a", expect.stringMatching(/^m5/)],
    ["a", expect.stringMatching(/^m7/)],
  ]);
  expect(spreadKeys([1], [101], 4)).toEqual([[21], [41], [61], [81]]);
  expect(spreadKeys(["a"], ["a"], 4)).toEqual([]);
});
