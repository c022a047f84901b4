import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { Store } from "../../../../src/engine/store/store.ts";
import { createQueries } from "../../../../src/engine/store/catalog/queries.ts";
import type { StorageReads } from "../../../../src/engine/store/layout/storageReads.ts";
import { scanLimit } from "../../../../src/engine/store/layout/storageReads.ts";
import { createSqlReads } from "../../../../src/engine/store/sql/reads.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import {
  closeAfterTest,
  createSource,
  createTestFolder,
  makeInput,
  makeOldestFirstQuery,
  StoreFixture,
  TestClock,
} from "../storeFixture.ts";

type Query = Parameters<Store["read"]["listUnfinished"]>[0];

const makeQuery = (overrides: Partial<Query>): Query => ({
  account: "acc",
  filter: {},
  sort: "created",
  order: "earliestFirst",
  cursor: null,
  count: 100,
  ...overrides,
});

/** Opens a store with many messages that are due later. The last one has a different path. */
async function openLongList(count: number, file = ":memory:"): Promise<StoreFixture> {
  const clock = new TestClock();
  const store = closeAfterTest(await sqliteStore(file, createSource(clock, "nod_a")));
  const fixture = new StoreFixture(store, clock, "nod_a");
  await fixture.account();
  const common = makeInput({ delay: 60_000, body: new Uint8Array(0) });
  await fixture.publish([
    ...Array.from({ length: count }, () => common),
    { ...common, url: "https://one.example/rare", labels: ["rare"] },
  ]);
  return fixture;
}

test("one call searches a limited number of messages, and its cursor continues behind them", async () => {
  const fixture = await openLongList(2 * scanLimit);
  for (const sort of ["created", "due"] as const) {
    const query = makeQuery({ sort, filter: { paths: ["/rare"] } });
    const pages: number[] = [];
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<Store["read"]["listUnfinished"]>> =
        await fixture.store.read.listUnfinished({ ...query, cursor });
      pages.push(page.entries.length);
      expect(page.total).toBeNull();
      cursor = page.cursor;
    } while (cursor !== null);
    expect(pages).toEqual([0, 0, 1]);
  }
});

test("a search for a path, a caller or a time reads only the stored messages that have it", async () => {
  const file = join(createTestFolder(), "waypost.db");
  await openLongList(scanLimit - 1, file);
  const database = openSqlite(file, { readOnly: true });
  onTestFinished(() => database.close());
  const storageReads = createSqlReads(database.connection);
  let read = 0;
  const reads: StorageReads = {
    ...storageReads,
    rows: async (table, keys, options) => {
      const rows = await storageReads.rows(table, keys, options);
      if (table === "storedMessages") read += rows.length;
      return rows;
    },
  };
  const { listUnfinished } = createQueries(reads);
  for (const filter of [{ paths: ["/rare"] }, { urls: ["https://one.example/rare"] }]) {
    read = 0;
    const page = await listUnfinished(makeQuery({ filter }));
    expect(page.entries).toHaveLength(1);
    expect(read).toBe(1);
  }
  read = 0;
  await listUnfinished(makeQuery({ filter: { callerIps: ["192.0.2.200"] } }));
  expect(read).toBe(0);
  // In the order of due times, messages of all times of acceptance are visited.
  expect((await listUnfinished(makeQuery({ sort: "due", filter: { to: 1 } }))).entries).toEqual([]);
  expect(read).toBe(0);
});

