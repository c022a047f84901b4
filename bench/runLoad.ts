/**
 * Starts workflow runs of rivals, in its own process. One request starts a run, and its response arrives when
 * the run has ended.
 */
import { Pool } from "undici";
import { serveDriver } from "./benchProcess.ts";
import { microseconds } from "./clock.ts";
import { type Spread, spread } from "./figures.ts";

/** One turn. `rate` is in runs per second. Null: `atOnce` runs are in progress. */
export type RunLoad = {
  port: number;
  path: string;
  runs: number;
  steps: number;
  atOnce: number;
  rate: number | null;
};

/** The figures of a turn, like those of a `WorkflowReport`. */
export type RunLoadReport = {
  ended: number;
  steps: number;
  firstAt: number;
  lastAt: number;
  latency: Spread;
  cpu: number;
};

/** The requests that the load handles. */
export type RunLoadAnswers = typeof answers;

const answers = {
  run: async ({ port, path, runs, steps, atOnce, rate }: RunLoad): Promise<RunLoadReport> => {
    const server = new Pool(`http://127.0.0.1:${port}`, { connections: 128, pipelining: 1 });
    const latencies = new Float64Array(runs);
    const firstAt = microseconds();
    const cpuAtStart = process.cpuUsage();
    let started = 0;
    let ended = 0;
    const runOne = async (): Promise<void> => {
      const startedAt = microseconds();
      started++;
      await startRun(server, path, steps);
      latencies[ended++] = microseconds() - startedAt;
    };
    const runMany = async (): Promise<void> => {
      while (started < runs) await runOne();
    };
    try {
      await (rate === null
        ? Promise.all(Array.from({ length: Math.min(runs, atOnce) }, runMany))
        : Promise.all(Array.from({ length: runs }, (_, run) => delay((run * 1e3) / rate).then(runOne))));
      const lastAt = microseconds();
      const { user, system } = process.cpuUsage(cpuAtStart);
      const cpu = (user + system) / (lastAt - firstAt);
      return { ended, steps: ended * steps, firstAt, lastAt, latency: spread(latencies, ended), cpu };
    } finally {
      await server.close();
    }
  },
};

const delay = (time: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, time));

async function startRun(server: Pool, path: string, steps: number): Promise<void> {
  const headers = { "content-type": "application/json" };
  const response = await server.request({ method: "POST", path, headers, body: JSON.stringify({ steps }) });
  const text = await response.body.text();
  if (response.statusCode >= 300)
    throw new Error(`The server responded with ${response.statusCode} to a run: ${text.slice(0, 300)}`);
}

serveDriver(answers);
