import { spawn, spawnSync } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { writeExecutable } from "../../scripts/build/writeExecutable.ts";
import { developmentToken, startDestination, temporaryFolder } from "./waypost.ts";

const headers = { authorization: `Bearer ${developmentToken}` };

type Server = { url: string; child: ChildProcess; ended: Promise<unknown[]> };

/** Starts the executable as a server. Nothing else is found: neither Node.js nor packages. */
async function start(file: string, folder: string, ...more: readonly string[]): Promise<Server> {
  const child = spawn(file, ["dev", "--port", "0", "--data", join(folder, "data"), ...more], {
    cwd: folder,
    env: {},
    stdio: ["ignore", "pipe", "ignore"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const ended = once(child, "close");
  const url = await new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const [, found] = /running at (http:[^\s"]+)/.exec(line) ?? [];
      if (found) resolve(found);
    });
    void ended.then(() => reject(new Error("it ended")));
  });
  return { url, child, ended };
}

/** Reports whether any process was started by a process. */
const hasChild = (pid: number): boolean =>
  readdirSync("/proc").some((name) => {
    const stat = join("/proc", name, "stat");
    try {
      return (
        /^\d+$/.test(name) && readFileSync(stat, "utf8").replace(/^.*\)/s, "").split(" ")[2] === `${pid}`
      );
    } catch {
      return false;
    }
  });

describe.runIf(process.platform === "linux")("the single executable", { tags: "long" }, () => {
  let file = "";

  beforeAll(async () => {
    const folder = mkdtempSync(join(tmpdir(), "waypost-executable-"));
    file = join(folder, "waypost");
    await writeExecutable(file);
    return () => rmSync(folder, { recursive: true, force: true });
  });

  test("starts, stores, delivers, is probed and stops", async () => {
    const folder = temporaryFolder();
    const { url, child, ended } = await start(file, folder);
    const destination = await startDestination();
    const published = await fetch(`${url}/v2/publish/${destination.url}/order`, { method: "POST", headers });
    expect(published.status).toBe(200);
    await destination.until((arrivals) => arrivals.length > 0);
    // Lists are read by a thread, whose code is in the executable as well.
    expect((await fetch(`${url}/v2/logs`, { headers })).status).toBe(200);
    expect(await (await fetch(`${url}/docs/guides/queues`)).text()).toContain("<h1");
    const run = (args: readonly string[], env: NodeJS.ProcessEnv = {}) =>
      spawnSync(file, args, { cwd: folder, env, encoding: "utf8" });
    const queues = run(["queues"], { WAYPOST_URL: url, WAYPOST_TOKEN: developmentToken });
    expect(queues).toMatchObject({ status: 0, stdout: "no queues\n", stderr: "" });
    expect(run(["health", "--url", url])).toMatchObject({ status: 0, stdout: "ready\n", stderr: "" });
    const wrong = run(["health", "--prot", "1"]);
    expect(wrong).toMatchObject({ status: 2, stderr: expect.stringContaining("--prot") });
    expect(statSync(join(folder, "data/waypost.db")).size).toBeGreaterThan(0);
    child.kill("SIGTERM");
    expect((await ended)[0]).toBe(0);
  });

  test("keeps a second copy of its store, and restores it after kill -9", async () => {
    const folder = temporaryFolder();
    const replica = join(folder, "replica");
    const { url, child, ended } = await start(file, folder, "--replicate", replica);
    const isCopied = async (): Promise<boolean> => {
      const health = (await (await fetch(`${url}/v2/health`)).json()) as {
        replica?: { lagSeconds: number; complete: boolean };
      };
      return health.replica?.complete === true && health.replica.lagSeconds === 0;
    };
    while (!(await isCopied())) await pause(50);
    // The copy is complete, so these reach it through the log.
    const ids: string[] = [];
    for (let at = 0; at < 20; at++) {
      const target = `${url}/v2/publish/http://127.0.0.1:9/later`;
      const answer = await fetch(target, { method: "POST", headers: { ...headers, "svc-delay": "1h" } });
      ids.push(((await answer.json()) as { messageId: string }).messageId);
    }
    while (!(await isCopied())) await pause(50);
    expect(hasChild(child.pid ?? 0)).toBe(true);
    child.kill("SIGKILL");
    await ended;
    const restored = join(folder, "restored");
    mkdirSync(restored, { mode: 0o700 });
    copyFileSync(join(folder, "data/keys"), join(restored, "keys"));
    const args = ["restore", replica, "--data", restored];
    const { status, stdout } = spawnSync(file, args, { cwd: folder, env: {}, encoding: "utf8" });
    expect({ status, stdout }).toEqual({ status: 0, stdout: expect.stringContaining("restored") });
    const db = new DatabaseSync(join(restored, "waypost.db"));
    const found = db.prepare("select id from stored_messages").all();
    db.close();
    expect(found.map(({ id }) => String(id)).toSorted()).toEqual(ids.toSorted());
  });
});
