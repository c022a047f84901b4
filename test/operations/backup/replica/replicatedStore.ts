import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect } from "vitest";
import { alarm, elapsed, systemClock } from "../../../../src/engine/clock/clock.ts";
import { readReplica } from "../../../../src/operations/backup/replica/readReplica.ts";
import type { ReplicaEvent } from "../../../../src/operations/backup/replica/replica.ts";
import { Replica } from "../../../../src/operations/backup/replica/replica.ts";
import type { EmbeddedStoreOptions } from "../../../../src/engine/store/sqlite/embeddedStore.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import { embeddedStore } from "../../../../src/engine/store/sqlite/embeddedStore.ts";
import {
  createSource,
  createTestFolder,
  sleepReal,
  StoreFixture,
  TestClock,
} from "../../../engine/store/storeFixture.ts";

/** Opens a store and its replica with the process that writes it. The replica is complete. */
export async function openReplicated({
  pause = sleepReal,
  now = () => systemClock.now(),
  ...options
}: Partial<Pick<EmbeddedStoreOptions, "openDisk" | "pause">> & { now?(): number } = {}) {
  const home = createTestFolder();
  const path = join(home, "store.db");
  const folder = join(home, "replica");
  const events: ReplicaEvent[] = [];
  const replica = new Replica({
    path,
    folder,
    writerCode: new URL("../../../../src/operations/backup/replica/writerMain.ts", import.meta.url),
    identity: "store-1",
    now,
    pause,
    onEvent: (event) => void events.push(event),
  });
  const clock = new TestClock();
  const momentSource = createSource(clock, "nod_a");
  const store = await embeddedStore({
    path,
    momentSource,
    pause: sleepReal,
    alarm,
    elapsed,
    replica,
    ...options,
  });
  const world = new StoreFixture(store, clock, "nod_a");
  await world.account();
  await expect.poll(() => replica.report().isComplete).toBe(true);
  return { path, folder, events, replica, store, world };
}

/** Returns the ids of the messages in a replica, after a check of all pages. */
export function readIds(folder: string): string[] {
  const target = join(createTestFolder(), "restored.db");
  writeFileSync(target, "");
  readReplica(folder, target);
  const restored = new DatabaseSync(target);
  try {
    expect(restored.prepare("pragma integrity_check").all()).toEqual([{ integrity_check: "ok" }]);
    return restored
      .prepare("select id from messages order by id")
      .all()
      .map(({ id }) => String(id));
  } finally {
    restored.close();
  }
}

/**
 * Brings the whole log to the file, on a connection like that of the checkpoint thread, which also writes
 * when it opens the file. The next change begins the log again.
 */
export async function checkpoint(path: string): Promise<void> {
  const other = openSqlite(path);
  await other.connection.query("pragma wal_checkpoint(passive)", []);
  expect(other.walLength().checkpointed).toBe(other.walLength().written);
  other.close();
}
