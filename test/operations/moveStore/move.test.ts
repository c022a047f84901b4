import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { firstIdAt } from "../../../src/engine/core/values/ids.ts";
import { createPostgresTables } from "../../../src/engine/store/postgres/schema.ts";
import type { Cell, TableLayout, MoveEndpoint } from "../../../src/operations/moveStore/move.ts";
import { move } from "../../../src/operations/moveStore/move.ts";
import { openPostgresForMove } from "../../../src/operations/moveStore/postgres.ts";
import { openSqliteForMove } from "../../../src/operations/moveStore/sqlite.ts";
import { olderHold } from "../../../src/engine/store/sql/hold.ts";
import { sqliteStore } from "../../../src/engine/store/sqlite/sqliteStore.ts";
import { StorageRefused } from "../../../src/engine/store/layout/storageErrors.ts";
import { tableNames } from "../../../src/engine/store/catalog/order.ts";
import { freshDatabase } from "../../postgres.ts";
import { createRandom } from "../../engine/store/createRandom.ts";
import { ask, openNode } from "../../engine/store/postgres/postgresDatabase.ts";
import {
  createTestFolder,
  createSteppedClock,
  createSource,
  TestClock,
  StoreFixture,
} from "../../engine/store/storeFixture.ts";

// A move copies everything in a store to another one, whatever the content and however often it is
// interrupted.

/** Opens a side of a move. It is closed when the test ends, if not before. */
async function opened(side: Promise<MoveEndpoint>): Promise<MoveEndpoint> {
  const { close, ...rest } = await side;
  let closing: Promise<void> | null = null;
  const once = (): Promise<void> => (closing ??= close());
  onTestFinished(once);
  return { ...rest, close: once };
}

const testClock = new TestClock();
const clock = createSteppedClock(testClock);

const newPath = (): string => join(createTestFolder(), "waypost.db");
const source = (path: string): Promise<MoveEndpoint> =>
  opened(openSqliteForMove(path, { name: "the old one", isTarget: false }));
const target = (url: string): Promise<MoveEndpoint> =>
  opened(openPostgresForMove(url, { name: "the new one", isTarget: true, clock, now: () => testClock.now }));

const silent = (): void => undefined;
const now = (): number => 1_800_000_000_000;

/** Texts that sort differently by UTF-16 than by bytes, and other unusual texts. */
const odd = ["\u{1F984}", "\uFF5E", "é", "e\u0301", "a'b\\c", "two\nlines", "", "\\x00", "%_?$1", "NULL"];

/**
 * Fills every table with rows that have a value in each column. In every third row, columns that may be null
 * are null.
 */
async function fill(path: string, rows: number): Promise<void> {
  const side = await openSqliteForMove(path, { name: "filled", isTarget: false });
  const random = createRandom(1);
  for (const table of await side.tables()) {
    // Only PostgreSQL has rows in this table. They record the deleted part of the log.
    if (table.name === "log_cuts") continue;
    const mayBeNull = new Set(
      (
        await side.query(`select name from pragma_table_info(?) where "notnull" = 0 and pk = 0`, [table.name])
      ).map(([name]) => name),
    );
    const made = Array.from({ length: rows }, (_, row) =>
      table.columns.map(({ name, type }, column): Cell => {
        if (mayBeNull.has(name) && row % 3 === 0) return null;
        // Log entries are partitioned by the times in their ids.
        if (table.name === "log" && name === "id") return `1700000000000-${row}`;
        if (type === "text") return `${odd[(row + column) % odd.length]} ${name} ${row}`;
        if (type === "bytea") return Uint8Array.from({ length: row % 300 }, () => Math.floor(random() * 256));
        const most = type === "bigint" ? 2n ** 63n - 1n : 2n ** 31n - 1n;
        return [most, -most - 1n, 0n, BigInt(row), most - 12_345n][row % 5] ?? 0n;
      }),
    );
    await side.insert(table, made);
  }
  await side.close();
}

async function dump(side: MoveEndpoint): Promise<Record<string, Cell[][]>> {
  const all: Record<string, Cell[][]> = {};
  for (const { name, columns, key } of await side.tables()) {
    const names = columns.map((column) => column.name).sort();
    const rows = await side.query(
      `select ${names.join(", ")} from ${name} order by ${[...key].sort().join(", ")}`,
      [],
    );
    all[name] = rows.map((row) =>
      row.map((cell) => (cell instanceof Uint8Array ? `bytes ${Buffer.from(cell).toString("hex")}` : cell)),
    );
  }
  return all;
}

