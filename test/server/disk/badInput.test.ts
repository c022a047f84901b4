// @module-tag long
import { hash } from "node:crypto";
import { spawnSync } from "node:child_process";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { request } from "undici";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "../waypost.ts";

/**
 * Returns the paths and the bytes of everything in a folder. SQLite may number an opened database again, and
 * may remove a log that is empty; both say nothing of the content.
 */
const readAll = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .map((entry) => ({ entry, path: join(entry.parentPath, entry.name) }))
    .filter(({ path }) => !path.endsWith("-shm") && !(path.endsWith("-wal") && statSync(path).size === 0))
    .map(({ entry, path }) => {
      if (!entry.isFile()) return `${path}: no file`;
      const bytes = readFileSync(path);
      if (entry.name === "waypost.db") for (const [from, to] of changeCounters) bytes.fill(0, from, to);
      return `${path}: ${hash("sha256", bytes)}`;
    })
    .toSorted();

/** Where SQLite counts changes in the header of a file: see the file format. */
const changeCounters = [
  [24, 28],
  [92, 96],
] as const;

/** Runs a command that must be refused with one sentence, and must leave these folders as they are. */
async function expectRefusal(
  args: readonly string[],
  { error, code, folders }: { error: RegExp; code: 1 | 2; folders: readonly string[] },
): Promise<void> {
  const before = folders.flatMap(readAll);
  const refused = await runWaypost(args).ended;
  expect({ code: refused.code, err: refused.err }).toEqual({ code, err: expect.stringMatching(error) });
  // A sentence, and no trace of a stack.
  expect(refused.err).toMatch(/^waypost: /m);
  expect(refused.err).not.toMatch(/\n +at /);
  expect(folders.flatMap(readAll)).toEqual(before);
}

let testServer: Promise<string> | null = null;

afterAll(async () => rmSync((await testServer) ?? "", { recursive: true, force: true }));

/** Makes a store with a message, and a backup of it. */
async function makeStore(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "waypost-bad-input-"));
  const data = join(folder, "data");
  const server = await startWaypost(["dev", "--port", "0", "--data", data]);
  await request(`${server.url}/v2/publish/http://127.0.0.1:9/x`, {
    method: "POST",
    headers: { authorization: `Bearer ${developmentToken}`, "svc-delay": "1h" },
    body: "x",
  });
  server.kill("SIGTERM");
  await server.ended;
  await runWaypost(["backup", join(folder, "backup.db"), "--data", data, "--with-keys"]).ended;
  return folder;
}

async function copyOfStore(): Promise<{ folder: string; data: string }> {
  const folder = temporaryFolder();
  cpSync(await (testServer ??= makeStore()), folder, { recursive: true });
  return { folder, data: join(folder, "data") };
}

/** Mounts a disk in memory. Returns false where that is not possible. */
function mount(folder: string, options: string): boolean {
  mkdirSync(folder, { recursive: true });
  if (spawnSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", folder]).status !== 0) return false;
  onTestFinished(() => void spawnSync("umount", ["--lazy", folder]));
  return true;
}

const start = (data: string, ...more: readonly string[]): string[] => [
  ...["dev", "--port", "0", "--data", data],
  ...more,
];

describe("bad input is refused with a sentence that says what to do, and changes nothing", () => {
  test("a damaged backup", async () => {
    const { folder } = await copyOfStore();
    const backup = join(folder, "backup.db");
    const bytes = readFileSync(backup);
    for (let at = 8_192; at < bytes.length; at += 8_192) bytes.fill(7, at, at + 200);
    writeFileSync(backup, bytes);
    await expectRefusal(["restore", backup, "--data", join(folder, "new")], {
      ...{ code: 2, folders: [folder] },
      error: /backup\.db: damaged \(.+\); use another backup/,
    });
  });

  test("a full target of a backup", async ({ skip }) => {
    const { folder, data } = await copyOfStore();
    const small = join(folder, "small");
    if (!mount(small, "size=64k")) return skip("only root can mount a small disk");
    await expectRefusal(["backup", join(small, "file"), "--data", data], {
      ...{ code: 2, folders: [data, small] },
      error: /cannot be written .*; free space, or choose another disk/,
    });
  });

  test("wrong keys", async () => {
    const { folder, data } = await copyOfStore();
    const keys = join(folder, "wrong-keys");
    writeFileSync(keys, `1:${Buffer.alloc(32, 1).toString("base64")}\n`, { mode: 0o600 });
    await expectRefusal(start(data, "--keys-file", keys), {
      ...{ code: 2, folders: [folder] },
      error: /key/,
    });
    await expectRefusal(
      ["restore", join(folder, "backup.db"), "--data", join(folder, "new"), "--keys-file", keys],
      { ...{ code: 2, folders: [folder] }, error: /key/ },
    );
  });

  test("a newer store", async () => {
    const { folder, data } = await copyOfStore();
    const database = new DatabaseSync(join(data, "waypost.db"));
    database.exec("update store_schema set hash = 'newer'; pragma wal_checkpoint(truncate)");
    database.close();
    await expectRefusal(start(data), {
      ...{ code: 2, folders: [folder] },
      error: /has tables of another version of Waypost, which this version cannot use/,
    });
  });

  test("a folder that another server uses", async () => {
    const { data } = await copyOfStore();
    const server = await startWaypost(start(data));
    await expectRefusal(start(data), {
      ...{ code: 2, folders: [] },
      error: /another waypost server is using it/,
    });
    expect((await request(`${server.url}/v2/health`)).statusCode).toBe(200);
    server.kill("SIGTERM");
    expect((await server.ended).code).toBe(0);
  });

  test("a folder that is read-only", async ({ skip }) => {
    const { folder, data } = await copyOfStore();
    const disk = join(folder, "disk");
    if (!mount(disk, "size=16m")) return skip("only root can mount a disk");
    cpSync(data, join(disk, "data"), { recursive: true });
    spawnSync("mount", ["-o", "remount,ro", disk]);
    await expectRefusal(start(join(disk, "data")), {
      ...{ code: 2, folders: [disk] },
      error: /read-only|cannot be written/,
    });
    await expectRefusal(start(join(disk, "new")), {
      ...{ code: 2, folders: [disk] },
      error: /read-only|cannot be (written|created)/,
    });
    await expectRefusal(["backup", join(disk, "file"), "--data", data], {
      ...{ code: 2, folders: [disk, data] },
      error: /cannot be written .*choose a folder that exists and can be written/,
    });
  });

  test("a socket that cannot be created", async () => {
    const { folder, data } = await copyOfStore();
    mkdirSync(join(data, "waypost.sock"));
    await expectRefusal(start(data), {
      ...{ code: 2, folders: [folder] },
      error: /waypost\.sock: the socket for commands cannot be created .*remove/,
    });
  });

  test("a port that another program uses", async () => {
    const { folder, data } = await copyOfStore();
    const other = createServer().listen(0, "127.0.0.1");
    onTestFinished(() => void other.close());
    await new Promise((resolve) => other.once("listening", resolve));
    const { port } = other.address() as AddressInfo;
    await expectRefusal(["dev", "--port", String(port), "--data", data], {
      ...{ code: 2, folders: [folder] },
      error: /is already in use; choose another with --port/,
    });
    await expectRefusal(["dev", "--port", String(port), "--data", join(folder, "new")], {
      ...{ code: 2, folders: [folder] },
      error: /is already in use; choose another with --port/,
    });
    expect(existsSync(join(folder, "new"))).toBe(false);
  });
});
