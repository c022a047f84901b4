import { statSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { alarm, elapsed } from "../../../src/engine/clock/clock.ts";
import { createEarlyRemovalTask } from "../../../src/operations/earlyRemoval/task.ts";
import type { DiskReport } from "../../../src/engine/store/sqlite/diskGuard.ts";
import { embeddedStore } from "../../../src/engine/store/sqlite/embeddedStore.ts";
import { openDisk } from "../../../src/engine/store/sqlite/sync.ts";
import {
  closeAfterTest,
  createSource,
  createTestFolder,
  sleepReal,
  StoreFixture,
  TestClock,
} from "../../engine/store/storeFixture.ts";

const mebi = 1024 * 1024;
const minute = 60_000;
const body = new Uint8Array(500_000);

/** A store in a file on a disk of 64 MiB, of which the file, its log and other programs use some. */
async function openOnSmallDisk() {
  const path = join(createTestFolder(), "store.db");
  const others = { bytes: 0 };
  const size = 64 * mebi;
  const clock = new TestClock();
  const reports: DiskReport[] = [];
  const store = await embeddedStore({
    path,
    momentSource: createSource(clock, "nod_a"),
    pause: sleepReal,
    alarm,
    elapsed,
    onDisk: (report) => void reports.push(report),
    openDisk: (file) => ({
      ...openDisk(file, elapsed),
      readSpace: () => ({ size, free: size - statSync(path).size - others.bytes }),
    }),
  });
  const server = new StoreFixture(closeAfterTest(store), clock, "nod_a");
  await server.account();
  const removed = { rows: 0 };
  const task = createEarlyRemovalTask({
    store,
    clock: { now: () => clock.now, sleep: async (until) => void (clock.now = until) },
    retention: { log: 3 * 24 * 60 * minute, deadLetters: 7 * 24 * 60 * minute },
    onRemoved: (rows) => void (removed.rows += rows),
  });
  /** Runs the task as the scheduler does, until nothing is removed any more. */
  const runUntilQuiet = async () => {
    for (let before = -1; before !== removed.rows;) {
      before = removed.rows;
      for (let run = 0; run < 5; run++) {
        await task.run();
        clock.now += minute;
      }
    }
  };
  return { server, others, reports, removed, task, runUntilQuiet, path };
}

/** Delivers messages, one a minute, and returns their ids. */
async function deliverMany(server: StoreFixture, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let at = 0; at < count; at++) {
    const delivery = await server.sent({ body });
    await server.settle(delivery, { status: 200, body });
    ids.push(delivery.message.id);
    server.clock.now += minute;
  }
  return ids;
}

const countKept = async (server: StoreFixture, ids: readonly string[]): Promise<number> => {
  const states = await Promise.all(ids.map((id) => server.states(id)));
  return states.filter(({ length }) => length > 0).length;
};

test("history is kept while the disk has room", async () => {
  const { server, removed, reports, task } = await openOnSmallDisk();
  const ids = await deliverMany(server, 5);
  await task.run();
  expect(server.store.upkeep.disk?.isShort()).toBe(false);
  expect(await countKept(server, ids)).toBe(5);
  expect(removed.rows).toBe(0);
  expect(reports).toEqual([]);
});

/** Lets other programs leave this many bytes free. */
function leaveFree({ others, path }: Awaited<ReturnType<typeof openOnSmallDisk>>, free: number): void {
  others.bytes = 64 * mebi - statSync(path).size - free;
}

test("on a disk with little room, the oldest history goes, and what is needed stays", async () => {
  const disk = await openOnSmallDisk();
  const { server, removed, reports, runUntilQuiet } = disk;
  const failed = await server.publishFailing({ body });
  const waiting = await server.send({ body, delay: 30 * 24 * 60 * minute });
  const ids = await deliverMany(server, 20);
  leaveFree(disk, 17 * mebi);
  await runUntilQuiet();
  const kept = await countKept(server, ids);
  expect(kept).toBeGreaterThan(5);
  expect(kept).toBeLessThan(20);
  expect(await countKept(server, ids.slice(0, -kept))).toBe(0);
  expect(await server.store.read.message("acc", ids[0] ?? "")).toBeNull();
  expect(await server.store.read.message("acc", ids.at(-1) ?? "")).toMatchObject({ message: { body } });
  expect(await server.states(waiting)).toEqual(["CREATED"]);
  expect(await server.states(failed.messageId)).toContain("FAILED");
  expect(await server.store.read.message("acc", failed.messageId)).toMatchObject({ message: { body } });
  expect(removed.rows).toBeGreaterThanOrEqual(20 - kept);
  // It has ended by itself, although nothing else has become free.
  expect(server.store.upkeep.disk?.isShort()).toBe(false);
  expect(reports.map(({ what, is }) => [what, is])).toEqual([
    ["short", true],
    ["short", false],
  ]);
});

test("canceled messages make room within seconds, although nothing else is written", async () => {
  const disk = await openOnSmallDisk();
  const { server, others, reports, task } = disk;
  others.bytes = 30 * mebi;
  /** Looks at the disk, and returns what was reported last. */
  const isLow = (): boolean => {
    server.store.upkeep.disk?.isShort();
    return reports.findLast(({ what }) => what === "low")?.is === true;
  };
  const waiting: string[] = [];
  while (!isLow() && waiting.length < 100) {
    waiting.push(await server.send({ body, delay: 60 * minute }));
    await sleepReal(20);
  }
  expect(isLow()).toBe(true);
  await server.store.execute("cancel", { account: "acc", messageIds: waiting });
  const canceledAt = server.clock.now;
  while (isLow() && server.clock.now - canceledAt < minute) {
    server.clock.now += 1_000;
    await task.run();
    await sleepReal(20);
  }
  expect(isLow()).toBe(false);
  const sent = await server.send({ body, delay: minute });
  expect(await server.states(sent)).toEqual(["CREATED"]);
});

test("if other programs fill the disk, dead letters stay", async () => {
  const disk = await openOnSmallDisk();
  const { server, others, removed, reports, task, runUntilQuiet } = disk;
  const failed = await server.publishFailing({ body });
  const ids = await deliverMany(server, 5);
  leaveFree(disk, 2 * mebi);
  await runUntilQuiet();
  expect(await countKept(server, ids)).toBe(0);
  expect(await server.states(failed.messageId)).toContain("FAILED");
  const rows = removed.rows;
  const delivery = await server.sent({ body: new Uint8Array(1_000), retries: 0 }).catch(() => null);
  expect(delivery).toBeNull();
  others.bytes = 0;
  await task.run();
  expect(server.store.upkeep.disk?.isShort()).toBe(false);
  const after = await deliverMany(server, 1);
  await task.run();
  expect(await countKept(server, after)).toBe(1);
  expect(removed.rows).toBe(rows);
  expect(reports.map(({ what, is }) => `${what} ${is}`)).toEqual([
    "short true",
    "low true",
    "short false",
    "low false",
  ]);
});