test("a store is the same on PostgreSQL, and on SQLite again after it is moved back", async () => {
  const path = newPath();
  const back = newPath();
  const url = await freshDatabase();
  // More rows than fit in a batch.
  const rows = 1_050;
  await fill(path, rows);
  const lines: string[] = [];
  const from = await source(path);
  const to = await target(url);
  await move({ from, to, report: (line) => lines.push(line), now });
  const there = await dump(to);
  expect(there).toEqual(await dump(from));
  const names = Object.keys(there);
  expect(names.length).toBeGreaterThanOrEqual(tableNames.length);
  for (const name of names.filter((one) => one !== "log_cuts")) {
    expect(there[name]).toHaveLength(rows);
    expect(lines).toContain(`${name}: ${rows} of ${rows}`);
    expect(lines).toContainEqual(
      expect.stringMatching(
        new RegExp(`^${name}: ${rows} rows, identical on both sides, SHA-256 [0-9a-f]{64}$`),
      ),
    );
  }
  await to.close();

  const again = await opened(openPostgresForMove(url, { name: "the new one", isTarget: false, clock }));
  const last = await opened(openSqliteForMove(back, { name: "the last one", isTarget: true }));
  await move({ from: again, to: last, report: silent, now });
  expect(await dump(last)).toEqual(there);
});

test("a body larger than a batch, and many bodies together, arrive whole", { tags: "long" }, async () => {
  const path = newPath();
  const url = await freshDatabase();
  await fill(path, 1);
  const side = await openSqliteForMove(path, { name: "filled", isTarget: false });
  const sizes = [20, 7, 7, 7, 0, 1];
  for (const [index, size] of sizes.entries()) {
    await side.query("insert into stored_messages (account, id, detail, body) values ('big', ?, '{}', ?)", [
      String(index),
      new Uint8Array(size * 1024 * 1024).fill(index + 1),
    ]);
  }
  await side.close();
  const to = await target(url);
  await move({ from: await source(path), to, report: silent, now });
  const found = await to.query(
    "select length(body), get_byte(body, 5) from stored_messages " +
      "where account = 'big' and length(body) > 0 order by id",
    [],
  );
  expect(found).toEqual(
    [20, 7, 7, 7, 1].map((size, index) => [BigInt(size * 1024 * 1024), [1n, 2n, 3n, 4n, 6n][index]]),
  );
});

test("log entries of any day are moved, even if the target has no partition for the day", async () => {
  const path = newPath();
  const url = await freshDatabase();
  const side = await openSqliteForMove(path, { name: "filled", isTarget: false });
  const day = 24 * 3_600_000;
  for (const days of [-400, -1, 0, 1, 2, 40])
    await side.query(
      "insert into log (account, id, message_id, time, states) values ('acc', ?, 'msg', 0, 'CREATED')",
      [firstIdAt("log", Date.now() + days * day)],
    );
  await side.close();
  const from = await source(path);
  const to = await target(url);
  await move({ from, to, report: silent, now });
  expect(await dump(to)).toEqual(await dump(from));
  // A server can then use the target today.
  await to.close();
  const clock = new TestClock();
  const world = new StoreFixture(await openNode(url, clock), clock, "nod_a");
  await world.account();
  expect(await world.send({ delay: 1 })).toMatch(/^msg_/);
  await world.store.close();
});

test(
  "an interrupted move continues where it stopped, and no server starts on a part of a store",
  { tags: "long" },
  async () => {
    const path = newPath();
    const url = await freshDatabase();
    await fill(path, 1_200);
    for (let turn = 0, done = false; !done; turn++) {
      expect(turn).toBeLessThan(40);
      const from = await source(path);
      const to = await target(url);
      let left = 3;
      /**
       * The power fails at every third batch: either before it is written, or before that is acknowledged.
       */
      const insert = async (table: TableLayout, rows: readonly Cell[][]): Promise<void> => {
        left--;
        if (left === 0 && turn % 2 === 0) throw new Error("the power failed");
        await to.insert(table, rows);
        if (left === 0) throw new Error("the power failed");
      };
      const lines: string[] = [];
      const moving = move({ from, to: { ...to, insert }, report: (line) => lines.push(line), now });
      done = await moving.then(
        () => true,
        () => false,
      );
      expect(lines[0]).toBe(turn === 0 ? lines[0] : "continuing the earlier move to the new one");
      if (done) expect(await dump(to)).toEqual(await dump(from));
      await Promise.all([from.close(), to.close()]);
      if (!done)
        await expect(openNode(url, new TestClock())).rejects.toThrow(/only a part of a store was moved here/);
    }
    const store = await openNode(url, new TestClock());
    await store.close();
  },
);

