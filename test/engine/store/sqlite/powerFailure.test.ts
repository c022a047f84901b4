import type fs from "node:fs";
import { fstatSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test, vi } from "vitest";
import { alarm } from "../../../../src/engine/clock/clock.ts";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { EmbeddedStoreOptions } from "../../../../src/engine/store/sqlite/embeddedStore.ts";
import { embeddedStore } from "../../../../src/engine/store/sqlite/embeddedStore.ts";
import type { SqliteDatabase } from "../../../../src/engine/store/sqlite/database.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { StorageRefused } from "../../../../src/engine/store/layout/storageErrors.ts";
import { chooseSeed } from "../../../seeds.ts";
import { createRandom } from "../createRandom.ts";
import {
  bytes,
  closeAfterTest,
  createTestFolder,
  sleepReal,
  createSource,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";

// After a power failure, a disk has everything that was synced, and any part of the later writes. The store
// syncs with functions of Node, which this test replaces. SQLite also syncs by itself: the log before a
// complete checkpoint and the database after it, and a new header of the log. `ShadowDisk` keeps the files at
// these moments, and the last test checks that SQLite is set to sync at them.

const system = vi.hoisted(() => {
  // Other files of this worker may have loaded the store with the functions of Node.
  vi.resetModules();
  return { sync: (_file: number): void => undefined };
});

vi.mock("node:fs", async (original) => ({
  ...(await original<typeof fs>()),
  fdatasyncSync: (file: number) => system.sync(file),
  fdatasync: (file: number, done: (error: null) => void) =>
    setImmediate(() => done((system.sync(file), null))),
  // A nearly full disk, so that a log of 64 KiB is checkpointed.
  statfsSync: () => ({ bavail: 256, bsize: 1024 }),
}));

afterAll(() => {
  vi.doUnmock("node:fs");
  vi.resetModules();
});

/** The syncs that the disk obeys. It acknowledges the others at once and does nothing. */
type Obeys = { store: boolean; sqlite: boolean };
type Files = { database: Buffer; log: Buffer };

const sector = 512;
const bytesOfHeader = 32;
/** SQLite's result code for a damaged file. */
const malformed = 11;

/** Keeps what was synced of a database and its log, and fails at one of the syncs. */
class ShadowDisk {
  readonly path = join(createTestFolder(), "store.db");
  readonly #obeys: Obeys;
  readonly #random: () => number;
  readonly #synced: Files;
  /** The number of syncs until the power fails. */
  left = Infinity;
  checkpoints = 0;
  /** The files after the power failure, or null before it. */
  failed: Files | null = null;

  constructor(files: Files, { obeys, random }: { obeys: Obeys; random: () => number }) {
    this.#obeys = obeys;
    this.#random = random;
    this.#synced = files;
    writeFileSync(this.path, this.#synced.database);
    writeFileSync(`${this.path}-wal`, this.#synced.log);
    system.sync = (file) => this.#sync(file);
  }

  #nameOf(file: keyof Files): string {
    return file === "log" ? `${this.path}-wal` : this.path;
  }

  #written(file: keyof Files): Buffer {
    return readFileSync(this.#nameOf(file));
  }

  #keep(file: keyof Files): void {
    this.#synced[file] = this.#written(file);
  }

  #sync(file: number): void {
    this.#mayFail();
    if (!this.#obeys.store) return;
    const { ino } = fstatSync(file);
    for (const file of ["database", "log"] as const)
      if (statSync(this.#nameOf(file)).ino === ino) this.#keep(file);
  }

  /** Replaces the checkpoint thread, so that only the seed decides when a checkpoint runs. */
  readonly openCheckpointing = () => {
    let tool: SqliteDatabase | undefined;
    const checkpoint = async () => {
      tool ??= openSqlite(this.path);
      const isWhole = await runCheckpoint(tool);
      if (this.#obeys.sqlite) this.#keep("log");
      this.#mayFail();
      if (isWhole && this.#obeys.sqlite) this.#keep("database");
      if (isWhole) this.checkpoints++;
      return { isWhole };
    };
    return { checkpoint: checkpoint, close: async () => tool?.close() };
  };

  #mayFail(): void {
    if (--this.left === 0) this.failed = this.#leftovers();
  }

  #leftovers(): Files {
    const log = this.#mixed("log");
    if (this.#obeys.sqlite) this.#written("log").copy(log, 0, 0, Math.min(bytesOfHeader, log.length));
    return { database: this.#mixed("database"), log };
  }

  /** Returns a file in which all, half or none of the sectors have what was written since the last sync. */
  #mixed(file: keyof Files): Buffer {
    const synced = this.#synced[file];
    const written = this.#written(file);
    const share = [0, 0.5, 1][Math.floor(this.#random() * 3)] ?? 0;
    const result = Buffer.alloc(this.#random() < share ? written.length : synced.length);
    synced.copy(result);
    for (let at = 0; at < result.length; at += sector)
      if (this.#random() < share) written.copy(result, at, at, at + sector);
    return result;
  }
}

async function runCheckpoint({ connection, walLength }: SqliteDatabase): Promise<boolean> {
  await connection.query("pragma wal_checkpoint(passive)", []);
  const { written, checkpointed } = walLength();
  return written === checkpointed;
}

/** Publishes and settles messages, and remembers what was acknowledged before the power failed. */
class Client {
  /** The bodies of messages that must arrive. */
  readonly #owed = new Map<string, string>();
  /** The messages that must not arrive again. */
  readonly #done = new Set<string>();
  readonly #random: () => number;
  acknowledged = 0;

  constructor(random: () => number) {
    this.#random = random;
  }

  upTo(most: number): number {
    return 1 + Math.floor(this.#random() * most);
  }

  async publish(world: StoreFixture, disk: ShadowDisk): Promise<void> {
    const body = `${this.#random()} `.repeat(this.upTo(200));
    const id = await world.send({ delay: this.upTo(1e6), body: bytes(body) });
    if (disk.failed === null) this.#owed.set(id, body);
    if (disk.failed === null) this.acknowledged++;
  }

  async settle(world: StoreFixture, disk: ShadowDisk, delivery: Delivery): Promise<void> {
    // Until the outcome is acknowledged, the message may or may not arrive again.
    this.#owed.delete(delivery.message.id);
    await world.settle(delivery);
    if (disk.failed === null) this.#done.add(delivery.message.id);
    if (disk.failed === null) this.acknowledged++;
  }

  /**
   * Returns all deliveries that are due after a restart, and the number of acknowledged changes that they
   * contradict.
   */
  async arrivals(world: StoreFixture): Promise<{ arrived: Delivery[]; lost: number }> {
    // Later than all delays, and all leases of the earlier process.
    world.clock.now += 1e8;
    const arrived = new Map<string, Delivery>();
    for (let found = await world.claim(); found.length > 0; found = await world.claim())
      for (const delivery of found) arrived.set(delivery.message.id, delivery);
    const bodyOf = (id: string): string => Buffer.from(arrived.get(id)?.message.body ?? []).toString();
    const missing = [...this.#owed].filter(([id, body]) => bodyOf(id) !== body);
    const again = [...this.#done].filter((id) => arrived.has(id));
    return { arrived: [...arrived.values()], lost: missing.length + again.length };
  }

  /** Publishes and settles until the power fails. */
  async load(world: StoreFixture, disk: ShadowDisk, arrived: Delivery[]): Promise<void> {
    while (disk.failed === null) {
      const settled = arrived
        .splice(0, this.upTo(4) - 1)
        .map((delivery) => this.settle(world, disk, delivery));
      const published = Array.from({ length: this.upTo(4) }, () => this.publish(world, disk));
      await Promise.all([...settled, ...published]);
    }
  }
}

/**
 * Fails the power under load several times, each time on the files that the previous failure has left. Ends
 * early if anything acknowledged is lost.
 */
async function afterFailures(failures: number, { seed, obeys }: { seed: number; obeys: Obeys }) {
  const random = createRandom(seed);
  const clock = new TestClock();
  const client = new Client(random);
  const result = { failures: 0, lost: 0, isDamaged: false, checkpoints: 0, acknowledged: 0 };
  let files = await filesOfNewStore(clock, seed);
  for (;;) {
    const disk: ShadowDisk = new ShadowDisk(files, { obeys, random });
    const momentSource = createSource(clock, `nod_${result.failures}`, seed + result.failures);
    // In half of the runs each sync is slow by this clock, so that the store waits for it elsewhere.
    const timer = { now: 0 };
    const takes = Math.floor(random() * 2);
    const elapsed = (): number => (timer.now += takes);
    const store = await openWhole(disk.path, {
      momentSource,
      pause: sleepReal,
      alarm,
      elapsed,
      openCheckpointing: disk.openCheckpointing,
    });
    if (store === null) return { ...result, isDamaged: true };
    const world = new StoreFixture(store, clock, momentSource.node);
    world.capacity = { total: 10_000, perHost: 10_000 };
    const { arrived, lost } = await client.arrivals(world);
    result.lost = lost;
    if (lost > 0 || result.failures === failures) return result;
    // A message fails for good if the process ends several times during its attempts. So each message is left
    // unsettled at most once.
    const isFirst = ({ attempt }: Delivery): boolean => attempt === 0;
    for (const delivery of arrived) if (!isFirst(delivery)) await client.settle(world, disk, delivery);
    disk.left = 4 + client.upTo(60);
    await client.load(world, disk, arrived.filter(isFirst));
    await store.close();
    files = disk.failed ?? files;
    result.failures++;
    result.checkpoints += disk.checkpoints;
    result.acknowledged = client.acknowledged;
  }
}

/** Returns the files of a store with an account, all of it synced. */
async function filesOfNewStore(clock: TestClock, seed: number): Promise<Files> {
  const path = join(createTestFolder(), "store.db");
  const store = await sqliteStore(path, createSource(clock, "nod_new", seed));
  await new StoreFixture(store, clock, "nod_new").account();
  await store.close();
  return { database: readFileSync(path), log: Buffer.alloc(0) };
}

/** Returns null if the database is damaged. */
async function openWhole(path: string, how: Omit<EmbeddedStoreOptions, "path">): Promise<Store | null> {
  try {
    const store = closeAfterTest(await embeddedStore({ path, ...how }));
    const database = openSqlite(path, { readOnly: true });
    const [row] = await database.connection
      .query("pragma integrity_check", [])
      .finally(() => database.close());
    return row?.integrity_check === "ok" ? store : null;
  } catch (error) {
    const isDamage = error instanceof StorageRefused || Reflect.get(Object(error), "errcode") === malformed;
    if (isDamage) return null;
    throw error;
  }
}

describe("every acknowledged change survives each of 30 power failures under load, and arrives", () => {
  const expectNoLoss = async (seed: number): Promise<void> => {
    const outcome = await afterFailures(30, { seed, obeys: { store: true, sqlite: true } });
    expect({ seed, ...outcome }).toMatchObject({ seed, failures: 30, lost: 0, isDamaged: false });
    // The log was checkpointed at least twice per failure on average.
    expect([outcome.acknowledged > 1_000, outcome.checkpoints > 60]).toEqual([true, true]);
  };

  test("from a fixed seed", () => expectNoLoss(1));
  test("from a fresh seed", { tags: "long" }, () => expectNoLoss(chooseSeed()));
});

const lies: [string, Obeys][] = [
  ["a disk that obeys no sync", { store: false, sqlite: false }],
  ["a disk that obeys SQLite but not the store", { store: false, sqlite: true }],
  ["a disk that obeys the store but not SQLite", { store: true, sqlite: false }],
];

test.each(lies)("%s loses acknowledged changes, from each of three seeds", async (_, obeys) => {
  for (const seed of [1, 2, 3]) {
    const { lost, isDamaged } = await afterFailures(30, { seed, obeys });
    expect(lost > 0 || isDamaged).toBe(true);
  }
});

test("SQLite syncs by itself at a checkpoint and when it writes a new header of the log", () => {
  const path = join(createTestFolder(), "store.db");
  const pause = async (): Promise<void> => undefined;
  const levels = [openSqlite(path, { deferredSync: { pause, maxTries: 1 } }), openSqlite(path)].map(
    async ({ connection, close }) => {
      const [row] = await connection.query("pragma synchronous", []);
      close();
      return Number(row?.synchronous);
    },
  );
  // 0 means never; 1 and 2 mean at both moments.
  return expect(Promise.all(levels)).resolves.toEqual([1, 2]);
});
