import { join } from "node:path";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { afterAll } from "vitest";
import type { NodeId } from "../../../../src/engine/core/values/basics.ts";
import { alarm, elapsed } from "../../../../src/engine/clock/clock.ts";
import { embeddedStore } from "../../../../src/engine/store/sqlite/embeddedStore.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { tableNames } from "../../../../src/engine/store/catalog/order.ts";
import { tables } from "../../../../src/engine/store/catalog/tables.ts";
import { describeStore } from "../contract/index.ts";
import type { TestClock } from "../storeFixture.ts";
import { closeAfterTest, createTestFolder, sleepReal, createSource } from "../storeFixture.ts";

describeStore("SQLite in memory", async (clock, node) =>
  closeAfterTest(await sqliteStore(":memory:", createSource(clock, node))),
);

describeStore(
  "SQLite on disk",
  async (clock, node) =>
    closeAfterTest(await sqliteStore(join(createTestFolder(), "store.db"), createSource(clock, node))),
  { long: "all" },
);

// Threads start slowly, so the tests share them. Each test finds the tables empty.
const folder = mkdtempSync(join(tmpdir(), "waypost-threads-"));
const path = join(folder, "store.db");
let threads: Store | null = null;

describeStore("SQLite of a server", openEmpty, { long: "others" });

async function openEmpty(clock: TestClock, node: NodeId): Promise<Store> {
  threads ??= await embeddedStore({
    path,
    momentSource: createSource(clock, node),
    pause: sleepReal,
    alarm,
    elapsed,
  });
  await empty();
  const { close } = threads;
  return {
    ...threads,
    close: () => {
      threads = null;
      return close();
    },
  };
}

async function empty(): Promise<void> {
  const database = openSqlite(path);
  for (const name of tableNames) await database.connection.query(`delete from ${tables[name].name}`, []);
  database.close();
}

afterAll(async () => {
  await threads?.close();
  rmSync(folder, { recursive: true, force: true });
});