test("a server does not open a half-moved SQLite store", async () => {
  const path = newPath();
  const half = newPath();
  await fill(path, 5);
  const to = await opened(openSqliteForMove(half, { name: "half", isTarget: true }));
  const insert = async (): Promise<void> => {
    throw new Error("the power failed");
  };
  await expect(
    move({ from: await source(path), to: { ...to, insert }, report: silent, now }),
  ).rejects.toThrow("the power failed");
  await to.close();
  await expect(sqliteStore(half, createSource(new TestClock(), "nod_a"))).rejects.toThrow(StorageRefused);
});

test("a target with other data is left unchanged", async () => {
  const path = newPath();
  const url = await freshDatabase();
  await fill(path, 5);
  await createPostgresTables({ url, clock });
  await ask(url, "insert into host_waitlists values ('acc', 'host', 1)");
  const to = await target(url);
  await expect(move({ from: await source(path), to, report: silent, now })).rejects.toThrow(
    "the new one: already has data (host_waitlists); choose an empty store",
  );
  expect(await ask(url, "select account from host_waitlists union all select id from accounts")).toEqual([
    { account: "acc" },
  ]);
  await to.close();
  await (await openNode(url, new TestClock())).close();
});

test("a change of the source during a move is detected", async () => {
  for (const change of [
    "update stored_messages set detail = 'x' where rowid = 1",
    "delete from host_waitlists where due_at = 0",
  ]) {
    const path = newPath();
    const url = await freshDatabase();
    await fill(path, 5);
    const to = await target(url);
    const from = await source(path);
    let count = 0;
    const insert = async (table: TableLayout, rows: readonly Cell[][]): Promise<void> => {
      if (++count === 28) throw new Error("the power failed");
      await to.insert(table, rows);
    };
    await expect(move({ from, to: { ...to, insert }, report: silent, now })).rejects.toThrow(
      "the power failed",
    );
    const file = new DatabaseSync(path);
    file.exec(change);
    file.close();
    await expect(move({ from, to, report: silent, now })).rejects.toThrow(
      /the source has changed since the move began/,
    );
    await to.close();
    await expect(openNode(url, new TestClock())).rejects.toThrow(/only a part/);
  }
});

test("unknown tables and columns are moved, and tables missing on one side are named", async () => {
  const path = newPath();
  const url = await freshDatabase();
  await (await openSqliteForMove(path, { name: "made", isTarget: false })).close();
  const file = new DatabaseSync(path);
  file.exec(
    "create table news (part bigint not null, id text not null, share double precision, " +
      "primary key (id, part)) without rowid",
  );
  file.exec("alter table host_waitlists add column extra text");
  file.close();
  await fill(path, 0);
  const both = new DatabaseSync(path);
  both.exec("insert into news values (9007199254740993, 'a', 0.1), (-1, 'a', null), (0, 'b', 3)");
  both.exec("insert into host_waitlists values ('acc', 'host', 1, 'more')");
  both.close();
  await createPostgresTables({ url, clock });
  const from = await source(path);
  const early = await target(url);
  await expect(move({ from, to: early, report: silent, now })).rejects.toThrow(
    "the two stores do not have the same tables: host_waitlists (account, due_at, extra, host); " +
      "news (id, part, share); host_waitlists (account, due_at, host)",
  );
  await early.close();
  await ask(
    url,
    `create table news (id text collate "C", part bigint, share double precision, primary key (part, id))`,
  );
  await ask(url, "alter table host_waitlists add column extra text");
  const to = await target(url);
  await move({ from, to, report: silent, now });
  expect(await dump(to)).toEqual(await dump(from));
  expect(await ask(url, "select part::text, id, share from news order by id, part")).toEqual([
    { part: "-1", id: "a", share: null },
    { part: "9007199254740993", id: "a", share: 0.1 },
    { part: "0", id: "b", share: 3 },
  ]);
});

test("a database in use by a server or another move is neither a source nor a target", async () => {
  const url = await freshDatabase();
  const store = await openNode(url, new TestClock());
  for (const isTarget of [true, false]) {
    await expect(openPostgresForMove(url, { name: "db", isTarget, clock })).rejects.toThrow(
      "db: a waypost server is using it; stop all servers",
    );
  }
  await store.close();
  const first = await target(url);
  await expect(openPostgresForMove(url, { name: "db", isTarget: true, clock })).rejects.toThrow(
    'another "waypost migrate-store" is using it',
  );
  await first.close();
});

