/** Other job queues behind an HTTP server, as processes of the bench. */
import { spawnSync } from "node:child_process";
import { connect } from "node:net";
import { join } from "node:path";
import { end, type BenchResources } from "./benchResources.ts";
import { cpuTime, readEndedCpuTime } from "./processFigures.ts";
import type { RivalAnswers, RivalName } from "./rival.ts";
import { installRival } from "./rivalPackages.ts";
import { pause, type Server } from "./server.ts";
import { freePort } from "./waypost.ts";

/** Starts a job queue on a database. `packages` is where `installRival` put its packages. */
export async function startRival(
  resources: BenchResources,
  of: { name: RivalName; database: string; connections: number; packages?: string },
): Promise<Server> {
  const part = resources.part<RivalAnswers>("rival", "server");
  const { port } = await part.ask("listen", { ...of, packages: of.packages ?? "" }, 60_000);
  return {
    name: of.name,
    pid: part.process.pid ?? Number.NaN,
    port,
    token: "none",
    unsettled: () => part.ask("unsettled", undefined),
    stop: () => end(part.process, "SIGTERM"),
  };
}

/** BullMQ by when Redis syncs its log: each second, or before each response. */
export const bullMqNames = ["bullmq-everysec", "bullmq-always"] as const;

const startLimit = 20_000;

/** Starts BullMQ with its own Redis. Throws if there is no Redis, or if BullMQ cannot be installed. */
export async function startBullMq(
  resources: BenchResources,
  { name, connections }: { name: (typeof bullMqNames)[number]; connections: number },
): Promise<Server> {
  if (spawnSync("redis-server", ["--version"]).status !== 0)
    throw new Error(
      "redis-server is not on the PATH. Install it, on Debian with apt-get install redis-server",
    );
  const packages = await installRival("bullmq");
  const redis = await startRedis(resources, { name, sync: name.replace("bullmq-", "") });
  const database = `redis://127.0.0.1:${redis.port}`;
  const server = await startRival(resources, { name: "bullmq", database, connections, packages });
  return {
    ...server,
    name,
    databaseCpu: () => cpuTime(redis.pid) + readEndedCpuTime(redis.pid),
    stop: async () => {
      await server.stop();
      await redis.stop();
    },
  };
}

/** Starts Redis with a log of all changes, in a fresh folder. */
async function startRedis(
  resources: BenchResources,
  { name, sync }: { name: string; sync: string },
): Promise<{ port: number; pid: number; stop: () => Promise<void> }> {
  const folder = resources.folder(name);
  const port = await freePort();
  const settings = {
    bind: "127.0.0.1",
    port: String(port),
    dir: folder,
    save: "",
    appendonly: "yes",
    appendfsync: sync,
    "maxmemory-policy": "noeviction",
  };
  const flags = Object.entries(settings).flatMap(([key, value]) => [`--${key}`, value]);
  const child = resources.server(["redis-server", ...flags], join(folder, "output.txt"));
  const deadline = performance.now() + startLimit;
  while (!(await isListening(port))) {
    if (child.exitCode !== null || performance.now() > deadline)
      throw new Error(`redis-server did not start on port ${port}.`);
    await pause(20);
  }
  return { port, pid: child.pid ?? Number.NaN, stop: () => end(child, "SIGTERM") };
}

/** Reports whether something accepts connections on a port. */
function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port });
    const settle = (result: boolean): void => {
      socket.destroy();
      resolve(result);
    };
    socket.once("connect", () => settle(true)).once("error", () => settle(false));
  });
}
