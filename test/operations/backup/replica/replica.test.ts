import {
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { elapsed } from "../../../../src/engine/clock/clock.ts";
import { formatRecord } from "../../../../src/operations/backup/replica/record.ts";
import { ReplicaWriter, WriterRefused } from "../../../../src/operations/backup/replica/writer.ts";
import { createRandom } from "../../../engine/store/createRandom.ts";
import { createTestFolder, sleepReal } from "../../../engine/store/storeFixture.ts";
import { generation, restore, Source } from "./replicaSource.ts";

describe("a replica", () => {
  test.each([
    { seed: 1, pause: 1 },
    { seed: 2, pause: 1 },
    { seed: 3, pause: 1 },
    { seed: 4, pause: 4 },
    { seed: 5, pause: 16 },
  ])(
    "has each transaction as a whole, while the log restarts and the file is copied " +
      "(seed $seed, one of $pause is read)",
    async ({ seed, pause }) => {
      const source = new Source();
      const random = createRandom(seed);
      const pick = (below: number): number => Math.floor(random() * below);
      await source.complete();
      let checked = 0;
      for (let step = 0; step < 200; step++) {
        const write = (): void => {
          for (let n = pick(6); n >= 0; n--) {
            const id = pick(300);
            if (pick(3) === 0)
              source.db.prepare("delete from things where id < ? + 40 and id >= ?").run(id, id);
            else
              source.db
                .prepare("insert or replace into things values (?, ?)")
                .run(id, `${step} `.repeat(1 + pick(9_000)));
          }
          if (pick(10) === 0) source.db.exec("rollback");
        };
        source.change(write, () => pick(8) === 0 && source.checkpoint());
        if (pick(15) === 0) source.change(() => source.db.exec("pragma incremental_vacuum(20)"));
        if (pick(pause) === 0) await source.take();
        await source.answer();
        // The server checkpoints on another thread, at any time.
        if (pick(8) === 0) source.checkpoint();
        if (pick(4) === 0) await new Promise((resolve) => setTimeout(resolve, pick(3)));
        if (pick(30) !== 0) continue;
        await source.take();
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
      source.put(step % 40, text);
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

  test.each([1, 3])(
    "ends at the last whole transaction, if its writer ended at any byte (%i are read at once)",
    async (atOnce) => {
      const source = new Source({ sizes: { segment: 1e9, copy: 8192, base: 1e9 } });
      await source.complete();
      const states: { end: number; rows: unknown[] }[] = [{ end: source.taken, rows: source.rows() }];
      for (let step = 0; step < 12; step++) {
        source.put(step, "y".repeat(20_000));
        if (step % atOnce !== atOnce - 1) continue;
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
    },
  );
});

describe("a damaged replica is refused", () => {
  const prepare = async () => {
    const source = new Source({ sizes: { segment: 60_000, copy: 8192, base: 1e9 } });
    await source.complete();
    for (let step = 0; step < 20; step++) {
      source.put(step, "z".repeat(20_000));
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
  const timing = { pause: sleepReal, elapsed };
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

test("a replica whose writer ends between a new base and its description can be restored", async () => {
  const source = new Source({ sizes: { segment: 50_000, copy: 8192, base: 1 } });
  await source.complete();
  const states: string[] = [];
  const keep = (): string => {
    const copy = join(createTestFolder(), "kept");
    cpSync(source.folder, copy, { recursive: true });
    states.push(copy);
    return copy;
  };
  for (let step = 0; step < 400 && states.length === 0; step++) {
    source.put(step % 40, "x".repeat(6_000));
    await source.take();
    await source.answer();
    await new Promise((resolve) => setTimeout(resolve, 1));
    const name = readdirSync(source.folder).find((one) => one.includes("-")) ?? "";
    const inside = join(source.folder, name);
    const part = readdirSync(inside).find((one) => one.endsWith(".part"));
    if (part === undefined) continue;
    source.writer.flush();
    keep();
    const base = part.replace(".part", "");
    const named = join(keep(), name);
    renameSync(join(named, part), join(named, base));
    const described = join(keep(), name);
    renameSync(join(described, part), join(described, base));
    writeFileSync(join(described, `${base}.json.new`), "{");
  }
  expect(states).toHaveLength(3);
  for (const state of states) expect(restore(state)).toEqual(source.rows());
});
