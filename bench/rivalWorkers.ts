/** How pg-boss and graphile-worker work on jobs: as their guides advise for many small jobs. */
import type { Runner } from "graphile-worker";
import { Logger, run } from "graphile-worker";
import { PgBoss } from "pg-boss";
import { Agent, request } from "undici";
import { makeHeaders } from "./signing.ts";

/** A job: one signed request to a destination. */
export type Job = { id: string; url: string; contentType: string; body: string };
/** Does the work of a job. */
export type Deliver = (job: Job) => Promise<void>;

/** The name of the queue in pg-boss, and of the task in graphile-worker. */
export const bossQueue = "deliveries";
export const graphileTask = "deliver";

/** Connections to the database. More do not make them faster. */
export const rivalPool = 20;

/** A logger that is silent. */
export const silentLogger = new Logger(() => () => undefined);

/** Returns a function that sends the request of a job. */
export function createDeliver(connections: number): Deliver {
  const agent = new Agent({ connections, pipelining: 1 });
  return async ({ id, url, contentType, body }) => {
    const bytes = Buffer.from(body);
    const headers = makeHeaders({ id, url, contentType, body: bytes });
    const answered = await request(url, { method: "POST", headers, body: bytes, dispatcher: agent });
    await answered.body.dump();
  };
}

/** Starts pg-boss, with its queue and without workers. */
export async function startBoss(database: string): Promise<PgBoss> {
  const boss = new PgBoss({ connectionString: database, max: rivalPool });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  await boss.createQueue(bossQueue);
  return boss;
}

/** Starts the workers of pg-boss. */
export async function workOnBoss(boss: PgBoss, deliver: Deliver): Promise<void> {
  // A worker fetches the next batch 500 ms after the last one, so batches are large.
  for (let worker = 0; worker < 4; worker += 1)
    await boss.work<Job>(bossQueue, { batchSize: 1_000, pollingIntervalSeconds: 0.5 }, async (jobs) => {
      await Promise.all(jobs.map(({ data }) => deliver(data)));
    });
}

/** Starts graphile-worker. */
export const runGraphile = (
  database: string,
  { connections, deliver }: { connections: number; deliver: Deliver },
): Promise<Runner> =>
  run({
    connectionString: database,
    maxPoolSize: rivalPool,
    concurrency: connections,
    taskList: { [graphileTask]: (payload: unknown) => deliver(payload as Job) },
    preset: { worker: { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } },
    logger: silentLogger,
    noHandleSignals: true,
  });
