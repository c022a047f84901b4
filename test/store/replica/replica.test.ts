import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, onTestFinished, test } from "vitest";
import { readReplica } from "../../../src/store/replica/readReplica.ts";
import { formatRecord } from "../../../src/store/replica/record.ts";
import { ReplicaWriter, WriterRefused } from "../../../src/store/replica/replicaWriter.ts";
import { WalTail } from "../../../src/store/replica/walTail.ts";
import { WalIndex } from "../../../src/store/replica/walIndex.ts";
import { createRandom } from "../createRandom.ts";
import { elapsed } from "../../../src/clock/clock.ts";
import { createTestFolder, sleepReal } from "../storeFixture.ts";

const generation = "00112233aabbccdd";
const timing = { pause: sleepReal, elapsed };

/** A database whose changes go to a replica, as a server does it, without the process between them. */
class Source {
  readonly path: string;
  readonly folder: string;
  readonly db: DatabaseSync;
  readonly tail: WalTail;
  readonly writer: ReplicaWriter;
  readonly reports: Record<string, unknown>[] = [];
  readonly #index: WalIndex;
  readonly #checkpoints: DatabaseSync;
  taken = 0;
  frameBytes = 0;
  restarts = 0;
  #logStart = 0;

  constructor({ store = "store-1", sizes = { segment: 200_000, copy: 8192, base: 150_000 } } = {}) {
    const home = createTestFolder();
    this.path = join(home, "store.db");
    this.folder = join(home, "replica");
    this.db = new DatabaseSync(this.path);
    this.db.exec("pragma page_size = 8192; pragma auto_vacuum = incremental; pragma journal_mode = wal");
    this.db.exec("pragma wal_autocheckpoint = 0; pragma synchronous = normal");
    this.db.exec("create table things (id integer primary key, text)");
    const version = this.db.prepare("pragma data_version");
    this.#index = new WalIndex(this.path);
    const log = { index: this.#index, version: () => Number(version.get()?.data_version) };
    this.tail = new WalTail(this.path, log);
    this.#checkpoints = new DatabaseSync(this.path);
    this.writer = new ReplicaWriter({
      folder: this.folder,
      store,
      database: this.path,
      report: (line) => void this.reports.push(line as Record<string, unknown>),
      sizes,
      ...timing,
    });
    onTestFinished(() => {
      // The writer would sync later, when its folder is gone.
      this.writer.flush();
      this.tail.close();
      this.#checkpoints.close();
      this.db.close();
      this.#index.close();
    });
  }

  async #send(kind: "frames" | "base" | "mark", offset: number, payload: Uint8Array = Buffer.alloc(0)) {
    const record = formatRecord({
      kind,
      generation,
      offset,
      time: 1_800_000_000_000 + this.taken,
      pageBytes: 8192,
      payload: Buffer.from(payload),
    });
    if (kind === "frames") this.taken += record.length;
    await this.writer.receive(record);
  }

  async take(): Promise<void> {
    const records: { frames: Buffer; restarts: boolean }[] = [];
    this.tail.read((frames, { restarts }) => void records.push({ frames, restarts }));
    for (const { frames, restarts } of records) {
      if (restarts) this.restarts++;
      if (restarts) this.#logStart = this.taken;
      this.frameBytes += frames.length;
      await this.#send("frames", this.taken, frames);
    }
  }

  beginBase(): Promise<void> {
    return this.#send("base", this.#logStart);
  }

  /** Handles what the writer has asked for since the last call. */
  async answer(): Promise<void> {
    for (const report of this.reports.splice(0)) {
      if (report["problem"] !== undefined) throw new Error(JSON.stringify(report));
      if (report["wantsBase"]) await this.beginBase();
      if (report["copied"]) {
        await this.take();
        await this.#send("mark", this.taken);
      }
      if (report["complete"]) this.completed++;
    }
  }

  completed = 0;

  checkpoint(): void {
    this.#checkpoints.exec("pragma wal_checkpoint(passive)");
  }

  async complete(): Promise<void> {
    const before = this.completed;
    await this.beginBase();
    while (this.completed === before) {
      await new Promise((resolve) => setTimeout(resolve, 1));
      await this.answer();
    }
  }

