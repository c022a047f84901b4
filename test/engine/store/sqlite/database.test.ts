import { statSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { alarm, elapsed } from "../../../../src/engine/clock/clock.ts";
import { StorageRefused, Unavailable } from "../../../../src/engine/store/layout/storageErrors.ts";
import type { DatabaseConnection } from "../../../../src/engine/store/sql/database.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import { embeddedStore } from "../../../../src/engine/store/sqlite/embeddedStore.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import { NoRoom } from "../../../../src/engine/store/layout/storageErrors.ts";
import {
  bytes,
  closeAfterTest,
  createTestFolder,
  makeInput,
  sleepReal,
  createSource,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";

async function openWorld(path: string, node = "nod_a", seed = 1): Promise<StoreFixture> {
  const clock = new TestClock();
  return new StoreFixture(
    closeAfterTest(await sqliteStore(path, createSource(clock, node, seed))),
    clock,
    node,
  );
}

const createdByOthers = (path: string): StorageRefused =>
  new StorageRefused(
    `${path}: has tables of another version of Waypost, which this version cannot use: ` +
      "a newer one, or one before 0.1.0; start that version, restore the backup from before the upgrade, " +
      "or start with an empty data folder",
  );

test.each([
  ["another version", "update store_schema set hash = 'other'"],
  ["a version that did not record its schema", "drop table store_schema"],
])("tables of %s are refused and left unchanged", async (_name, change) => {
  const path = join(createTestFolder(), "store.db");
  await (await openWorld(path)).store.close();
  const database = new DatabaseSync(path);
  database.exec(change);
  const before = database.prepare("select sql from sqlite_schema order by name").all();
  await expect(sqliteStore(path, createSource(new TestClock(), "nod_a"))).rejects.toThrow(
    createdByOthers(path),
  );
  const embedded = embeddedStore({
    path,
    momentSource: createSource(new TestClock(), "nod_a"),
    pause: sleepReal,
    alarm,
    elapsed,
  });
  await expect(embedded).rejects.toThrow(createdByOthers(path));
  await expect(embedded).rejects.toBeInstanceOf(StorageRefused);
  expect(database.prepare("select sql from sqlite_schema order by name").all()).toEqual(before);
  database.close();
});

test("a store with a compatible later schema is opened", async () => {
  const path = join(createTestFolder(), "store.db");
  await (await openWorld(path)).store.close();
  const database = new DatabaseSync(path);
  database.exec("insert into store_schema (hash) values ('of a later version')");
  database.close();
  expect(await (await openWorld(path)).store.read.accounts()).toEqual([]);
});

test("acknowledged changes are in the file for any other process that opens it", async () => {
  const path = join(createTestFolder(), "store.db");
  const world = await openWorld(path);
  await world.account();
  const id = await world.send({ delay: 1_000, body: bytes("kept") });
  // Opens the file a second time, while the first store is still open.
  const other = await openWorld(path, "nod_b", 2);
  expect((await other.store.read.message("acc", id))?.message.body).toEqual(bytes("kept"));
  await world.store.close();
  expect(await other.store.execute("cancel", { account: "acc", messageIds: [id] })).toEqual({ cancelled: 1 });
});

test("a new file has pages of 4 KiB, and an existing file keeps its page size", async () => {
  const fresh = join(createTestFolder(), "store.db");
  const older = join(createTestFolder(), "store.db");
  const made = new DatabaseSync(older);
  made.exec("pragma page_size = 8192; pragma journal_mode = wal; create table other (a)");
  made.close();
  for (const [path, size] of [
    [fresh, 4_096],
    [older, 8_192],
  ] as const) {
    await (await openWorld(path)).account();
    const database = openSqlite(path);
    expect(await database.connection.query("pragma page_size", [])).toEqual([{ page_size: size }]);
    expect(await database.connection.query("pragma wal_autocheckpoint", [])).toEqual([
      { wal_autocheckpoint: (32 * 1024 * 1024) / size },
    ]);
    await database.probe(0);
    const { written, checkpointed } = database.walLength();
    expect([written % size, written > checkpointed]).toEqual([0, true]);
    database.close();
  }
});

test("cached rows are dropped when another connection has changed them", async () => {
  const path = join(createTestFolder(), "store.db");
  const world = await openWorld(path);
  await world.account();
  const failed = (id: string) => [{ id, reason: "the message has finished or was already cancelled" }];
  const cancel = async (id: string): Promise<unknown> =>
    world.store.execute("cancel", { account: "acc", messageIds: [id] });
  const removed = await world.send({ delay: 1_000 });
  const kept = await world.send({ delay: 1_000 });
  const spoiled = await world.send({ delay: 1_000 });
  const rival = new DatabaseSync(path);
  rival.prepare("delete from messages where id = ?").run(removed);
  expect(await cancel(removed)).toEqual({ cancelled: 0, failed: failed(removed) });
  // A failed batch has changed nothing, so the cached rows remain valid.
  rival.exec("create trigger odd before delete on messages begin select raise(abort, 'odd'); end");
  await expect(cancel(spoiled)).rejects.toThrow("odd");
  rival.exec("drop trigger odd");
  rival.close();
  expect(await cancel(spoiled)).toEqual({ cancelled: 1 });
  expect(await cancel(kept)).toEqual({ cancelled: 1 });
  expect(await cancel(kept)).toEqual({ cancelled: 0, failed: failed(kept) });
});

test("a batch that cannot be stored leaves nothing, and fails only the command at fault", async () => {
  const path = join(createTestFolder(), "store.db");
  const world = await openWorld(path);
  await world.account();
  const rival = new DatabaseSync(path);
  rival.exec(
    `create trigger odd before insert on stored_messages
      when instr(cast(new.detail as text), 'poison') begin select raise(abort, 'odd'); end`,
  );
  const all = await Promise.allSettled([
    world.send({ delay: 1 }),
    world.send({ labels: ["poison"], delay: 1 }),
    world.send({ delay: 1 }),
  ]);
  expect(all.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
  expect(rival.prepare("select count(*) as count from messages").get()).toEqual({ count: 2 });
  rival.close();
});

test("a full disk is unavailable, stores nothing half, and works again when there is space", async () => {
  const database = openSqlite(join(createTestFolder(), "store.db"));
  await database.createTables();
  const fill = (connection: DatabaseConnection) =>
    connection.query(
      `insert into log (account, id, message_id, time, states, body) values ('a', '1', 'm', 1, 'ERROR', ?)`,
      [bytes("x".repeat(500_000))],
    );
  await database.connection.query(`pragma max_page_count = 50`, []);
  await expect(database.transaction(fill)).rejects.toBeInstanceOf(Unavailable);
  expect(await database.connection.query(`select id from log`, [])).toEqual([]);
  await database.connection.query(`pragma max_page_count = 100000`, []);
  await database.transaction(fill);
  expect(await database.connection.query(`select id from log`, [])).toHaveLength(1);
  database.close();
});

test("opening and checkpointing a file that exists changes nothing", async () => {
  const path = join(createTestFolder(), "store.db");
  const database = openSqlite(path);
  await database.createTables();
  const [before] = await database.connection.query("pragma data_version", []);
  const second = openSqlite(path);
  await second.connection.query("pragma wal_checkpoint(passive)", []);
  expect(await database.connection.query("pragma data_version", [])).toEqual([before]);
  second.close();
  database.close();
});

test("every probe writes to the file, although it changes nothing", async () => {
  const path = join(createTestFolder(), "store.db");
  const database = openSqlite(path);
  await database.createTables();
  const other = new DatabaseSync(path);
  const version = () => other.prepare("pragma data_version").get()?.data_version;
  for (let round = 0; round < 3; round++) {
    const before = version();
    await database.probe(0);
    expect(version()).not.toBe(before);
  }
  other.close();
  database.close();
});

test("a probe needs room for its bytes, and leaves the room free", async () => {
  const database = openSqlite(join(createTestFolder(), "store.db"));
  await database.createTables();
  const readPages = async () => (await database.connection.query("pragma page_count", []))[0]?.page_count;
  const pages = Number(await readPages());
  await database.connection.query(`pragma max_page_count = ${pages + 10}`, []);
  await database.probe(0);
  await expect(database.probe(100_000)).rejects.toBeInstanceOf(NoRoom);
  expect(await readPages()).toBe(pages);
  await database.connection.query("pragma max_page_count = 100000", []);
  await database.probe(100_000);
  const { reusable } = database.readFile();
  expect(reusable).toBeGreaterThanOrEqual(98_304);
  expect(await database.connection.query("select probed_at from storage_probe", [])).toEqual([
    { probed_at: 0 },
  ]);
  database.close();
});

test("two stores on one file do not lose each other's updates", async () => {
  const path = join(createTestFolder(), "store.db");
  const clock = new TestClock();
  const worlds = [];
  for (const node of ["nod_a", "nod_b"]) {
    const store = closeAfterTest(
      await embeddedStore({
        path,
        momentSource: createSource(clock, node),
        pause: sleepReal,
        alarm,
        elapsed,
      }),
    );
    worlds.push(new StoreFixture(store, clock, node));
  }
  await worlds[0]?.account();
  const pairs = [];
  for (let round = 0; round < 5; round++) {
    pairs.push(
      ...(await Promise.all(
        worlds.map(({ store }) => store.execute("rotateKeys", { account: "acc", force: true })),
      )),
    );
  }
  const links = new Map(pairs.map(({ current, next }) => [current, next]));
  let last = "sig_acc_2";
  for (let length = 0; length < 10; length++) last = links.get(last) ?? "broken";
  expect((await worlds[0]?.store.read.account("acc"))?.signingKeys.next).toBe(last);
});

test("the write-ahead log stays bounded, and the file stays whole", async () => {
  const path = join(createTestFolder(), "store.db");
  const world = await openWorld(path);
  await world.account();
  const body = new Uint8Array(500_000).fill(1);
  for (let round = 0; round < 30; round++)
    await world.publish(Array.from({ length: 10 }, () => makeInput({ body, delay: 1 })));
  expect(statSync(path).size).toBeGreaterThan(100_000_000);
  expect(statSync(`${path}-wal`).size).toBeLessThan(80_000_000);
  const database = openSqlite(path, { readOnly: true });
  expect(await database.connection.query("pragma integrity_check", [])).toEqual([{ integrity_check: "ok" }]);
  database.close();
});

test("a file that another process keeps locked is unavailable", { tags: "long" }, async () => {
  const path = join(createTestFolder(), "store.db");
  const world = await openWorld(path);
  await world.account();
  const rival = new DatabaseSync(path);
  rival.exec("begin immediate");
  // The calls are made together. They are not tried one after another, each for the whole busy timeout.
  const all = await Promise.allSettled([world.send(), world.send(), world.send()]);
  for (const one of all)
    expect(one).toMatchObject({ status: "rejected", reason: { code: "outcome-unknown" } });
  rival.exec("rollback");
  rival.close();
  expect(await world.send()).toMatch(/^msg_/);
});
