import { copyFileSync, renameSync, rmSync, statSync, truncateSync } from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import type { Disk } from "../../../src/store/sqlite/sync.ts";
import { openDisk, createAdaptiveSync } from "../../../src/store/sqlite/sync.ts";
import { elapsed } from "../../../src/clock/clock.ts";
import type { EmbeddedStoreOptions } from "../../../src/store/sqlite/embeddedStore.ts";
import { embeddedStore } from "../../../src/store/sqlite/embeddedStore.ts";
import { openSqlite } from "../../../src/store/sqlite/database.ts";
import { closeAfterTest, createTestFolder, makeInput, sleepReal, createSource, TestClock, StoreFixture } from "../storeFixture.ts";

/** A store in a file, as a server has it, with whatever the test puts in its place. */
async function openWorld(path: string, over: Partial<EmbeddedStoreOptions> = {}): Promise<StoreFixture> {
  const clock = new TestClock();
  const store = await embeddedStore({ path, momentSource: createSource(clock, "nod_a"), pause: sleepReal, elapsed, ...over });
  return new StoreFixture(closeAfterTest(store), clock, "nod_a");
}

const freshPath = (): string => join(createTestFolder(), "store.db");

/** The real disk, which takes its time until the test says so, or fails. */
function slowDisk() {
  const waiting: { end(): void; fail(error: Error): void }[] = [];
  let isSlow = false;
  const openTestDisk = (path: string): Disk => {
    const disk = openDisk(path, elapsed);
    const held = (): Promise<void> => new Promise((resolve, reject) => waiting.push({ end: resolve, fail: reject }));
    return { ...disk, sync: async () => (isSlow ? held() : disk.sync()) };
  };
  return { openDisk: openTestDisk, waiting, slow: (now: boolean) => (isSlow = now) };
}

/** Lets everything go on that does not wait for the disk. */
const settleDown = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
};

test("nobody is answered, and nothing is sent, before it is on the disk; what comes meanwhile shares the next commit", async () => {
  const { openDisk, waiting, slow } = slowDisk();
  const world = await openWorld(freshPath(), { openDisk });
  await world.account();
  slow(true);
  const answered: string[] = [];
  const first = world.send().then((id) => answered.push(id));
  await settleDown();
  expect([answered.length, world.delivered().length, waiting.length]).toEqual([0, 0, 1]);
  const others = [world.send(), world.send()].map((one) => one.then((id) => answered.push(id)));
  await settleDown();
  expect([answered.length, world.delivered().length, waiting.length]).toEqual([0, 0, 1]);
  waiting[0]?.end();
  await first;
  await settleDown();
  expect([answered.length, world.delivered().length, waiting.length]).toEqual([1, 1, 2]);
  waiting[1]?.end();
  await Promise.all(others);
  expect([answered.length, world.delivered().length]).toEqual([3, 2]);
  slow(false);
});

test("a batch that changes nothing does not wait for the disk", async () => {
  const { openDisk, waiting, slow } = slowDisk();
  const world = await openWorld(freshPath(), { openDisk });
  await world.account();
  slow(true);
  expect(await world.store.execute("claim", { limit: 10 })).toMatchObject({ more: false });
  expect(await world.store.nextDueAt()).toBe(null);
  expect(waiting).toEqual([]);
  slow(false);
});

test("when the disk has failed nothing is stored any more, not even when it takes the next write, and who opens the file goes on with it", async () => {
  const { openDisk, waiting, slow } = slowDisk();
  const path = freshPath();
  const told: string[] = [];
  const world = await openWorld(path, { openDisk, onBroken: (error) => told.push(error.message) });
  await world.account();
  const kept = await world.send({ delay: 1_000 });
  slow(true);
  const doubtful = world.send({ delay: 1_000 });
  const [end] = [Promise.allSettled([doubtful]), await settleDown()];
  waiting[0]?.fail(new Error("EIO: i/o error, fdatasync"));
  expect(await end).toMatchObject([
    { reason: { code: "unavailable", message: expect.stringContaining("may or may not have been stored") } },
  ]);
  slow(false);
  await expect(world.send()).rejects.toMatchObject({ code: "unavailable" });
  await expect(world.store.execute("claim", { limit: 1 })).rejects.toMatchObject({ code: "unavailable" });
  expect([told, world.delivered().length]).toEqual([["EIO: i/o error, fdatasync"], 0]);
  await world.store.close();
  const next = await openWorld(path);
  expect((await next.store.read.message("acc", kept))?.state).toMatchObject({ state: "pending" });
  expect(await next.send()).toMatch(/^msg_/);
});