  rows(): unknown[] {
    return this.db.prepare("select id, text from things order by id").all();
  }
}

/** Restores a replica and returns the rows of the table, after a check of all pages. */
function restore(folder: string): unknown[] {
  const target = join(createTestFolder(), "restored.db");
  writeFileSync(target, "");
  readReplica(folder, target);
  const db = new DatabaseSync(target);
  try {
    expect(db.prepare("pragma integrity_check").all()).toEqual([{ integrity_check: "ok" }]);
    return db.prepare("select id, text from things order by id").all();
  } finally {
    db.close();
  }
}

describe("a replica", () => {
  test.each([1, 2, 3])(
    "has each transaction as a whole, while the log restarts and the file is copied (seed %i)",
    async (seed) => {
      const source = new Source();
      const random = createRandom(seed);
      const pick = (below: number): number => Math.floor(random() * below);
      await source.complete();
      let checked = 0;
      for (let step = 0; step < 200; step++) {
        source.db.exec("begin");
        for (let n = pick(6); n >= 0; n--) {
          const id = pick(300);
          if (pick(3) === 0)
            source.db.prepare("delete from things where id < ? + 40 and id >= ?").run(id, id);
          else
            source.db
              .prepare("insert or replace into things values (?, ?)")
              .run(id, `${step} `.repeat(1 + pick(9_000)));
        }
        source.db.exec(pick(10) === 0 ? "rollback" : "commit");
        if (pick(15) === 0) source.db.exec("pragma incremental_vacuum(20)");
        await source.take();
        await source.answer();
        // The server checkpoints on another thread, at any time.
        if (pick(8) === 0) source.checkpoint();
        if (pick(4) === 0) await new Promise((resolve) => setTimeout(resolve, pick(3)));
        if (pick(30) !== 0) continue;
        source.writer.flush();
        expect(restore(source.folder)).toEqual(source.rows());
        checked++;
      }
      expect(checked).toBeGreaterThan(0);
      expect(source.restarts).toBeGreaterThan(3);
      await source.complete();
      expect(restore(source.folder)).toEqual(source.rows());
      source.writer.flush();
      expect(restore(source.folder)).toEqual(source.rows());
    },
  );

  test("writes at most 1.2 times the bytes of the log", async () => {
    const source = new Source({ sizes: { segment: 200_000, copy: 8192, base: 1 } });
    await source.complete();
    let copied = 0;
    const text = "x".repeat(6_000);
    for (let step = 0; step < 1_500; step++) {
      source.db.prepare("insert or replace into things values (?, ?)").run(step % 40, text);
      await source.take();
      for (const report of source.reports) if (report["complete"]) copied += Number(report["bytes"]);
      await source.answer();
      if (step % 50 === 0) source.checkpoint();
      if (step % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    expect(source.completed).toBeGreaterThan(3);
    expect((source.taken + copied) / source.frameBytes).toBeLessThan(1.2);
    // Files that are not needed any more are removed.
    const folder = readdirSync(source.folder).find((name) => name.endsWith(generation)) ?? "";
    const names = readdirSync(join(source.folder, folder));
    expect(names.filter((name) => name.endsWith(".json"))).toHaveLength(1);
    expect(names.filter((name) => name.startsWith("log-")).length).toBeLessThan(source.taken / 200_000 / 2);
  });

  test("ends at the last whole transaction, if its writer ended at any byte", async () => {
    const source = new Source({ sizes: { segment: 1e9, copy: 8192, base: 1e9 } });
    await source.complete();
    const states: { end: number; rows: unknown[] }[] = [{ end: source.taken, rows: source.rows() }];
    for (let step = 0; step < 12; step++) {
      source.db.prepare("insert into things values (?, ?)").run(step, "y".repeat(20_000));
      await source.take();
      states.push({ end: source.taken, rows: source.rows() });
    }
    source.writer.flush();
    const folder = readdirSync(source.folder).find((name) => name.endsWith(generation)) ?? "";
    const log = join(source.folder, folder, "log-0000000000000000");
    const all = readFileSync(log);
    const first = states[0]?.end ?? 0;
    for (let end = all.length; end >= first; end -= 7_001) {
      truncateSync(log, end);
      expect(restore(source.folder)).toEqual(states.findLast((state) => state.end <= end)?.rows);
    }
  });
});

describe("a damaged replica is refused", () => {
  const prepare = async () => {
    const source = new Source({ sizes: { segment: 60_000, copy: 8192, base: 1e9 } });
    await source.complete();
    for (let step = 0; step < 20; step++) {
      source.db.prepare("insert into things values (?, ?)").run(step, "z".repeat(20_000));
      await source.take();
    }
    source.writer.flush();
    const name = readdirSync(source.folder).find((one) => one.endsWith(generation)) ?? "";
    const folder = join(source.folder, name);
    const logs = readdirSync(folder)
      .filter((one) => one.startsWith("log-"))
      .toSorted();
    return { source, folder, logs };
  };

  const flip = (path: string, at: number): void => {
    const bytes = readFileSync(path);
    bytes[at] = (bytes[at] ?? 0) ^ 1;
    writeFileSync(path, bytes);
  };

  test.each([
    ["an altered page", (folder: string, logs: string[]) => flip(join(folder, logs[1] ?? ""), 5_000)],
    ["an altered record", (folder: string, logs: string[]) => flip(join(folder, logs[1] ?? ""), 20)],
    [
      "a part of the log that is missing",
      (folder: string, logs: string[]) => rmSync(join(folder, logs[1] ?? "")),
    ],
    [
      "a copy of the store that was altered",
      (folder: string) => flip(join(folder, "base-0000000000000000.db"), 100),
    ],
  ])("%s", async (_, damage) => {
    const { source, folder, logs } = await prepare();
    expect(restore(source.folder)).toEqual(source.rows());
    damage(folder, logs);
    expect(() => restore(source.folder)).toThrow(/the replica is damaged: .*; use a backup/);
  });

  test("a part of the log from another time", async () => {
    const { source, folder, logs } = await prepare();
    const older = await prepare();
    const path = join(folder, logs[1] ?? "");
    const bytes = readFileSync(join(older.folder, logs[1] ?? ""));
    // The same offset, and valid checksums, but of another stream.
    const record = formatRecord({
      kind: "frames",
      generation: "ffffffffffffffff",
      offset: Number((logs[1] ?? "").slice(4)),
      time: 1,
      pageBytes: 8192,
      payload: bytes.subarray(48, bytes.readUInt32BE(8) + 48),
    });
    writeFileSync(path, record);
    expect(() => restore(source.folder)).toThrow("belongs to another time or another replica");
  });

  test("a replica without a complete copy", () => {
    const source = new Source();
    expect(() => restore(source.folder)).toThrow("the first copy of the store has not ended; use a backup");
  });
});

describe("the folder of a replica", () => {
  const open = (folder: string, store: string) =>
    new ReplicaWriter({ folder, store, database: "none", report: () => undefined, ...timing });

  test("of another store is refused, and stays as it is", async () => {
    const source = new Source();
    await source.complete();
    const copy = join(createTestFolder(), "copy");
    cpSync(source.folder, copy, { recursive: true });
    expect(() => open(copy, "store-2")).toThrow(WriterRefused);
    expect(() => open(copy, "store-2")).toThrow("has the replica of another store; choose an empty folder");
    expect(restore(copy)).toEqual(source.rows());
  });

  test("with other files is refused", () => {
    const folder = createTestFolder();
    writeFileSync(join(folder, "mine.txt"), "mine");
    expect(() => open(folder, "store-1")).toThrow("has other files; choose an empty folder for --replicate");
    expect(readdirSync(folder)).toEqual(["mine.txt"]);
  });

  test("is not created on the disk below a mount that is missing", () => {
    const folder = join(createTestFolder(), "missing", "replica");
    expect(() => open(folder, "store-1")).toThrow("its parent folder does not exist");
  });

  test("keeps the last complete copy when its server starts again, until there is a new one", async () => {
    const source = new Source();
    await source.complete();
    const rows = source.rows();
    source.writer.flush();
    mkdirSync(join(source.folder, "001900000000000-0000000000000000"));
    open(source.folder, "store-1");
    expect(restore(source.folder)).toEqual(rows);
  });
});
