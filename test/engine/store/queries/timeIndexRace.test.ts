import { join } from "node:path";
import { expect, test } from "vitest";
import { openPostgresReads } from "../../../../src/engine/store/postgres/readers.ts";
import { createQueries } from "../../../../src/engine/store/catalog/queries.ts";
import type { StorageReads } from "../../../../src/engine/store/layout/storageReads.ts";
import { createSqlReads } from "../../../../src/engine/store/sql/reads.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { freshDatabase } from "../../../postgres.ts";
import { openNode } from "../postgres/postgresDatabase.ts";
import {
  closeAfterTest,
  createSource,
  createTestFolder,
  makeInput,
  makeLogQuery,
  StoreFixture,
  TestClock,
} from "../storeFixture.ts";

const day = 24 * 60 * 60 * 1_000;
const wanted = "https://wanted.example/";

/** A store, and a separate connection that reads it. */
type Opened = { store: Store; reads: StorageReads; close(): Promise<void> };

async function openFile(clock: TestClock): Promise<Opened> {
  const path = join(createTestFolder(), "store.db");
  const store = await sqliteStore(path, createSource(clock, "nod_a"));
  const { connection, close } = openSqlite(path, { readOnly: true });
  return { store, reads: createSqlReads(connection), close: async () => close() };
}

async function openDatabase(clock: TestClock): Promise<Opened> {
  const url = await freshDatabase();
  const store = await openNode(url, clock);
  const { storageReads, close } = await openPostgresReads({ url }, { name: "nod_reader" });
  return { store, reads: storageReads, close };
}

/** Calls `run` once, just before the first page of the time index is read. */
function beforeIndexPage(reads: StorageReads, run: () => Promise<unknown>): StorageReads {
  let hasRun = false;
  return {
    ...reads,
    range: async (table, range) => {
      // A read of one row only finds the beginning or the end of the index.
      if (table === "timeIndex" && range.limit > 1 && !hasRun) {
        hasRun = true;
        await run();
      }
      return reads.range(table, range);
    },
  };
}

test.each([
  ["SQLite", openFile, "earliestFirst"],
  ["SQLite", openFile, "latestFirst"],
  ["PostgreSQL", openDatabase, "earliestFirst"],
  ["PostgreSQL", openDatabase, "latestFirst"],
] as const)(
  "on %s, a search finds the messages of a day whose index is removed meanwhile",
  async (_name, open, order) => {
    const clock = new TestClock(Math.ceil(1_800_000_000_000 / day) * day + day / 8);
    const { store, reads, close } = await open(clock);
    const world = new StoreFixture(closeAfterTest(store), clock, "nod_a");
    await world.account();
    const ids: string[] = [];
    // The first day is removed during the search; its unfinished messages stay. 250 others are
    // between them, so a page of rows has few of them.
    const others = Array.from({ length: 250 }, () => makeInput({ delay: 60 * day, body: new Uint8Array(0) }));
    for (let n = 0; n < 3; n++) {
      await world.settle(await world.sent());
      await world.publish(others);
      clock.now += day / 4;
      ids.push(await world.send({ url: wanted, delay: 60 * day }));
      clock.now += (day * 3) / 4;
    }
    const retention = { log: 2 * day, deadLetters: 2 * day };
    const expire = () => store.execute("expire", { account: "acc", retention, now: clock.now, limit: 1_000 });
    const queries = createQueries(beforeIndexPage(reads, expire));
    const query = makeLogQuery({ filter: { urls: [wanted] }, order });
    const { events } = await queries.log(query);
    await close();
    expect(events.map(({ message }) => message.id)).toEqual(order === "latestFirst" ? ids.toReversed() : ids);
  },
);