test("a list reads the rows that it shows and one more, and a search takes few reads", async () => {
  const file = join(createTestFolder(), "waypost.db");
  await openLongList(scanLimit - 1, file);
  const database = openSqlite(file, { readOnly: true });
  onTestFinished(() => database.close());
  const storageReads = createSqlReads(database.connection);
  const counted = { reads: 0, rows: 0 };
  const count = <Row>(rows: readonly Row[]): readonly Row[] => {
    counted.reads++;
    counted.rows += rows.length;
    return rows;
  };
  const { listUnfinished, log } = createQueries({
    ...storageReads,
    range: async (table, range) => {
      const rows = await storageReads.range(table, range);
      if (table === "messages" || (table === "storedMessages" && range.limit > 1)) count(rows);
      return rows;
    },
    messagesByDue: async (range) => count(await storageReads.messagesByDue(range)),
  });
  const cost = async (run: () => Promise<unknown>): Promise<typeof counted> => {
    Object.assign(counted, { reads: 0, rows: 0 });
    await run();
    return { ...counted };
  };
  for (const sort of ["created", "due"] as const) {
    expect(await cost(() => listUnfinished(makeQuery({ sort })))).toEqual({ reads: 1, rows: 101 });
    const filter = { paths: ["/none"] };
    const search = await cost(() => listUnfinished(makeQuery({ sort, filter })));
    expect(search.rows).toBe(scanLimit);
    expect(search.reads).toBeLessThan(12);
  }
  expect(await cost(() => log(makeOldestFirstQuery()))).toEqual({ reads: 1, rows: 101 });
  const filter = { states: ["ACTIVE" as const] };
  const search = await cost(() => log(makeOldestFirstQuery({ filter })));
  expect(search.rows).toBe(scanLimit);
  expect(search.reads).toBeLessThan(12);
});

test("a rare tag is found at once among many messages, in both orders", async () => {
  const fixture = await openLongList(2 * scanLimit);
  for (const sort of ["created", "due"] as const) {
    const page = await fixture.store.read.listUnfinished(makeQuery({ sort, filter: { labels: ["rare"] } }));
    expect(page).toMatchObject({ entries: [{}], cursor: null, total: { count: 1, more: false } });
  }
});

test("a set of messages is sorted as a whole, or else searched in the order of the list", async () => {
  const fixture = await openLongList(0);
  for (const count of [999, 1]) {
    fixture.capacity = { total: 0, perHost: 0 };
    await fixture.publish(Array.from({ length: count }, () => makeInput({ url: "https://two.example/" })));
    await fixture.store.execute("claim", { limit: 1_000 });
  }
  const query = makeQuery({ filter: { gates: ["capacity"] } });
  const few = await fixture.store.read.listUnfinished(query);
  expect(few).toMatchObject({ total: { count: 1_000, more: false } });
  await fixture.publish([makeInput({ url: "https://two.example/" })]);
  await fixture.store.execute("claim", { limit: 1_000 });
  const many = await fixture.store.read.listUnfinished(query);
  expect(many.total).toBeNull();
  expect(many.entries.map(({ state }) => state.id)).toEqual(few.entries.map(({ state }) => state.id));
  expect(many.cursor).toBe(few.cursor);
});

test("many retries among many more messages are listed without a search, in both directions", async () => {
  const fixture = await openLongList(scanLimit);
  const ids: string[] = [];
  for (let n = 0; n < 1_100; n++) {
    const sent = await fixture.sent({ retryDelay: "60000" });
    await fixture.settle(sent, { status: 500 });
    ids.push(sent.message.id);
  }
  const query = makeQuery({ filter: { listedStates: ["retrying"] } });
  for (const order of ["earliestFirst", "latestFirst"] as const) {
    const found: string[] = [];
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<Store["read"]["listUnfinished"]>> =
        await fixture.store.read.listUnfinished({ ...query, order, cursor });
      expect(page.entries.length).toBe(100);
      found.push(...page.entries.map(({ state }) => state.id));
      cursor = page.cursor;
    } while (cursor !== null);
    expect(found).toEqual(order === "earliestFirst" ? ids : ids.toReversed());
  }
});

test("messages without a filter are counted up to a limit", async () => {
  const fixture = await openLongList(10_000);
  const { total } = await fixture.store.read.listUnfinished(makeQuery({ count: 1 }));
  expect(total).toEqual({ count: 10_000, more: true });
});
