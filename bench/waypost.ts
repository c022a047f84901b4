/** Waypost as a process, with full durability in its own folder. */
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { request } from "undici";
import { end, type BenchResources } from "./benchResources.ts";
import { pause, type Server } from "./server.ts";

/** A Waypost server that the bench has started. */
export type Waypost = Server & {
  /** Milliseconds from the start of the process until it reported that it was ready. */
  readyAfter: number;
  /** Ends the process as a power failure would. */
  kill(): Promise<void>;
};

/** The fixed token of `waypost dev`, which may also call loopback addresses. */
export const devToken = "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=";

const startLimit = 60_000;

/**
 * Where the data is: in the folder, or in `database`. With a database, the folder contains only the output.
 * `sources` is another version of the repository. `settings` are more flags of the server.
 */
export type ServerLocation = {
  folder: string;
  database?: string;
  name?: string;
  sources?: string;
  settings?: readonly string[];
};

/** The flags with which `scripts/run.js` starts the server. */
const flags = availableParallelism() <= 2 ? ["--single-threaded-gc"] : [];

/** Starts the server. Throws with its output if it does not get ready. */
export async function startWaypost(
  resources: BenchResources,
  { folder, database, name = "waypost", sources, settings = [] }: ServerLocation,
): Promise<Waypost> {
  const port = await freePort();
  const log = join(folder, `output-${port}.txt`);
  const startedAt = performance.now();
  const storage = database === undefined ? ["--data", join(folder, "data")] : ["--database-url", database];
  const ours = ["--port", String(port), ...storage, ...settings];
  const command = [process.execPath, ...flags, findMain(sources), "dev", ...ours];
  const child = resources.server(command, log, sources);
  while (!/running at\s+\S*http/.test(readFileSync(log, "utf8"))) {
    if (child.exitCode !== null || performance.now() - startedAt > startLimit) {
      throw new Error(
        `${name} did not start. The end of its output:\n${readFileSync(log, "utf8").slice(-2_000)}`,
      );
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

/** Returns the main file of a version. Older versions have another one. */
export const findMain = (sources = "."): string =>
  ["src/server/cli/main.ts", "src/cli/main.ts", "src/main.ts"].find((file) =>
    existsSync(join(sources, file)),
  ) ?? "";

/** Returns the number of messages in flight from the server's health report, or null if it has none. */
async function unsettled(port: number): Promise<number | null> {
  const headers = { authorization: `Bearer ${devToken}` };
  const { statusCode, body } = await request(`http://127.0.0.1:${port}/v2/health`, { headers });
  const text = await body.text();
  if (statusCode !== 200) return null;
  const figure = /"inFlight":\s*(\d+)/.exec(text)?.[1];
  return figure === undefined ? null : Number(figure);
}

/** Returns a TCP port that nothing listens on. */
export async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
