/**
 * Does anything grow over time? The bench loads a server for a long time, with the shortest retention, and
 * samples its memory, its descriptors and its files. It compares the idle work before and after.
 */
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { type BenchSetup, openBenchSetup, runTurn } from "./benchSetup.ts";
import { formatTable } from "./figures.ts";
import { formatActivity, activityHeads, watchIdle, type ThreadActivity } from "./idleActivity.ts";
import { memory } from "./processFigures.ts";
import { question } from "./question.ts";
import { ask, type Server } from "./server.ts";
import { startWaypost } from "./waypost.ts";

/** The memory, descriptors and files of a server after a minute of load. Sizes are in bytes. */
type Sample = { minute: number; resident: number; descriptors: number; files: number; log: number };
/** The idle work of a server: that of its threads, and its commits per hour. */
type IdleWork = { threads: ThreadActivity[]; commitsPerHour: number };

/** The benchmark of a server that runs for long. */
export const soak = question({
  asks: "memory, descriptors, files and idle work over time, with everything expired after a minute",
  options: {
    minutes: { default: 120, help: "minutes of load" },
    rate: { default: 50, help: "messages per second" },
    failing: { default: 60, help: "messages per minute that become dead letters" },
    idle: { default: 60, help: "seconds that the idle server is watched, before and after" },
    settle: { default: 180, help: "seconds until then, in which everything expires and is removed" },
  },
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const folder = resources.folder("waypost");
    const settings = ["--log-retention", "1m", "--dlq-retention", "1m", "--audit-retention", "1m"];
    const server = await startWaypost(resources, { folder, settings });
    const before = await measureIdle(server, given.idle);
    const samples: Sample[] = [];
    const startedAt = performance.now();
    for (let minute = 1; minute <= given.minutes; minute++) {
      await loadForMinute(setup, server, given);
      samples.push({ minute, ...readSample(server.pid, join(folder, "data")) });
      console.error(`minute ${minute}: ${JSON.stringify(samples.at(-1))}`);
    }
    const seconds = (performance.now() - startedAt) / 1e3;
    const after = await measureIdle(server, given.idle, given.settle);
    const last = readSample(server.pid, join(folder, "data"));
    const figures = { seconds, samples, idle: { before, after }, last };
    return { figures, text: report(figures) };
  },
});

type Load = { rate: number; failing: number; connections: number };

/** Seconds of one turn of the load. */
const turn = 15;

async function loadForMinute(setup: BenchSetup, server: Server, load: Load): Promise<void> {
  const { rate, failing, connections } = load;
  const endsAt = performance.now() + 60_000;
  for (let sent = 0; sent < failing; sent++)
    // Nothing listens on port 1.
    await ask(server, { method: "POST", path: "/v2/publish/http://127.0.0.1:1/?svc-retries=0" });
  // The server closes a connection that has sent nothing for 30 seconds after it was opened.
  while (performance.now() < endsAt)
    await runTurn(setup, server, { connections, messages: rate * turn, seconds: null, rate });
}

function readSample(pid: number, data: string): Omit<Sample, "minute"> {
  const sizes = readdirSync(data).map((name) => ({ name, size: statSync(join(data, name)).size }));
  const sum = (isCounted: (name: string) => boolean): number =>
    sizes.filter(({ name }) => isCounted(name)).reduce((total, { size }) => total + size, 0);
  return {
    resident: memory(pid).resident,
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
    files: sum((name) => name.endsWith(".db")),
    log: sum((name) => name.endsWith("-wal")),
  };
}

async function measureIdle(server: Server, seconds: number, wait = 10): Promise<IdleWork> {
  await new Promise((resolve) => setTimeout(resolve, wait * 1e3));
  const commits = await readCommits(server);
  const [threads = []] = await watchIdle([server], { settle: 0, seconds });
  const made = (await readCommits(server)) - commits;
  return { threads, commitsPerHour: Math.round((made * 3_600) / seconds) };
}

/** Returns the number of commits so far. */
async function readCommits(server: Server): Promise<number> {
  const text = await ask(server, { path: "/metrics" });
  return Number(/^waypost_store_commits_total (\d+)/m.exec(text)?.[1] ?? Number.NaN);
}

type Figures = {
  samples: readonly Sample[];
  last: Omit<Sample, "minute">;
  idle: { before: IdleWork; after: IdleWork };
};

function report({ samples, last, idle: { before, after } }: Figures): string {
  const mebibytes = (bytes: number): string => (bytes / 1024 ** 2).toFixed(1);
  const row = (name: string, { resident, descriptors, files, log }: Omit<Sample, "minute">): string[] => [
    ...[name, mebibytes(resident), String(descriptors), mebibytes(files), mebibytes(log)],
  ];
  // Ten rows show the course.
  const step = Math.max(1, Math.floor(samples.length / 10));
  const shown = samples.filter(({ minute }) => minute % step === 0 || minute === 1);
  const activity = (name: string, { threads, commitsPerHour }: IdleWork): string[] => {
    const cpu = threads.reduce((sum, thread) => sum + thread.cpuPerSecond, 0);
    const seconds = ((cpu * 3_600) / 1e6).toFixed(1);
    return [name, String(commitsPerHour), seconds, ...formatActivity(threads)];
  };
  return [
    formatTable([
      ["minute", "memory MiB", "descriptors", "database MiB", "log MiB"],
      ...shown.map((sample) => row(String(sample.minute), sample)),
      row("idle after", last),
    ]),
    formatTable([
      ["idle", "commits/h", "CPU s/h", ...activityHeads],
      activity("before", before),
      activity("after", after),
    ]),
  ].join("\n\n");
}
