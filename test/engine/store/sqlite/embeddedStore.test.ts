import { copyFileSync, renameSync, rmSync, statSync, truncateSync } from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import type { Disk } from "../../../../src/engine/store/sqlite/sync.ts";
import { openDisk, createAdaptiveSync } from "../../../../src/engine/store/sqlite/sync.ts";
import { alarm, elapsed } from "../../../../src/engine/clock/clock.ts";
import type { EmbeddedStoreOptions } from "../../../../src/engine/store/sqlite/embeddedStore.ts";
import { embeddedStore } from "../../../../src/engine/store/sqlite/embeddedStore.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import {
  closeAfterTest,
  createTestFolder,
  makeInput,
  sleepReal,
  createSource,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";

/** Opens a store in a file like a server, with the test's replacements. */
async function openWorld(path: string, over: Partial<EmbeddedStoreOptions> = {}): Promise<StoreFixture> {
  const clock = new TestClock();
  const store = await embeddedStore({
    path,
    momentSource: createSource(clock, "nod_a"),
    pause: sleepReal,
    alarm,
    elapsed,
    ...over,
  });
  return new StoreFixture(closeAfterTest(store), clock, "nod_a");
}

const freshPath = (): string => join(createTestFolder(), "store.db");

/** The real disk, whose syncs wait until the test ends them, or fail. */
function slowDisk() {
  const waiting: { end(): void; fail(error: Error): void }[] = [];
  let isSlow = false;
  const openTestDisk = (path: string): Disk => {
    const disk = openDisk(path, elapsed);
    const held = (): Promise<void> =>
      new Promise((resolve, reject) => waiting.push({ end: resolve, fail: reject }));
    return { ...disk, sync: async () => (isSlow ? held() : disk.sync()) };
  };
  return { openDisk: openTestDisk, waiting, slow: (now: boolean) => (isSlow = now) };
}

/** Lets everything continue that does not wait for the disk. */
const settleDown = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
};

