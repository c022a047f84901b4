import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { elapsed } from "../../../../src/engine/clock/clock.ts";
import { formatRecord, recordHeaderBytes } from "../../../../src/operations/backup/replica/record.ts";
import { ReplicaWriter } from "../../../../src/operations/backup/replica/writer.ts";
import { createTestFolder } from "../../../engine/store/storeFixture.ts";
import { Source } from "./replicaSource.ts";

const pageBytes = 4096;
const payload = Buffer.alloc(24 + pageBytes);
const recordBytes = recordHeaderBytes + payload.length;

function openWriter(folder: string): ReplicaWriter {
  return new ReplicaWriter({
    folder,
    store: "store-1",
    database: "none",
    report: () => undefined,
    // The test syncs.
    pause: () => new Promise(() => undefined),
    elapsed,
  });
}

/** Passes the record of this number to a writer. */
const send = (writer: ReplicaWriter, number: number): Promise<void> =>
  writer.receive(
    formatRecord({
      kind: "frames",
      generation: "00112233aabbccdd",
      offset: number * recordBytes,
      time: 1_800_000_000_000,
      pageBytes,
      payload,
    }),
  );

test("a folder whose first file could not be written, because the disk was full, is used later", () => {
  const folder = join(createTestFolder(), "replica");
  mkdirSync(folder);
  // A full disk leaves this file behind, and so does a process that ends before the file has its name.
  writeFileSync(join(folder, "replica.json.new"), "");
  openWriter(folder);
  expect(readdirSync(folder)).toEqual(["replica.json"]);
});

test.each([
  ["removed", (folder: string) => rmSync(folder, { recursive: true })],
  ["renamed", (folder: string) => renameSync(folder, `${folder}-old`)],
])("a folder that was %s is a problem, and nothing counts as written", async (_, change) => {
  const folder = join(createTestFolder(), "replica");
  const writer = openWriter(folder);
  await send(writer, 0);
  writer.flush();
  await send(writer, 1);
  change(folder);
  expect(() => writer.flush()).toThrow(/log-0000000000000000 was removed or renamed/);
});

test.each([
  ["the description of the replica", (path: string) => path === "replica.json"],
  ["the copy of the store", (path: string) => path.endsWith(".db")],
  ["the description of that copy", (path: string) => path.endsWith("0.json")],
  ["an older part of the log", (path: string) => path.endsWith("log-0000000000000000")],
  ["the newest part of the log", (path: string) => path.includes("log-")],
])("%s that was removed is a problem, although nothing is written", async (_, isIt) => {
  const source = new Source({ sizes: { segment: 1, copy: 8192, base: 1e9 } });
  await source.complete();
  source.put(1, "one");
  await source.take();
  source.writer.flush();
  source.writer.check();
  const files = readdirSync(source.folder, { recursive: true, encoding: "utf8" });
  const path = files.toSorted().findLast(isIt) ?? "";
  rmSync(join(source.folder, path));
  expect(() => source.writer.check()).toThrow(`${path} was removed or renamed`);
});

test("files are only for this user", async () => {
  const folder = join(createTestFolder(), "replica");
  await send(openWriter(folder), 0);
  const modes = execFileSync("find", [folder, "-printf", "%m %y\n"], { encoding: "utf8" });
  expect(new Set(modes.trim().split("\n"))).toEqual(new Set(["700 d", "600 f"]));
});

test("without free descriptors, the process that writes cannot start, and the server continues", () => {
  const path = join(createTestFolder(), "store.db");
  const toUrl = (file: string): string => JSON.stringify(new URL(`../../../../src/${file}`, import.meta.url));
  const code = `
    import { closeSync, openSync } from "node:fs";
    import { DatabaseSync } from "node:sqlite";
    import { Replica } from ${toUrl("operations/backup/replica/replica.ts")};
    import { WalIndex } from ${toUrl("engine/store/sqlite/walIndex.ts")};
    const path = ${JSON.stringify(path)};
    const db = new DatabaseSync(path);
    db.exec("pragma journal_mode = wal; create table things (id)");
    const replica = new Replica({
      path,
      folder: path + "-replica",
      writerCode: new URL(${toUrl("operations/backup/replica/writerMain.ts")}),
      identity: "store-1",
      now: Date.now,
      pause: () => new Promise(() => {}),
      onEvent: () => {},
    });
    const index = new WalIndex(path);
    const files = [];
    try {
      for (;;) files.push(openSync("/dev/null", "r"));
    } catch {}
    // The log can be opened. Pipes cannot.
    for (const file of files.slice(-1)) closeSync(file);
    await replica.start(index).catch((error) => console.log(error.message));
    setImmediate(() => process.exit(0));
  `;
  const program = [process.execPath, "--input-type=module", "--eval", code];
  const { status, stdout } = spawnSync("sh", ["-c", 'ulimit -n 100 && exec "$@"', "sh", ...program], {
    encoding: "utf8",
  });
  expect({ status, stdout }).toEqual({
    status: 0,
    stdout: "the process that writes could not be started: this process has no free descriptors\n",
  });
});
