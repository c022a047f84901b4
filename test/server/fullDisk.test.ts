import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chownSync,
  closeSync,
  mkdirSync,
  openSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { ask } from "../engine/store/postgres/postgresDatabase.ts";
import { startPostgres } from "../postgres.ts";
import { developmentToken, runWaypost, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

const mebi = 1024 * 1024;

/** Mounts a small disk in memory. Returns null where that is not possible. */
function mountDisk(size: string): string | null {
  const folder = temporaryFolder();
  if (spawnSync("mount", ["-t", "tmpfs", "-o", `size=${size}`, "tmpfs", folder]).status !== 0) return null;
  onTestFinished(() => void spawnSync("umount", ["--lazy", folder]));
  return folder;
}

/** Writes a file until the disk is full. */
function fill(path: string): void {
  const file = openSync(path, "w");
  try {
    for (const size of [mebi, 4096]) while (writeAll(file, size));
  } finally {
    closeSync(file);
  }
}

function writeAll(file: number, size: number): boolean {
  try {
    return writeSync(file, Buffer.alloc(size)) === size;
  } catch {
    return false;
  }
}

test("a disk that fills up refuses new messages, sends accepted ones, and loses nothing", async ({
  skip,
}) => {
  const disk = mountDisk("96m");
  if (disk === null) return skip("only root can mount a small disk");
  const ballast = join(disk, "ballast");
  writeFileSync(ballast, Buffer.alloc(32 * mebi));
  const destination = await startDestination();
  const server = await startWaypost(["dev", "--port", "0", "--data", join(disk, "data")]);
  const headers = { authorization: `Bearer ${developmentToken}` };
  const send = async (method: "GET" | "POST" | "DELETE", path: string, more: object = {}) => {
    const answer = await request(`${server.url}${path}`, { method, headers: { ...headers, ...more } });
    return { status: answer.statusCode, headers: answer.headers, body: (await answer.body.json()) as never };
  };
  const body = Buffer.alloc(200_000, 1);
  const publish = async () => {
    const answer = await request(`${server.url}/v2/publish/${destination.url}/accepted`, {
      method: "POST",
      headers: { ...headers, "svc-delay": "1h" },
      body,
    });
    const reply = (await answer.body.json()) as { messageId: string; error?: string };
    return { status: answer.statusCode, retryAfter: answer.headers["retry-after"], ...reply };
  };

  const accepted: string[] = [];
  let refused = await publish();
  for (; refused.status === 200; refused = await publish()) accepted.push(refused.messageId);
  expect(refused).toMatchObject({
    status: 503,
    retryAfter: "1",
    error: expect.stringMatching(/^disk: the disk of the server is almost full/),
  });
  const overview = (await send("GET", "/v2/overview")).body as { conditions: object[] };
  expect(overview.conditions[0]).toMatchObject({
    kind: "server.refusing",
    level: "problem",
    text:
      "The server refuses new messages: its disk is almost full; " +
      "cancelled messages free space within seconds",
  });
  expect(accepted.length).toBeGreaterThan(20);
  expect((await send("GET", "/v2/health")).body).toMatchObject({ status: "ok", diskLow: true });

  // Deliveries and deletions continue.
  const [first = "", second = "", ...others] = accepted;
  expect((await send("POST", `/v2/messages/${first}/send-now`)).status).toBe(200);
  await destination.until((arrivals) => arrivals.length === 1);
  expect((await send("DELETE", `/v2/messages/${second}`)).status).toBe(200);

  fill(join(disk, "brim"));
  expect((await publish()).status).toBe(503);
  for (const path of [join(disk, "brim"), ballast]) rmSync(path);
  while ((await publish()).status !== 200) await pause(100);
  expect((await send("GET", "/v2/health")).body).not.toHaveProperty("diskLow");
  for (const id of others)
    while ((await send("POST", `/v2/messages/${id}/send-now`)).status !== 200) await pause(100);
  await destination.until((arrivals) => arrivals.length >= 1 + others.length);
  const arrived = new Set(destination.arrivals.map((arrival) => arrival.headers["svc-message-id"]));
  expect(arrived).toEqual(new Set([first, ...others]));
  expect(destination.arrivals.every((arrival) => arrival.body.equals(body))).toBe(true);
  server.kill("SIGTERM");
  const { err } = await server.ended;
  expect(err).toContain("the disk is almost full: new messages are refused with disk-low");
  expect(err).toContain("the disk has room again");
});

test(
  "a disk that fills up loses old history first, and refuses no publish",
  { tags: "long" },
  async ({ skip }) => {
    const disk = mountDisk("96m");
    if (disk === null) return skip("only root can mount a small disk");
    const destination = await startDestination();
    const server = await startWaypost(["dev", "--port", "0", "--data", join(disk, "data")]);
    const headers = { authorization: `Bearer ${developmentToken}` };
    const read = async (path: string) => {
      const answer = await request(`${server.url}${path}`, { headers });
      return { status: answer.statusCode, text: await answer.body.text() };
    };
    const body = Buffer.alloc(200_000, 1);
    const publish = async (url: string, more: object = {}): Promise<string> => {
      const answer = await request(`${server.url}/v2/publish/${url}`, {
        method: "POST",
        headers: { ...headers, "svc-retries": "0", ...more },
        body,
      });
      const { messageId } = (await answer.body.json()) as { messageId: string };
      expect(answer.statusCode).toBe(200);
      return messageId;
    };
    const isFinished = async (id: string): Promise<boolean> =>
      (await read(`/v2/messages/${id}`)).text.includes('"finishedAt"');
    const until = async (isSo: () => Promise<boolean>): Promise<void> => {
      while (!(await isSo())) await pause(200);
    };

    const failed = await publish("http://127.0.0.1:9/refused");
    const waiting = await publish(destination.url, { "svc-delay": "1h" });
    const old: string[] = [];
    for (let at = 0; at < 100; at++) old.push(await publish(destination.url));
    for (const id of [failed, ...old]) await until(() => isFinished(id));
    expect((await read("/v2/health")).text).not.toContain("diskShort");
    // The last minute of history is never removed early.
    await pause(61_000);
    const { bavail, bsize } = statfsSync(disk);
    writeFileSync(join(disk, "ballast"), Buffer.alloc(bavail * bsize - 26 * mebi));
    await until(async () => !(await isFinished(old[0] ?? "")));
    await until(async () => !(await read("/v2/health")).text.includes("diskShort"));

    const last = await publish(destination.url);
    await until(() => isFinished(last));
    expect(await isFinished(old.at(-1) ?? "")).toBe(true);
    expect(JSON.parse((await read(`/v2/messages/${waiting}`)).text)).toMatchObject({ state: "pending" });
    const deadLetter = JSON.parse((await read(`/v2/messages/${failed}`)).text);
    expect(deadLetter.body === body.toString()).toBe(true);
    expect(deadLetter.state).toBe("failed");
    expect(deadLetter.outcomes[0].error).toContain("refused");
    const { text } = await read("/metrics");
    expect(text).toMatch(/waypost_history_removed_early_total [1-9]/);
    expect(text).toMatch(/waypost_disk_short 0/);
    server.kill("SIGTERM");
    const { err } = await server.ended;
    expect(err).toContain("the disk has little room: history is removed before its retention ends");
    expect(err).toContain("the disk has room; history is kept for its whole retention again");
    expect(err).not.toContain("new messages are refused");
  },
);

/** Starts a PostgreSQL server with a database on a small disk. Its own log has another disk. */
async function startPostgresOn(disk: string): Promise<string> {
  const postgres = await startPostgres();
  onTestFinished(() => postgres.stop());
  const { uid, gid } = statSync(`/proc/${postgres.pid()}`);
  chownSync(disk, uid, gid);
  for (const sql of [`create tablespace small location '${disk}'`, "create database small tablespace small"])
    await ask(postgres.url, sql);
  return postgres.url.replace(/\/postgres$/, "/small");
}

test(
  "a server on PostgreSQL is not ready as long as its disk has no room for a batch",
  { tags: "long" },
  async ({ skip }) => {
    const disk = mountDisk("48m");
    if (disk === null) return skip("only root can mount a small disk");
    const url = await startPostgresOn(disk);
    const server = await startWaypost(["dev", "--port", "0", "--database-url", url]);
    const publish = async (bytes: number): Promise<number> => {
      const { statusCode, body } = await request(
        `${server.url}/v2/publish/https://shop.example/x?svc-delay=1d`,
        {
          method: "POST",
          headers: { authorization: `Bearer ${developmentToken}` },
          body: randomBytes(bytes),
        },
      );
      await body.dump();
      return statusCode;
    };
    const isReady = async (): Promise<boolean> => {
      const { statusCode, body } = await request(`${server.url}/v2/health/ready`);
      await body.dump();
      return statusCode === 200;
    };
    expect([await publish(1_000_000), await isReady()]).toEqual([200, true]);
    const ballast = join(disk, "ballast");
    const { bavail, bsize } = statfsSync(disk);
    writeFileSync(ballast, Buffer.alloc(bavail * bsize - mebi));
    while ((await publish(1_000_000)) === 200);
    expect(await isReady()).toBe(false);
    // Longer than the pause, so that the server probes.
    for (const end = performance.now() + 12_000; performance.now() < end; await pause(200)) {
      expect(await isReady()).toBe(false);
      await publish(100);
    }
    expect(await publish(1_000_000)).toBe(503);
    rmSync(ballast);
    while (!(await isReady())) await pause(200);
    expect(await publish(1_000_000)).toBe(200);
  },
);

test("waypost doctor on a full disk says to free space, and not to change rights", async ({ skip }) => {
  const disk = mountDisk("1m");
  if (disk === null) return skip("only root can mount a small disk");
  const data = join(disk, "data");
  mkdirSync(data);
  fill(join(disk, "ballast"));
  const { out } = await runWaypost(["doctor", "--data", data, "--json"]).ended;
  const { findings } = JSON.parse(out) as { findings: { check: string }[] };
  expect(findings.find(({ check }) => check === "sync")).toMatchObject({
    verdict: "problem",
    text: /cannot be written \(ENOSPC/,
    fix: "free some space, or move the data folder to a larger disk",
  });
});