test.each(["here", "elsewhere"])("nothing is acknowledged after a sync has failed %s, whether the disk is quick or slow", async (way) => {
  // What a sync takes by this clock is all that decides where the next one is waited for.
  const disk = { fails: false, now: 0 };
  const wait = (place: string): void => {
    if (disk.fails && place === way) throw new Error(`EIO: i/o error, fdatasync, ${place}`);
    disk.now += way === "here" ? 0 : 5;
  };
  const waits = createAdaptiveSync({ here: () => wait("here"), elsewhere: async () => wait("elsewhere"), elapsed: () => disk.now });
  const told: string[] = [];
  const path = freshPath();
  const openTestDisk = (file: string): Disk => ({ ...openDisk(file, elapsed), sync: waits });
  const world = await openWorld(path, { openDisk: openTestDisk, onBroken: (error) => told.push(error.message) });
  await world.account();
  const kept = await world.send({ delay: 1_000 });
  disk.fails = true;
  await expect(world.send()).rejects.toMatchObject({ code: "unavailable" });
  disk.fails = false;
  await expect(world.send()).rejects.toMatchObject({ code: "unavailable" });
  expect(await world.store.takesChanges()).toBe(false);
  expect([told, world.delivered().length]).toEqual([[`EIO: i/o error, fdatasync, ${way}`], 0]);
  await world.store.close();
  const next = await openWorld(path);
  expect((await next.store.read.message("acc", kept))?.state).toMatchObject({ state: "pending" });
});

test("what was not on the disk when the power went is gone as a whole, and what was answered is there", async () => {
  const path = freshPath();
  const world = await openWorld(path);
  await world.account();
  const kept = await world.send({ delay: 1_000 });
  const onDisk = statSync(`${path}-wal`).size;
  await world.send({ delay: 1_000 });
  // The file as it is, and the log as the disk had it in the middle of the second commit.
  const copy = freshPath();
  copyFileSync(path, copy);
  copyFileSync(`${path}-wal`, `${copy}-wal`);
  truncateSync(`${copy}-wal`, onDisk + 1_000);
  const after = openSqlite(copy);
  const rows = await after.connection.query("select id from messages order by id", []);
  expect(rows.map(({ id }) => id)).toEqual([kept]);
  after.close();
});

test("the write-ahead log is folded back while batches go on, stays bounded, and the file is whole", async () => {
  const path = freshPath();
  const world = await openWorld(path);
  await world.account();
  const body = new Uint8Array(500_000).fill(1);
  for (let round = 0; round < 40; round++) await world.publish(Array.from({ length: 10 }, () => makeInput({ body, delay: 1 })));
  expect(statSync(path).size).toBeGreaterThan(120_000_000);
  // Nothing else folds it, so it would be as long as all that was written.
  expect(statSync(`${path}-wal`).size).toBeLessThan(80_000_000);
  const database = openSqlite(path, { readOnly: true });
  expect(await database.connection.query("pragma integrity_check", [])).toEqual([{ integrity_check: "ok" }]);
  expect(await database.connection.query("select count(*) as count from messages", [])).toEqual([{ count: 400 }]);
  database.close();
});

test("a file that another process keeps locked holds up nothing else, and is unavailable when the patience ends", async () => {
  const path = freshPath();
  let pauses = 0;
  const pause = async (): Promise<void> => {
    pauses++;
    return new Promise((resolve) => void setImmediate(resolve));
  };
  const world = await openWorld(path, { pause });
  await world.account();
  const rival = new DatabaseSync(path);
  rival.exec("begin immediate");
  const all = [world.send(), world.send(), world.send()];
  let turns = 0;
  const turning = setInterval(() => turns++, 1);
  // Together: they are not tried one after another, each for as long as the patience lasts.
  for (const one of await Promise.allSettled(all)) expect(one).toMatchObject({ status: "rejected", reason: { code: "unavailable" } });
  clearInterval(turning);
  expect(pauses).toBe(99);
  rival.exec("rollback");
  rival.close();
  expect(await world.send()).toMatch(/^msg_/);
});

