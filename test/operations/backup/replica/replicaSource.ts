import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, onTestFinished } from "vitest";
import { elapsed } from "../../../../src/engine/clock/clock.ts";
import { readReplica } from "../../../../src/operations/backup/replica/readReplica.ts";
import { formatRecord, frameHeaderBytes } from "../../../../src/operations/backup/replica/record.ts";
import { ReplicaWriter } from "../../../../src/operations/backup/replica/writer.ts";
import type { LogPart } from "../../../../src/operations/backup/replica/walTail.ts";
import { WalTail } from "../../../../src/operations/backup/replica/walTail.ts";
import { WalIndex } from "../../../../src/engine/store/sqlite/walIndex.ts";
import { createTestFolder, sleepReal } from "../../../engine/store/storeFixture.ts";

/** The generation of the records of a source. */
export const generation = "00112233aabbccdd";
const pageBytes = 8192;

/** A database whose changes go to a replica, as a server does it, without the process between them. */
export class Source {
  readonly path: string;
  readonly folder: string;
  readonly db: DatabaseSync;
  readonly tail: WalTail;
  readonly writer: ReplicaWriter;
  readonly reports: Record<string, unknown>[] = [];
  readonly #index: WalIndex;
  readonly #checkpoints: DatabaseSync;
  readonly #parts: LogPart[] = [];
  /** The bytes of all records. */
  taken = 0;
  /** The bytes of all frames of the log. */
  frameBytes = 0;
  restarts = 0;
  #logStart = 0;
  #counted = { salts: "", frames: 0 };

  constructor({ store = "store-1", sizes = { segment: 200_000, copy: 8192, base: 150_000 } } = {}) {
    const home = createTestFolder();
    this.path = join(home, "store.db");
    this.folder = join(home, "replica");
    this.db = new DatabaseSync(this.path);
    this.db.exec(
      `pragma page_size = ${pageBytes}; pragma auto_vacuum = incremental; pragma journal_mode = wal`,
    );
    this.db.exec("pragma wal_autocheckpoint = 0; pragma synchronous = normal");
    this.db.exec("create table things (id integer primary key, text)");
    this.#index = new WalIndex(this.path);
    this.tail = new WalTail(this.path, this.#index);
    this.#checkpoints = new DatabaseSync(this.path);
    this.writer = new ReplicaWriter({
      folder: this.folder,
      store,
      database: this.path,
      report: (line) => void this.reports.push(line as Record<string, unknown>),
      sizes,
      pause: sleepReal,
      elapsed,
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
      pageBytes,
      payload: Buffer.from(payload),
    });
    if (kind === "frames") this.taken += record.length;
    await this.writer.receive(record);
  }

  /** Runs a transaction, and `meanwhile` after it has begun and before it writes. */
  change(run: () => unknown, meanwhile: () => void = () => undefined): void {
    this.db.exec("begin immediate");
    this.#countFrames();
    this.tail.readBeforeWrite((part) => this.#parts.push(part));
    meanwhile();
    run();
    if (this.db.isTransaction) this.db.exec("commit");
    this.tail.afterWrite();
  }

  /** Adds or replaces a row. */
  put(id: number, text: string): void {
    this.change(() => this.db.prepare("insert or replace into things values (?, ?)").run(id, text));
  }

  async take(): Promise<void> {
    this.#countFrames();
    this.tail.read((part) => this.#parts.push(part));
    for (const { frames, restarts } of this.#parts.splice(0)) {
      if (restarts) this.restarts++;
      if (restarts) this.#logStart = this.taken;
      await this.#send("frames", this.taken, frames);
    }
  }

  #countFrames(): void {
    const { salts, frames } = this.#index.read();
    const before = salts === this.#counted.salts ? this.#counted.frames : 0;
    this.frameBytes += (frames - before) * (frameHeaderBytes + pageBytes);
    this.#counted = { salts, frames };
  }

  #isCopying = false;

  async beginBase(): Promise<void> {
    if (this.#isCopying) return;
    this.#isCopying = true;
    await this.#send("base", this.#logStart);
  }

  /** Handles what the writer has asked for since the last call. */
  async answer(): Promise<void> {
    for (const report of this.reports.splice(0)) {
      if (report["problem"] !== undefined) throw new Error(JSON.stringify(report));
      if (report["wantsBase"] || report["copied"]) await this.take();
      if (report["wantsBase"]) await this.beginBase();
      if (report["copied"]) await this.#send("mark", this.taken);
      if (!report["complete"]) continue;
      this.completed++;
      this.#isCopying = false;
    }
  }

  completed = 0;

  /** As the server does it, on another connection. */
  checkpoint(): void {
    this.#checkpoints.exec("pragma wal_checkpoint(passive)");
  }

  async complete(): Promise<void> {
    const before = this.completed;
    await this.take();
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
export function restore(folder: string): unknown[] {
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