test("nothing is acknowledged or sent before it is on the disk, and later calls share a commit", async () => {
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

test("after a disk failure nothing is stored until the file is opened again", async () => {
  const { openDisk, waiting, slow } = slowDisk();
  const path = freshPath();
  const told: string[] = [];
  const world = await openWorld(path, { openDisk, onBroken: (error) => told.push(error.message) });
  await world.account();
  const kept = await world.send({ delay: 1_000 });
  slow(true);
  const doubtful = world.send({ delay: 1_000 });
  const ending = Promise.allSettled([doubtful]);
  await settleDown();
  waiting[0]?.fail(new Error("EIO: i/o error, fdatasync"));
  expect(await ending).toMatchObject([
    {
      reason: {
        code: "outcome-unknown",
        message: expect.stringContaining("may or may not have been stored"),
      },
    },
  ]);
  slow(false);
  await expect(world.send()).rejects.toMatchObject({ code: "outcome-unknown" });
  await expect(world.store.execute("claim", { limit: 1 })).rejects.toMatchObject({ code: "outcome-unknown" });
  expect([told, world.delivered().length]).toEqual([["EIO: i/o error, fdatasync"], 0]);
  await world.store.close();
  const next = await openWorld(path);
  expect((await next.store.read.message("acc", kept))?.state).toMatchObject({ state: "pending" });
  expect(await next.send()).toMatch(/^msg_/);
});

test.each(["here", "elsewhere"])(
  "nothing is acknowledged after a sync has failed %s, whether the disk is quick or slow",
  async (way) => {
    // Only the duration of a sync by this clock decides where the next sync waits.
    const disk = { fails: false, now: 0 };
    const wait = (place: string): void => {
      if (disk.fails && place === way) throw new Error(`EIO: i/o error, fdatasync, ${place}`);
      disk.now += way === "here" ? 0 : 5;
    };
    const waits = createAdaptiveSync({
      here: () => wait("here"),
      elsewhere: async () => wait("elsewhere"),
      elapsed: () => disk.now,
    });
    const told: string[] = [];
    const path = freshPath();
    const openTestDisk = (file: string): Disk => ({ ...openDisk(file, elapsed), sync: waits });
    const world = await openWorld(path, {
      openDisk: openTestDisk,
      onBroken: (error) => told.push(error.message),
    });
    await world.account();
    const kept = await world.send({ delay: 1_000 });
    disk.fails = true;
    await expect(world.send()).rejects.toMatchObject({ code: "outcome-unknown" });
    disk.fails = false;
    await expect(world.send()).rejects.toMatchObject({ code: "outcome-unknown" });
    expect(await world.store.takesChanges()).toBe(false);
    expect([told, world.delivered().length]).toEqual([[`EIO: i/o error, fdatasync, ${way}`], 0]);
    await world.store.close();
    const next = await openWorld(path);
    expect((await next.store.read.message("acc", kept))?.state).toMatchObject({ state: "pending" });
  },
);

test("a power failure loses an unsynced commit as a whole, and no acknowledged one", async () => {
  const path = freshPath();
  const world = await openWorld(path);
  await world.account();
  const kept = await world.send({ delay: 1_000 });
  const onDisk = statSync(`${path}-wal`).size;
  await world.send({ delay: 1_000 });
  // Copies the file as it is, and the log as the disk had it in the middle of the second commit.
  const copy = freshPath();
  copyFileSync(path, copy);
  copyFileSync(`${path}-wal`, `${copy}-wal`);
  truncateSync(`${copy}-wal`, onDisk + 1_000);
  const after = openSqlite(copy);
  const rows = await after.connection.query("select id from messages order by id", []);
  expect(rows.map(({ id }) => id)).toEqual([kept]);
  after.close();
});

test("the write-ahead log is checkpointed during batches, and the file stays whole", async () => {
  const path = freshPath();
  const world = await openWorld(path);
  await world.account();
  const body = new Uint8Array(500_000).fill(1);
  for (let round = 0; round < 40; round++)
    await world.publish(Array.from({ length: 10 }, () => makeInput({ body, delay: 1 })));
  expect(statSync(path).size).toBeGreaterThan(120_000_000);
  // Without these checkpoints the log would be as long as all that was written.
  expect(statSync(`${path}-wal`).size).toBeLessThan(80_000_000);
  const database = openSqlite(path, { readOnly: true });
  expect(await database.connection.query("pragma integrity_check", [])).toEqual([{ integrity_check: "ok" }]);
  expect(await database.connection.query("select count(*) as count from messages", [])).toEqual([
    { count: 400 },
  ]);
  database.close();
});

test("a locked file delays nothing else, and is unavailable after 100 tries", async () => {
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
  // The calls are made together. They are not tried one after another, each with all its tries.
  for (const one of await Promise.allSettled(all))
    expect(one).toMatchObject({ status: "rejected", reason: { code: "outcome-unknown" } });
  clearInterval(turning);
  expect(pauses).toBe(99);
  rival.exec("rollback");
  rival.close();
  expect(await world.send()).toMatch(/^msg_/);
});

test("after a failed change, a nearly full disk takes no change, even the smallest one", async () => {
  const path = freshPath();
  const disk = { room: 20 * 1024 * 1024 - 1 };
  const openTestDisk = (file: string): Disk => ({
    ...openDisk(file, elapsed),
    readFreeBytes: () => disk.room,
  });
  const pause = async (): Promise<void> => undefined;
  const time = { now: 0 };
  const { store } = await openWorld(path, { openDisk: openTestDisk, pause, elapsed: () => time.now });
  expect(await store.takesChanges()).toBe(true);
  const rival = new DatabaseSync(path);
  rival.exec("begin immediate");
  await expect(store.execute("claim", { limit: 1 })).rejects.toMatchObject({ code: "outcome-unknown" });
  rival.exec("rollback");
  rival.close();
  expect(await store.takesChanges()).toBe(false);
  disk.room++;
  time.now += 9_999;
  expect(await store.takesChanges()).toBe(false);
  time.now++;
  expect(await store.takesChanges()).toBe(true);
});

test("the free space is that of the disk with the file", async () => {
  const path = freshPath();
  await openWorld(path);
  const disk = openDisk(path, elapsed);
  expect(disk.readFreeBytes()).toBeGreaterThan(0);
  disk.close();
});

test("nothing is acknowledged after the files were removed under a server", async () => {
  const path = freshPath();
  const told: string[] = [];
  const world = await openWorld(path, { onBroken: (error) => told.push(error.message) });
  await world.account();
  expect(await world.send()).toMatch(/^msg_/);
  rmSync(dirname(path), { recursive: true });
  await expect(world.send()).rejects.toMatchObject({ code: "outcome-unknown" });
  await expect(world.send()).rejects.toMatchObject({ code: "outcome-unknown" });
  expect([told, world.delivered().length]).toEqual([
    [`${path}-wal was removed, renamed or replaced while the server used it`],
    1,
  ]);
});

test.each([
  ["removing the database", "", (file: string) => rmSync(file)],
  ["removing the log", "-wal", (file: string) => rmSync(file)],
  ["renaming the database", "", (file: string) => renameSync(file, `${file}.old`)],
  [
    "replacing the database by a copy",
    "",
    (file: string) => (copyFileSync(file, `${file}.new`), renameSync(`${file}.new`, file)),
  ],
])("nothing is acknowledged after %s under the server", async (_, end, act) => {
  const path = freshPath();
  const told: string[] = [];
  const world = await openWorld(path, { onBroken: (error) => told.push(error.message) });
  await world.account();
  await world.send();
  act(`${path}${end}`);
  await expect(world.send()).rejects.toMatchObject({ code: "outcome-unknown" });
  expect(await world.store.takesChanges()).toBe(false);
  expect([told, world.delivered().length]).toEqual([
    [`${path}${end} was removed, renamed or replaced while the server used it`],
    1,
  ]);
});

test("a call that waits for a locked file continues when the file is unlocked", async () => {
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

test("nothing is stored after a failed sync of a checkpoint, because the log must not restart", async () => {
  const told: string[] = [];
  const failing = {
    checkpoint: async () => ({ isWhole: false, failed: "disk I/O error" }),
    close: async () => undefined,
  };
  const world = await openWorld(freshPath(), {
    openCheckpointing: () => failing,
    onBroken: (error) => told.push(error.message),
  });
  await world.account();
  const body = new Uint8Array(500_000).fill(1);
  for (let round = 0; round < 4; round++)
    await world.publish(Array.from({ length: 10 }, () => makeInput({ body, delay: 1 })));
  await settleDown();
  await expect(world.send()).rejects.toMatchObject({ code: "outcome-unknown" });
  expect(told).toEqual(["disk I/O error"]);
});

test("free space of the file is given back in small steps, except for an eighth", async () => {
  const path = freshPath();
  const world = await openWorld(path);
  await world.account();
  const id = await world.send();
  const other = new DatabaseSync(path);
  const count = (name: string) => Number(other.prepare(`pragma ${name}`).get()?.[name]);
  other.exec("create table scratch (content blob)");
  for (let row = 0; row < 20; row++) other.exec("insert into scratch values (zeroblob(1000000))");
  other.exec("drop table scratch");
  const pages = count("page_count");
  expect(count("freelist_count")).toBeGreaterThan(2_000);
  let steps = 0;
  while (await world.store.upkeep.disk?.giveBackSpace()) {
    steps++;
    expect(pages - count("page_count")).toBeLessThanOrEqual(steps * 65);
  }
  expect(steps).toBeGreaterThan(10);
  expect(count("freelist_count")).toBe(1_024);
  expect(other.prepare("pragma integrity_check").get()).toEqual({ integrity_check: "ok" });
  other.close();
  await world.store.close();
  expect(statSync(path).size).toBeLessThan(10_000_000);
  const again = await openWorld(path);
  expect(await again.store.read.waitState("acc", id)).toMatchObject({ state: { id } });
});
