import { spawnSync } from "node:child_process";
import { closeSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

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
