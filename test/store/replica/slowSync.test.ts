import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { elapsed, systemClock } from "../../../src/clock/clock.ts";
import { readReplica } from "../../../src/store/replica/readReplica.ts";
import type { ReplicaEvent } from "../../../src/store/replica/replica.ts";
import { Replica } from "../../../src/store/replica/replica.ts";
import { embeddedStore } from "../../../src/store/sqlite/embeddedStore.ts";
import { openDisk } from "../../../src/store/sqlite/sync.ts";
import { createSource, createTestFolder, sleepReal, StoreFixture, TestClock } from "../storeFixture.ts";

test("a replica has a change whose sync is slow, while the log restarts before the sync ends", async () => {
  const home = createTestFolder();
  const path = join(home, "store.db");
  const folder = join(home, "replica");
  const events: ReplicaEvent[] = [];
  let isSlow = false;
  const held: (() => void)[] = [];
  const replica = new Replica({
    path,
    folder,
    writerCode: new URL("../../../src/server/replicaWriterMain.ts", import.meta.url),
    identity: "store-1",
    now: () => systemClock.now(),
    pause: sleepReal,
    onEvent: (event) => void events.push(event),
  });
  const clock = new TestClock();
  const store = await embeddedStore({
    path,
    momentSource: createSource(clock, "nod_a"),
    pause: sleepReal,
    elapsed,
    replica,
    openDisk: (file) => {
      const disk = openDisk(file, elapsed);
      const wait = (): Promise<void> => new Promise((resolve) => held.push(resolve));
      return { ...disk, sync: () => (isSlow ? wait() : disk.sync()) };
    },
  });
  const world = new StoreFixture(store, clock, "nod_a");
  await world.account();
  await expect.poll(() => replica.report().isComplete, { timeout: 20_000 }).toBe(true);
  isSlow = true;
  const sending = world.send({ delay: 1_000 });
  await expect.poll(() => held.length).toBe(1);
  // As the checkpoint thread does: the whole log is in the file, so the next change begins the log again.
  const other = new DatabaseSync(path);
  expect(other.prepare("pragma wal_checkpoint(passive)").get()).toMatchObject({ busy: 0 });
  other.close();
  const holding = store.hold.set(true);
  await expect.poll(() => held.length).toBe(2);
  isSlow = false;
  for (const end of held) end();
  const id = await sending;
  await holding;
  await store.close();
  const target = join(home, "restored.db");
  writeFileSync(target, "");
  readReplica(folder, target);
  const restored = new DatabaseSync(target);
  expect(restored.prepare("pragma integrity_check").all()).toEqual([{ integrity_check: "ok" }]);
  expect(restored.prepare("select id from messages").all()).toEqual([{ id }]);
  expect(events).toEqual([{ what: "complete" }]);
  restored.close();
});