test("after a change that could not be stored, a disk that is nearly full takes none, though the smallest one would fit", async () => {
  const path = freshPath();
  const disk = { room: 16 * 1024 * 1024 - 1 };
  const openTestDisk = (file: string): Disk => ({ ...openDisk(file, elapsed), readFreeBytes: () => disk.room });
  const pause = async (): Promise<void> => undefined;
  const { store } = await openWorld(path, { openDisk: openTestDisk, pause });
  expect(await store.takesChanges()).toBe(true);
  const rival = new DatabaseSync(path);
  rival.exec("begin immediate");
  await expect(store.execute("claim", { limit: 1 })).rejects.toMatchObject({ code: "unavailable" });
  rival.exec("rollback");
  rival.close();
  expect(await store.takesChanges()).toBe(false);
  disk.room++;
  expect(await store.takesChanges()).toBe(true);
});

test("the room of a disk is that of where the file is", async () => {
  const path = freshPath();
  await openWorld(path);
  const disk = openDisk(path, elapsed);
  expect(disk.readFreeBytes()).toBeGreaterThan(0);
  disk.close();
});

test("files that were removed under a server keep nothing: nobody is told that something was stored", async () => {
  const path = freshPath();
  const told: string[] = [];
  const world = await openWorld(path, { onBroken: (error) => told.push(error.message) });
  await world.account();
  expect(await world.send()).toMatch(/^msg_/);
  rmSync(dirname(path), { recursive: true });
  await expect(world.send()).rejects.toMatchObject({ code: "unavailable" });
  await expect(world.send()).rejects.toMatchObject({ code: "unavailable" });
  expect([told, world.delivered().length]).toEqual([[`${path}-wal was removed, renamed or replaced while the server used it`], 1]);
});

test.each([
  ["the database is removed", "", (file: string) => rmSync(file)],
  ["the log is removed", "-wal", (file: string) => rmSync(file)],
  ["the database is renamed", "", (file: string) => renameSync(file, `${file}.old`)],
  ["the database is replaced by a copy", "", (file: string) => (copyFileSync(file, `${file}.new`), renameSync(`${file}.new`, file))],
])("nothing is acknowledged after %s under the server", async (_, end, act) => {
  const path = freshPath();
  const told: string[] = [];
  const world = await openWorld(path, { onBroken: (error) => told.push(error.message) });
  await world.account();
  await world.send();
  act(`${path}${end}`);
  await expect(world.send()).rejects.toMatchObject({ code: "unavailable" });
  expect(await world.store.takesChanges()).toBe(false);
  expect([told, world.delivered().length]).toEqual([[`${path}${end} was removed, renamed or replaced while the server used it`], 1]);
});

test("whoever waits while the file is locked goes on when it is free", async () => {
  const path = freshPath();
  const world = await openWorld(path);
  await world.account();
  const rival = new DatabaseSync(path);
  rival.exec("begin immediate");
  const sent = world.send();
  await sleepReal(120);
  rival.exec("rollback");
  rival.close();
  expect(await sent).toMatch(/^msg_/);
});

test("when the disk fails to keep what was folded into the file, nothing is stored any more: the log that still has it must not begin anew", async () => {
  const told: string[] = [];
  const folding = { checkpoint: async () => ({ isWhole: false, failed: "disk I/O error" }), close: async () => undefined };
  const world = await openWorld(freshPath(), { openCheckpointing: () => folding, onBroken: (error) => told.push(error.message) });
  await world.account();
  const body = new Uint8Array(500_000).fill(1);
  for (let round = 0; round < 4; round++) await world.publish(Array.from({ length: 10 }, () => makeInput({ body, delay: 1 })));
  await settleDown();
  await expect(world.send()).rejects.toMatchObject({ code: "unavailable" });
  expect(told).toEqual(["disk I/O error"]);
});
