import { spawn, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { developmentToken, startDestination, temporaryFolder } from "../../server/waypost.ts";

// The README promises that the server connects only to the destinations of its messages.

const home = join(import.meta.dirname, "../../..");
const hook = pathToFileURL(join(import.meta.dirname, "outgoing.js")).href;

/**
 * Starts a server in a new folder, publishes one message, waits for it to arrive, and stops the server.
 * Returns the address of the destination.
 */
async function serveOnce(command: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
  const destination = await startDestination();
  const [program = "", ...args] = command;
  const folder = temporaryFolder();
  const server = spawn(
    program,
    [...args, join(home, "src/server/cli/main.ts"), "dev", "--port", "0", "--data", join(folder, "data")],
    {
      cwd: folder,
      env: { PATH: process.env.PATH, ...env },
      stdio: ["ignore", "pipe", "ignore"],
      detached: true,
    },
  );
  const ended = new Promise((resolve) => server.on("close", resolve));
  onTestFinished(() => {
    try {
      process.kill(-(server.pid ?? 0), "SIGKILL");
    } catch {
      // The process has ended.
    }
  });
  for await (const line of createInterface({ input: server.stdout })) {
    const [, url] = /running at (http:[^\s"]+)/.exec(line) ?? [];
    if (!url) continue;
    const headers = { authorization: `Bearer ${developmentToken}` };
    const { status } = await fetch(`${url}/v2/publish/${destination.url}/`, { method: "POST", headers });
    expect(status).toBe(200);
    await destination.until((arrivals) => arrivals.length === 1);
    process.kill(-(server.pid ?? 0), "SIGTERM");
    break;
  }
  await ended;
  return destination.url.replace("http://", "");
}

const flags = ["--disable-warning=ExperimentalWarning"];

test("a server makes one connection for one message, looks up no name, and starts no program", async () => {
  const seen = join(temporaryFolder(), "outgoing");
  writeFileSync(seen, "");
  const to = await serveOnce([process.execPath, ...flags, "--import", hook], { OUTGOING: seen });
  // A checkout asks git for its commit. A package has the commit built in.
  const lines = readFileSync(seen, "utf8").replaceAll(/^.*"git".*\n/gm, "");
  expect(lines).toBe(`connect ${JSON.stringify(to)}\n`);
});

test("the hook also records everything else that a program starts", () => {
  const seen = join(temporaryFolder(), "outgoing");
  const script = `
    import dgram from "node:dgram"; import { lookup, promises } from "node:dns";
    import { execFile } from "node:child_process";
    import { Worker } from "node:worker_threads";
    fetch("http://127.0.0.1:2/").catch(() => {});
    lookup("one.invalid", () => {}); promises.lookup("two.invalid").catch(() => {});
    const socket = dgram.createSocket("udp4"); socket.send("x", 1, "127.0.0.1", () => socket.close());
    execFile("true");
    const get = 'import("node:https").then(({ get }) => get("https://127.0.0.4:1").on("error", () => {}))';
    new Worker(get, { eval: true });`;
  spawnSync(process.execPath, ["--import", hook, "--input-type=module", "--eval", script], {
    env: { PATH: process.env.PATH, OUTGOING: seen },
  });
  const lines = readFileSync(seen, "utf8");
  for (const trace of ["127.0.0.1:2", "one.invalid", "two.invalid", "send ", '"true"', "127.0.0.4:1"])
    expect(lines).toContain(trace);
});

/** Whether the system allows tracing. */
const canTrace = spawnSync("strace", ["-f", "-o", "/dev/null", "true"]).status === 0;

test.runIf(canTrace)(
  "a trace of the system shows one connection to another address, and no datagram",
  async () => {
    const seen = join(temporaryFolder(), "trace");
    const to = await serveOnce([
      "strace",
      "-f",
      "-qq",
      "-e",
      "trace=connect,sendto,sendmsg,sendmmsg",
      "-e",
      "signal=none",
      "-o",
      seen,
      process.execPath,
      ...flags,
    ]);
    const places = readFileSync(seen, "utf8")
      .split("\n")
      .filter((line) => /AF_INET/.test(line))
      .map(
        (line) =>
          `${/inet_\w+\((?:AF_INET6, )?"([^"]+)"/.exec(line)?.[1]}:${/port=htons\((\d+)\)/.exec(line)?.[1]}`,
      );
    expect(places).toEqual([to]);
  },
);
