import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import type { Filter } from "../../../../src/engine/core/search/filter.ts";
import { firstIdAt } from "../../../../src/engine/core/values/ids.ts";
import {
  indexInterval,
  listTimeIndexIds,
  makeTimeIndexKeys,
} from "../../../../src/engine/core/search/timeIndex.ts";
import { createQueries } from "../../../../src/engine/store/catalog/queries.ts";
import type { StorageReads } from "../../../../src/engine/store/layout/storageReads.ts";
import { scanLimit } from "../../../../src/engine/store/layout/storageReads.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import { createSqlReads } from "../../../../src/engine/store/sql/reads.ts";
import {
  closeAfterTest,
  makeOldestFirstQuery,
  createTestFolder,
  makeInput,
  createSource,
  listStates,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";

// The number of rows that searches by the time index read, which the contract does not cover.

const day = 24 * 60 * 60 * 1_000;
const rare = "https://rare.example/";

test("a rare URL is found at once in a log that is longer than one page visits", async () => {
  const clock = new TestClock();
  const world = new StoreFixture(
    closeAfterTest(await sqliteStore(":memory:", createSource(clock, "nod_a"))),
    clock,
    "nod_a",
  );
  await world.account();
  // As long as the log has no entry, the first day of the time index may be partly removed.
  await world.settle(await world.sent());
  const common = makeInput({ delay: 600, body: new Uint8Array(0), labels: ["common"] });
  const wanted = { ...common, url: rare, callerIp: "192.0.2.9" };
  for (const inputs of [[common], [wanted], [common], [wanted], [common]]) {
    await world.publish(
      inputs.flatMap((input) =>
        input === wanted ? [input] : Array.from({ length: scanLimit }, () => input),
      ),
    );
    clock.now += 10_000;
  }
  const filters: Filter[] = [
    { urls: [rare] },
    { paths: ["/"], labels: ["common"] },
    { callerIps: ["192.0.2.9"] },
    { hosts: ["rare.example"] },
  ];
  for (const filter of filters) {
    const found = await world.store.read.log(makeOldestFirstQuery({ filter, count: 10 }));
    expect({ states: listStates(found), cursor: found.cursor }, JSON.stringify(filter)).toEqual({
      states: ["CREATED", "CREATED"],
      cursor: null,
    });
  }
});

test("a search for a host of all messages reads no more than the whole log", async () => {
  const clock = new TestClock();
  const world = new StoreFixture(
    closeAfterTest(await sqliteStore(":memory:", createSource(clock, "nod_a"))),
    clock,
    "nod_a",
  );
  await world.account();
  for (let n = 0; n < 60; n++) {
    await world.settle(await world.sent({ labels: n % 2 ? ["odd"] : [] }));
    clock.now += 60_000;
  }
  const whole = await world.store.read.log(makeOldestFirstQuery({ count: 500 }));
  const found = await world.store.read.log(
    makeOldestFirstQuery({ filter: { hosts: ["one.example"], labels: ["odd", "none"] }, count: 500 }),
  );
  expect([whole.events.length, found.events.length]).toEqual([180, 90]);
  const paths = await world.store.read.log(
    makeOldestFirstQuery({ filter: { paths: ["/hook"] }, count: 500 }),
  );
  expect(paths).toEqual(whole);
});

test("of very many URLs within 5 s, the first are distinguished, and all of them are found", async () => {
  const path = join(createTestFolder(), "store.db");
  const clock = new TestClock();
  const world = new StoreFixture(
    closeAfterTest(await sqliteStore(path, createSource(clock, "nod_a"))),
    clock,
    "nod_a",
  );
  await world.account();
  const urlOf = (n: number): string => `https://one.example/${n}`;
  for (const first of [0, 600, 1_200, 1_800]) {
    await world.publish(
      Array.from({ length: 600 }, (_, n) =>
        makeInput({ url: urlOf(first + n), delay: 600, body: new Uint8Array(0) }),
      ),
    );
  }
  const database = new DatabaseSync(path, { readOnly: true });
  const count = (of: string): unknown =>
    database.prepare("select count(*) as n from time_index where id like ?").get(`% ${of}%`)?.n;
  expect([count("url:"), count("path:"), count("host:"), count("any")]).toEqual([1_000, 1_000, 1, 1]);
  database.close();
  for (const n of [0, 999, 1_000, 2_399]) {
    const { events } = await world.store.read.log(
      makeOldestFirstQuery({ filter: { urls: [urlOf(n)] }, count: 10 }),
    );
    expect(events.map(({ message }) => message.url)).toEqual([urlOf(n)]);
  }
});

type Read = {
  found: number;
  cursor: string | null;
  ranges: number;
  rows: number;
  tagged: number;
  indexEntries: number;
};

/**
 * Returns what a page of at most 1,000 entries reads: ranges of the log, rows in them, rows by tag, and time
 * index entries.
 */
async function readFor(path: string, filter: Filter, cursor: string | null = null): Promise<Read> {
  const database = openSqlite(path, { readOnly: true });
  const reads = createSqlReads(database.connection);
  const read = { ranges: 0, rows: 0, tagged: 0, indexEntries: 0 };
  const counted: StorageReads = {
    ...reads,
    range: async (table, range) => {
      const rows = await reads.range(table, range);
      // A read of one row only finds the beginning of the log.
      if ((table === "log" || table === "storedMessages") && range.limit > 1) {
        read.ranges++;
        read.rows += rows.length;
      }
      if (table === "timeIndex") read.indexEntries += rows.length;
      return rows;
    },
    rows: async (table, keys, how) => {
      // The rows of the page are read again with their bodies.
      if (table === "log" && how?.bodies === false) read.tagged += keys.length;
      return reads.rows(table, keys, how);
    },
  };
  const page = await createQueries(counted).log(makeOldestFirstQuery({ filter, cursor, count: 1_000 }));
  database.close();
  return { found: page.events.length, cursor: page.cursor, ...read };
}

test("a search takes the shorter plan and never reads more than the whole log", async () => {
  const path = join(createTestFolder(), "store.db");
  const clock = new TestClock();
  const world = new StoreFixture(
    closeAfterTest(await sqliteStore(path, createSource(clock, "nod_a"))),
    clock,
    "nod_a",
  );
  await world.account();
  // There are 240 messages in separate intervals of 5 s. All have one path and one label, and one in 80 has
  // its own URL and label.
  for (let n = 0; n < 240; n++) {
    const isRare = n % 80 === 40;
    const input = {
      url: `https://one.example/hook${isRare ? "?rare" : ""}`,
      labels: isRare ? ["all", "rare"] : ["all"],
    };
    await world.settle(await world.sent(input));
    clock.now += 10_000;
  }
  const whole = await readFor(path, {});
  expect(whole).toMatchObject({ found: 720, rows: 480, tagged: 0 });

  // Many tags with few time index entries, and the reverse.
  const byTimeIndex = await readFor(path, { urls: ["https://one.example/hook?rare"], labels: ["all"] });
  expect(byTimeIndex).toMatchObject({ found: 9, tagged: 0 });
  expect(await readFor(path, { paths: ["/hook"], labels: ["rare"] })).toMatchObject({ found: 9, rows: 0 });
  // Many of both: tags identify the rows, but the time index only identifies the time.
  expect(await readFor(path, { paths: ["/hook"], labels: ["all"] })).toMatchObject({ found: 720, rows: 0 });

  for (const filter of [
    { paths: ["/hook"] },
    { hosts: ["one.example"] },
    { paths: ["/hook"], hosts: ["one.example"] },
  ]) {
    const { found, ranges, rows } = await readFor(path, filter);
    expect({ filter, found, isMore: ranges > whole.ranges || rows > whole.rows }).toEqual({
      filter,
      found: 720,
      isMore: false,
    });
  }
});

test.each<[string, (at: number) => "url" | "caller"]>([
  ["by turns", (at) => ((at / indexInterval) % 2 < 1 ? "url" : "caller")],
  [
    "one all the time and the other once a day",
    (at) => ((at + indexInterval) % day < indexInterval ? "url" : "caller"),
  ],
])(
  "values that occur often, but never together (%s), are searched page by page",
  { tags: "long" },
  async (_, keyAt) => {
    const path = join(createTestFolder(), "store.db");
    const clock = new TestClock();
    const world = new StoreFixture(
      closeAfterTest(await sqliteStore(path, createSource(clock, "nod_a"))),
      clock,
      "nod_a",
    );
    await world.account();
    const both = { url: "https://one.example/a", callerIp: "192.0.2.1" };
    const start = clock.now;
    await world.settle(await world.sent(both));
    const other = await world.sent({ url: "https://two.example/b", callerIp: "192.0.2.2" });
    clock.now += 6 * day;
    await world.settle(await world.sent(both));
    const [url = "", , , caller = ""] = makeTimeIndexKeys(both).split(" ");
    const database = new DatabaseSync(path);
    const insertEntry = database.prepare(
      "insert into time_index (account, id) select account, ? from time_index limit 1 on conflict do nothing",
    );
    const insertRow = database.prepare(
      `insert into log (account, id, message_id, time, states, status, detail, body)
        select account, ?, '${other.message.id}', time, states, status, detail, body
        from log where account = 'acc' order by id limit 1`,
    );
    database.exec("begin");
    for (let at = start + indexInterval; at < clock.now - indexInterval; at += indexInterval) {
      for (const id of listTimeIndexIds(keyAt(at) === "url" ? url : caller, at)) insertEntry.run(id);
      insertRow.run(`${firstIdAt("log", at)}other`);
    }
    database.exec("commit");
    database.close();

    const filter: Filter = { urls: [both.url], callerIps: [both.callerIp] };
    let found = 0;
    for (let cursor: string | null = null; ;) {
      const page: Read = await readFor(path, filter, cursor);
      expect(page.indexEntries).toBeLessThan(12_000);
      found += page.found;
      if (page.cursor === null) break;
      cursor = page.cursor;
    }
    expect(found).toBe(6);
  },
);
