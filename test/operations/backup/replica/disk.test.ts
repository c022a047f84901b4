// @module-tag long
import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { request } from "undici";
import { describe, expect, onTestFinished, test } from "vitest";
import { runWaypost, startWaypost, temporaryFolder } from "../../../server/waypost.ts";
import { findWriter, headers, mustFindWriter, startServer } from "./replicaServer.ts";

/** Restores a replica with the keys of its store, and returns the ids of the messages in it. */
async function restore(folder: string, { data, replica }: { data: string; replica: string }) {
  const target = join(folder, `restored-${readdirSync(folder).length}`);
  mkdirSync(target, { mode: 0o700 });
  copyFileSync(join(data, "keys"), join(target, "keys"));
  const { code, out, err } = await runWaypost(["restore", replica, "--data", target]).ended;
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out).toContain("restored");
  const db = new DatabaseSync(join(target, "waypost.db"));
  const rows = db.prepare("select id from stored_messages").all();
  db.close();
  return { target, ids: new Set(rows.map(({ id }) => String(id))) };
}

test("after kill -9 of the server, the replica has all but what it said was missing", async () => {
  const folder = temporaryFolder();
  const server = await startServer(folder);
  await server.until(({ complete }) => complete);
  const published: { id: string; at: number }[] = [];
  const body = Buffer.alloc(20_000, "x");
  const { parent } = mustFindWriter(server.replica);
  // Everything that was acknowledged before this time is in the replica, as the server says.
  let copiedUntil = 0;
  const isCopied = ({ at }: { at: number }): boolean => at < copiedUntil;
  // About 20 MB, so that the write-ahead log restarts.
  while (published.length < 1_000 || published.filter(isCopied).length < 500) {
    const ids = await Promise.all(Array.from({ length: 8 }, () => server.publish(body)));
    for (const id of ids) published.push({ id, at: Date.now() });
    const askedAt = Date.now();
    copiedUntil = askedAt - 1_000 * (await server.health()).lagSeconds;
  }
  process.kill(parent, "SIGKILL");
  while (findWriter(server.replica)) await pause(20);
  const { ids, target } = await restore(folder, server);
  expect(published.filter((one) => isCopied(one) && !ids.has(one.id))).toEqual([]);
  const again = await startWaypost(["dev", "--port", "0", "--hold", "--data", target]);
  const id = published.find((one) => ids.has(one.id))?.id ?? "";
  const answer = await request(`${again.url}/v2/messages/${id}`, { headers });
  expect((await answer.body.json()) as object).toMatchObject({ state: "pending", body: body.toString() });
});

test("after kill -9 of the process that writes, the server continues and copies again", async () => {
  const folder = temporaryFolder();
  const server = await startServer(folder);
  await server.until(({ complete }) => complete);
  const first = await server.publish("first");
  await server.until(({ lagSeconds }) => lagSeconds === 0);
  process.kill(mustFindWriter(server.replica).pid, "SIGKILL");
  await server.until(({ complete }) => !complete);
  const second = await server.publish("second");
  const copy = join(folder, "copy");
  cpSync(server.replica, copy, { recursive: true });
  const before = await restore(folder, { ...server, replica: copy });
  expect(before.ids).toContain(first);
  expect(before.ids).not.toContain(second);
  await server.until(({ complete, lagSeconds }) => complete && lagSeconds === 0);
  expect((await restore(folder, server)).ids).toEqual(new Set([first, second]));
  expect(readdirSync(server.replica)).toHaveLength(2);
  server.server.kill("SIGTERM");
  const { code, err } = await server.server.ended;
  expect(code).toBe(0);
  expect(err).toContain("the copy of the store is interrupted");
});

test("a target that hangs delays no publish, and only raises the lag", async () => {
  const folder = temporaryFolder();
  const server = await startServer(folder);
  await server.until(({ complete }) => complete);
  const { pid } = mustFindWriter(server.replica);
  process.kill(pid, "SIGSTOP");
  onTestFinished(() => void (findWriter(server.replica) && process.kill(pid, "SIGKILL")));
  const ids: string[] = [];
  for (let n = 0; n < 100; n++) ids.push(await server.publish(Buffer.alloc(50_000, "h")));
  await server.until(({ lagSeconds }) => lagSeconds > 1.5);
  const scrape = await request(`${server.server.url}/metrics`, { headers });
  expect(Number(/waypost_replica_lag_seconds ([\d.]+)/.exec(await scrape.body.text())?.[1])).toBeGreaterThan(
    1,
  );
  process.kill(pid, "SIGCONT");
  await server.until(({ lagSeconds, complete }) => lagSeconds === 0 && complete);
  expect(mustFindWriter(server.replica).pid).toBe(pid);
  expect((await restore(folder, server)).ids).toEqual(new Set(ids));

  // The stop of the server does not wait for it either.
  process.kill(pid, "SIGSTOP");
  ids.push(await server.publish("last"));
  server.server.kill("SIGTERM");
  expect((await server.server.ended).code).toBe(0);
});