test("changes of a source wait until its move has ended", async () => {
  const url = await freshDatabase();
  const from = await opened(openPostgresForMove(url, { name: "db", isTarget: false, clock }));
  await expect(
    ask(url, "set lock_timeout = 100; insert into host_waitlists values ('acc', 'host', 1)"),
  ).rejects.toThrow(/lock timeout/);
  await from.close();
  await ask(url, "insert into host_waitlists values ('acc', 'host', 1)");
});

test.each([
  { version: "this version", before: [] },
  { version: "0.1.0", before: ["delete from server_settings where id = 'hold'"] },
])("a store that $version held is held after a move", async ({ before }) => {
  const path = newPath();
  const old = await sqliteStore(path, createSource(testClock, "nod_a"));
  await old.hold.set(true);
  await old.close();
  const file = new DatabaseSync(path);
  for (const sql of before) file.exec(sql);
  file.close();
  const url = await freshDatabase();
  const to = await target(url);
  await move({ from: await source(path), to, report: silent, now });
  await to.close();
  const { hold, close } = await openNode(url, testClock);
  onTestFinished(close);
  expect(await hold.isOnHold()).toBe(true);
  await hold.set(false);
  expect(await hold.isOnHold()).toBe(false);
});

/** Returns the path of a store whose newest message waits in a queue. */
async function createQueued(ahead: number): Promise<{ path: string; waiting: string; usedAt: number }> {
  const path = newPath();
  const usedAt = (testClock.now += ahead);
  const world = new StoreFixture(
    await sqliteStore(path, createSource(testClock, "nod_a")),
    testClock,
    "nod_a",
  );
  await world.account();
  await world.store.execute("upsertQueue", { account: "acc", name: "q", paused: true, maxQueues: 10 });
  const waiting = await world.send({ queue: "q" });
  await world.store.close();
  testClock.now -= ahead;
  return { path, waiting, usedAt };
}

test("ids continue above those of the source if the clock of the database is behind", async () => {
  const { path, waiting, usedAt } = await createQueued(50 * 60_000);
  const url = await freshDatabase();
  const to = await target(url);
  await move({ from: await source(path), to, report: silent, now });
  await to.close();
  const [one, other] = await Promise.all(
    ["nod_a", "nod_b"].map(
      async (node, seed) => new StoreFixture(await openNode(url, testClock, { node, seed }), testClock, node),
    ),
  );
  const next = (await one?.send({ queue: "q" })) ?? "";
  const delayed = (await other?.send({ delay: 5_000 })) ?? "";
  expect(waiting < next && next < delayed).toBe(true);
  expect((await one?.store.read.message("acc", delayed))?.state?.dueAt).toBeLessThan(usedAt + 5_100);
  expect((await one?.store.upkeep.nodes())?.map(({ id }) => id).toSorted()).toEqual(["nod_a", "nod_b"]);
  await Promise.all([one?.store.close(), other?.store.close()]);
});

test("a move to a database whose clock is far behind is refused, unless that is accepted", async () => {
  const { path, usedAt } = await createQueued(2 * 3_600_000);
  const url = await freshDatabase();
  const to = await target(url);
  const from = await source(path);
  await expect(move({ from, to, report: silent, now })).rejects.toThrow(
    `the old one has used ${new Date(usedAt).toISOString()}, ` +
      `but the clock of the new one shows ${new Date(testClock.now).toISOString()}; set the clocks right`,
  );
  expect(await ask(url, "select id from accounts")).toEqual([]);
  const accepted = JSON.stringify({ clock: testClock.now, usedAt });
  await from.query("insert into server_settings (id, detail) values ('clock', ?)", [accepted]);
  const lines: string[] = [];
  await move({ from, to, report: (line) => lines.push(line), now });
  expect(lines[0]).toContain("are sent after those that are published from now on");
  expect(await ask(url, "select id from nodes")).toEqual([]);
});

test("a hold that ended in the source after an interrupted move does not hold the target", async () => {
  const path = newPath();
  await (await sqliteStore(path, createSource(testClock, "nod_a"))).close();
  const url = await freshDatabase();
  const to = await target(url);
  await to.query(olderHold.add, []);
  await move({ from: await source(path), to, report: silent, now });
  await to.close();
  const { hold, close } = await openNode(url, testClock);
  onTestFinished(close);
  expect(await hold.isOnHold()).toBe(false);
});
