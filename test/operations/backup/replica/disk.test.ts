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
  const home = await startServer(folder);
  await home.until(({ complete }) => complete);
  const published: { id: string; at: number }[] = [];
  const body = Buffer.alloc(20_000, "x");
  const { parent } = mustFindWriter(home.replica);
  // Everything that was acknowledged before this time is in the replica, as the server says.
  let copiedUntil = 0;
  const isCopied = ({ at }: { at: number }): boolean => at < copiedUntil;
  // About 20 MB, so that the write-ahead log restarts.
  while (published.length < 1_000 || published.filter(isCopied).length < 500) {
    const ids = await Promise.all(Array.from({ length: 8 }, () => home.publish(body)));
    for (const id of ids) published.push({ id, at: Date.now() });
    const askedAt = Date.now();
    copiedUntil = askedAt - 1_000 * (await home.health()).lagSeconds;
  }
  process.kill(parent, "SIGKILL");
  while (findWriter(home.replica)) await pause(20);
  const { ids, target } = await restore(folder, home);
  expect(published.filter((one) => isCopied(one) && !ids.has(one.id))).toEqual([]);
  const again = await startWaypost(["dev", "--port", "0", "--hold", "--data", target]);
  const id = published.find((one) => ids.has(one.id))?.id ?? "";
  const answer = await request(`${again.url}/v2/messages/${id}`, { headers });
  expect((await answer.body.json()) as object).toMatchObject({ state: "pending", body: body.toString() });
});

test("after kill -9 of the process that writes, the server continues and copies again", async () => {
  const folder = temporaryFolder();
  const home = await startServer(folder);
  await home.until(({ complete }) => complete);
  const first = await home.publish("first");
  await home.until(({ lagSeconds }) => lagSeconds === 0);
  process.kill(mustFindWriter(home.replica).pid, "SIGKILL");
  await home.until(({ complete }) => !complete);
  const second = await home.publish("second");
  const copy = join(folder, "copy");
  cpSync(home.replica, copy, { recursive: true });
  const before = await restore(folder, { ...home, replica: copy });
  expect(before.ids).toContain(first);
  expect(before.ids).not.toContain(second);
  await home.until(({ complete, lagSeconds }) => complete && lagSeconds === 0);
  expect((await restore(folder, home)).ids).toEqual(new Set([first, second]));
  expect(readdirSync(home.replica)).toHaveLength(2);
  home.server.kill("SIGTERM");
  const { code, err } = await home.server.ended;
  expect(code).toBe(0);
  expect(err).toContain("the copy of the store is interrupted");
});

test("a target that hangs delays no publish, and only raises the lag", async () => {
  const folder = temporaryFolder();
  const home = await startServer(folder);
  await home.until(({ complete }) => complete);
  const { pid } = mustFindWriter(home.replica);
  process.kill(pid, "SIGSTOP");
  onTestFinished(() => void (findWriter(home.replica) && process.kill(pid, "SIGKILL")));
  const ids: string[] = [];
  for (let n = 0; n < 100; n++) ids.push(await home.publish(Buffer.alloc(50_000, "h")));
  await home.until(({ lagSeconds }) => lagSeconds > 1.5);
  const scrape = await request(`${home.server.url}/metrics`, { headers });
  expect(Number(/waypost_replica_lag_seconds ([\d.]+)/.exec(await scrape.body.text())?.[1])).toBeGreaterThan(
    1,
  );
  process.kill(pid, "SIGCONT");
  await home.until(({ lagSeconds, complete }) => lagSeconds === 0 && complete);
  expect(mustFindWriter(home.replica).pid).toBe(pid);
  expect((await restore(folder, home)).ids).toEqual(new Set(ids));

  // The stop of the server does not wait for it either.
  process.kill(pid, "SIGSTOP");
  ids.push(await home.publish("last"));
  home.server.kill("SIGTERM");
  expect((await home.server.ended).code).toBe(0);
});

test("a target that is full delays no publish, and catches up when it has room", async ({ skip }) => {
  const folder = temporaryFolder();
  const small = join(folder, "small");
  mkdirSync(small);
  if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=4m", "tmpfs", small]).status !== 0)
    return skip("only root can mount a small disk");
  onTestFinished(() => void spawnSync("umount", ["--lazy", small]));
  const home = await startServer(folder, small);
  await home.until(({ complete }) => complete);
  const ids: string[] = [];
  for (let n = 0; n < 100; n++) ids.push(await home.publish(Buffer.alloc(50_000, "f")));
  await home.until(({ lagSeconds }) => lagSeconds > 1);
  const early = await restore(folder, home);
  expect(early.ids.size).toBeLessThan(100);
  expect(early.ids.size).toBeGreaterThan(10);
  spawnSync("mount", ["-o", "remount,size=64m", small]);
  await home.until(({ lagSeconds, complete }) => lagSeconds === 0 && complete);
  expect((await restore(folder, home)).ids).toEqual(new Set(ids));
  home.server.kill("SIGTERM");
  expect((await home.server.ended).err).toContain("the copy of the store cannot be written");
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
    const home = await startServer(folder);
    await home.until(({ complete }) => complete);
    home.server.kill("SIGTERM");
    await home.server.ended;
    const mine = join(folder, "mine");
    mkdirSync(mine);
    writeFileSync(join(mine, "file"), "mine");
    const before = [home.replica, mine].flatMap(listAll);
    const other = join(folder, "other");
    const attempts: readonly [flags: string[], error: string][] = [
      [["--replicate", home.replica], "has the replica of another store; choose an empty folder"],
      [["--replicate", mine], "has other files; choose an empty folder for --replicate"],
      [["--replicate", join(folder, "no/replica")], "its parent folder does not exist; mount the disk"],
    ];
    for (const [flags, error] of attempts)
      expect(await runWaypost(["dev", "--port", "0", "--data", other, ...flags]).ended).toMatchObject({
        code: 2,
        err: expect.stringContaining(error),
      });
    expect([home.replica, mine].flatMap(listAll)).toEqual(before);
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
    const home = await startServer(folder);
    await home.until(({ complete }) => complete);
    for (let n = 0; n < 20; n++) await home.publish("x");
    home.server.kill("SIGTERM");
    await home.server.ended;
    const full = await runWaypost(["restore", home.replica, "--data", home.data]).ended;
    expect(full).toMatchObject({ code: 2, err: expect.stringContaining("already exists") });
    const keys = join(folder, "no-keys");
    const without = await runWaypost(["restore", home.replica, "--data", keys]).ended;
    expect(without).toMatchObject({ code: 2, err: expect.stringContaining("keys") });
    expect(existsSync(keys)).toBe(false);
    const name = readdirSync(home.replica).find((one) => one.includes("-")) ?? "";
    const log = join(home.replica, name, "log-0000000000000000");
    const bytes = readFileSync(log);
    bytes[1_000] = (bytes[1_000] ?? 0) ^ 1;
    rmSync(log);
    writeFileSync(log, bytes);
    const before = listAll(home.replica);
    const damaged = await runWaypost(["restore", home.replica, "--data", join(folder, "new")]).ended;
    expect(damaged).toMatchObject({ code: 2, err: expect.stringContaining("the replica is damaged") });
    expect(existsSync(join(folder, "new"))).toBe(false);
    expect(listAll(home.replica)).toEqual(before);
  });
});
