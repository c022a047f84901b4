import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { statSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, onTestFinished, test } from "vitest";
import { writeExecutable } from "../../scripts/build/writeExecutable.ts";
import { developmentToken, startDestination, temporaryFolder } from "./waypost.ts";

test.runIf(process.platform === "linux")(
  "the single executable starts, stores, delivers, is probed and stops",
  { tags: "long" },
  async () => {
    const file = join(temporaryFolder(), "waypost");
    await writeExecutable(file);
    const data = temporaryFolder();
    // Nothing else is found: neither Node.js nor packages.
    const options = { cwd: data, env: {} };
    const server = spawn(file, ["dev", "--port", "0", "--data", data], {
      ...options,
      stdio: ["ignore", "pipe", "ignore"],
    });
    onTestFinished(() => void server.kill("SIGKILL"));
    const ended = once(server, "close");
    const url = await new Promise<string>((resolve, reject) => {
      createInterface({ input: server.stdout }).on("line", (line) => {
        const [, found] = /running at (http:[^\s"]+)/.exec(line) ?? [];
        if (found) resolve(found);
      });
      void ended.then(() => reject(new Error("it ended")));
    });
    const destination = await startDestination();
    const headers = { authorization: `Bearer ${developmentToken}` };
    const published = await fetch(`${url}/v2/publish/${destination.url}/order`, { method: "POST", headers });
    expect(published.status).toBe(200);
    await destination.until((arrivals) => arrivals.length > 0);
    // Lists are read by a thread, whose code is in the executable as well.
    expect((await fetch(`${url}/v2/logs`, { headers })).status).toBe(200);
    const environment = { WAYPOST_URL: url, WAYPOST_TOKEN: developmentToken };
    const queues = spawnSync(file, ["queues"], { cwd: data, env: environment, encoding: "utf8" });
    expect(queues).toMatchObject({ status: 0, stdout: "no queues\n", stderr: "" });
    const health = spawnSync(file, ["health", "--url", url], { ...options, encoding: "utf8" });
    expect(health).toMatchObject({ status: 0, stdout: "ready\n", stderr: "" });
    const wrong = spawnSync(file, ["health", "--prot", "1"], { ...options, encoding: "utf8" });
    expect(wrong).toMatchObject({ status: 2, stderr: expect.stringContaining("--prot") });
    expect(statSync(join(data, "waypost.db")).size).toBeGreaterThan(0);
    server.kill("SIGTERM");
    expect((await ended)[0]).toBe(0);
  },
);