test("a target that is full delays no publish, and catches up when it has room", async ({ skip }) => {
  const folder = temporaryFolder();
  const small = join(folder, "small");
  mkdirSync(small);
  if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=4m", "tmpfs", small]).status !== 0)
    return skip("only root can mount a small disk");
  onTestFinished(() => void spawnSync("umount", ["--lazy", small]));
  const server = await startServer(folder, small);
  await server.until(({ complete }) => complete);
  const ids: string[] = [];
  for (let n = 0; n < 100; n++) ids.push(await server.publish(Buffer.alloc(50_000, "f")));
  await server.until(({ lagSeconds }) => lagSeconds > 1);
  const early = await restore(folder, server);
  expect(early.ids.size).toBeLessThan(100);
  expect(early.ids.size).toBeGreaterThan(10);
  spawnSync("mount", ["-o", "remount,size=64m", small]);
  await server.until(({ lagSeconds, complete }) => lagSeconds === 0 && complete);
  expect((await restore(folder, server)).ids).toEqual(new Set(ids));
  server.server.kill("SIGTERM");
  expect((await server.server.ended).err).toContain("the copy of the store cannot be written");
});

describe("bad input is refused with a sentence, and nothing changes", () => {
  const listAll = (folder: string): string[] =>
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => {
        const path = join(entry.parentPath, entry.name);
        return `${path} ${readFileSync(path).toString("base64")}`;
      })
      .toSorted();

  test("a replica of another store, a folder with other files, and PostgreSQL", async () => {
    const folder = temporaryFolder();
    const server = await startServer(folder);
    await server.until(({ complete }) => complete);
    server.server.kill("SIGTERM");
    await server.server.ended;
    const mine = join(folder, "mine");
    mkdirSync(mine);
    writeFileSync(join(mine, "file"), "mine");
    const before = [server.replica, mine].flatMap(listAll);
    const other = join(folder, "other");
    const attempts: readonly [flags: string[], error: string][] = [
      [["--replicate", server.replica], "has the replica of another store; choose an empty folder"],
      [["--replicate", mine], "has other files; choose an empty folder for --replicate"],
      [["--replicate", join(folder, "no/replica")], "its parent folder does not exist; mount the disk"],
    ];
    for (const [flags, error] of attempts)
      expect(await runWaypost(["dev", "--port", "0", "--data", other, ...flags]).ended).toMatchObject({
        code: 2,
        err: expect.stringContaining(error),
      });
    expect([server.replica, mine].flatMap(listAll)).toEqual(before);
    expect(existsSync(join(folder, "no"))).toBe(false);
    const environment = { WAYPOST_DATABASE_URL: "postgres://nobody@127.0.0.1:1/none" };
    const postgres = await runWaypost(["start", "--port", "0", "--replicate", mine], environment).ended;
    expect(postgres).toMatchObject({
      code: 2,
      err: expect.stringContaining("a PostgreSQL database has its own replication"),
    });
  });

  test("a restore of a damaged replica, or into a folder with a store", async () => {
    const folder = temporaryFolder();
    const server = await startServer(folder);
    await server.until(({ complete }) => complete);
    for (let n = 0; n < 20; n++) await server.publish("x");
    server.server.kill("SIGTERM");
    await server.server.ended;
    const full = await runWaypost(["restore", server.replica, "--data", server.data]).ended;
    expect(full).toMatchObject({ code: 2, err: expect.stringContaining("already exists") });
    const keys = join(folder, "no-keys");
    const without = await runWaypost(["restore", server.replica, "--data", keys]).ended;
    expect(without).toMatchObject({ code: 2, err: expect.stringContaining("keys") });
    expect(existsSync(keys)).toBe(false);
    const name = readdirSync(server.replica).find((one) => one.includes("-")) ?? "";
    const log = join(server.replica, name, "log-0000000000000000");
    const bytes = readFileSync(log);
    bytes[1_000] = (bytes[1_000] ?? 0) ^ 1;
    rmSync(log);
    writeFileSync(log, bytes);
    const before = listAll(server.replica);
    const damaged = await runWaypost(["restore", server.replica, "--data", join(folder, "new")]).ended;
    expect(damaged).toMatchObject({ code: 2, err: expect.stringContaining("the replica is damaged") });
    expect(existsSync(join(folder, "new"))).toBe(false);
    expect(listAll(server.replica)).toEqual(before);
  });
});
