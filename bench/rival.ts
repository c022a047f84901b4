/**
 * Other job queues in PostgreSQL or Redis, in their own process. A publish over HTTP becomes a job, which is
 * in the database when the answer is sent. The job sends one signed request to the destination. They are set
 * up as their guides advise for many small jobs.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { makeWorkerUtils } from "graphile-worker";
import { Client } from "pg";
import { serveDriver } from "./benchProcess.ts";
import { loadPackage } from "./rivalPackages.ts";
import { pause } from "./server.ts";
import {
  bossQueue,
  createDeliver,
  type Deliver,
  graphileTask,
  type Job,
  rivalPool,
  runGraphile,
  silentLogger,
  startBoss,
  workOnBoss,
} from "./rivalWorkers.ts";
import { newId } from "./signing.ts";

/** The requests that the rival handles. */
export type RivalAnswers = typeof answers;
/** The name of a job queue. */
export type RivalName = keyof typeof rivals;

/** `database` is its URL. `packages` is the folder of packages that are not dependencies, or empty. */
type Place = { database: string; connections: number; packages: string };
type Plan = Place & { deliver: Deliver };

/** The part of `bullmq` that this file uses. */
type BullMq = {
  Queue: new (
    name: string,
    options: object,
  ) => {
    add(name: string, job: Job): Promise<unknown>;
    getJobCountByTypes(...states: string[]): Promise<number>;
  };
  Worker: new (name: string, work: (job: { data: Job }) => Promise<void>, options: object) => object;
};

const prefix = "/v2/publish/";
/** How a job is stored, and how unfinished jobs are counted. */
type Rival = { store: Deliver; unsettled: () => Promise<number> };

/** Each function starts a rival. */
const rivals = {
  "pg-boss": async ({ database, deliver }: Plan): Promise<Rival> => {
    const boss = await startBoss(database);
    await workOnBoss(boss, deliver);
    return {
      store: async (job) => void (await boss.send(bossQueue, job)),
      unsettled: await openCounter(
        database,
        `select count(*)::integer as jobs from pgboss.job
          where name = '${bossQueue}' and state < 'completed'`,
      ),
    };
  },
  "graphile-worker": async ({ database, connections, deliver }: Plan): Promise<Rival> => {
    const utils = await makeWorkerUtils({
      connectionString: database,
      maxPoolSize: rivalPool,
      logger: silentLogger,
    });
    await utils.migrate();
    await runGraphile(database, { connections, deliver });
    return {
      store: async (job) => void (await utils.addJob(graphileTask, job)),
      unsettled: await openCounter(
        database,
        "select count(*)::integer as jobs from graphile_worker._private_jobs",
      ),
    };
  },
  bullmq: async ({ database, connections, packages, deliver }: Plan): Promise<Rival> => {
    const { Queue, Worker } = loadPackage(packages, "bullmq") as BullMq;
    const connection = { host: "127.0.0.1", port: Number(new URL(database).port) };
    const settings = { attempts: 4, backoff: { type: "exponential", delay: 1_000 }, removeOnComplete: true };
    const queue = new Queue("deliveries", { connection, defaultJobOptions: settings });
    const work = async ({ data }: { data: Job }): Promise<void> => deliver(data);
    const worker = { connection: { ...connection, maxRetriesPerRequest: null }, concurrency: connections };
    void new Worker("deliveries", work, worker);
    return {
      store: async (job) => void (await queue.add("deliver", job)),
      unsettled: () => queue.getJobCountByTypes("waiting", "active", "delayed"),
    };
  },
};

/** Opens a connection that counts unfinished jobs with an SQL statement. */
async function openCounter(database: string, statement: string): Promise<() => Promise<number>> {
  const counter = new Client({ connectionString: database });
  await counter.connect();
  return async () => (await counter.query<{ jobs: number }>(statement)).rows[0]?.jobs ?? Number.NaN;
}

/** Milliseconds between two counts, because each scans a table that is in use. */
const restBetween = 20;
let count: () => Promise<number> = () => Promise.reject(new Error("the rival has not started"));

const answers = {
  unsettled: async (): Promise<number> => {
    await pause(restBetween);
    return count();
  },
  listen: async ({ name, ...place }: Place & { name: RivalName }): Promise<{ port: number }> => {
    const deliver = createDeliver(place.connections);
    const rival = await rivals[name]({ ...place, deliver });
    count = rival.unsettled;
    const server = createServer((request, response) => take(rival.store, request, response));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", 4096, resolve));
    return { port: (server.address() as AddressInfo).port };
  },
};

function take(store: Deliver, request: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const job: Job = {
      id: newId(),
      url: (request.url ?? "").slice(prefix.length),
      contentType: request.headers["content-type"] ?? "",
      body: Buffer.concat(chunks).toString(),
    };
    const answer = (status: number, text: string): void => {
      response.writeHead(status, {
        "Content-Type": "application/json",
        "Content-Length": Buffer.byteLength(text),
      });
      response.end(text);
    };
    store(job).then(
      () => answer(201, `{"messageId":"${job.id}"}`),
      (error: unknown) => answer(500, String(error)),
    );
  });
}

serveDriver(answers);
