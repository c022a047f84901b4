/** This server as a process, with full durability in a folder of its own. */
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { request } from "undici";
import { end, type BenchResources } from "./benchResources.ts";
import { pause, type Server } from "./server.ts";

export type Waypost = Server & {
  /** Milliseconds from the start of the process until it said that it is ready. */
  readyAfter: number;
  /** Ends it as a power cut would. */
  kill(): Promise<void>;
};

/** The fixed token of `waypost dev`, which also may call loopback. */
export const devToken = "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=";

const startLimit = 60_000;

/** Where its data are: in a folder, or in a database, and then it only prints to the folder. `sources`: another version of the repository. */
export type ServerLocation = { folder: string; database?: string; name?: string; sources?: string };

/** As `scripts/run.js` starts it. */
const flags = availableParallelism() <= 2 ? ["--single-threaded-gc"] : [];

/** Starts the server; throws with what it printed when it does not get ready. */
export async function startWaypost(
  resources: BenchResources,
  { folder, database, name = "waypost", sources }: ServerLocation,
): Promise<Waypost> {
  const port = await freePort();
  const log = join(folder, `output-${port}.txt`);
  const startedAt = performance.now();
  const storage = database === undefined ? ["--data", join(folder, "data")] : ["--database-url", database];
  const command = [process.execPath, ...flags, "src/cli/main.ts", "dev", "--port", String(port), ...storage];
  const child = resources.server(command, log, sources);
  while (!/running at\s+\S*http/.test(readFileSync(log, "utf8"))) {
    if (child.exitCode !== null || performance.now() - startedAt > startLimit) {
      throw new Error(`${name} did not start. The end of what it printed:\n${readFileSync(log, "utf8").slice(-2_000)}`);
    }
    await pause(2);
  }
  return {
    name,
    pid: child.pid ?? Number.NaN,
    port,
    token: devToken,
    readyAfter: performance.now() - startedAt,
    unsettled: () => unsettled(port),
    stop: () => end(child, "SIGTERM"),
    kill: () => end(child, "SIGKILL"),
  };
}

/** The figure of the server's own health report, wherever in it it is; older versions call it `unsettled`. */
async function unsettled(port: number): Promise<number | null> {
  const headers = { authorization: `Bearer ${devToken}` };
  const { statusCode, body } = await request(`http://127.0.0.1:${port}/v2/health`, { headers });
  const text = await body.text();
  if (statusCode !== 200) return null;
  const figure = /"(?:inFlight|unsettled)":\s*(\d+)/.exec(text)?.[1];
  return figure === undefined ? null : Number(figure);
}

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
