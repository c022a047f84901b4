/**
 * Other job queues in PostgreSQL or Redis, in their own process. A publish over HTTP becomes a job, which is
 * in the database when the answer is sent. The job sends one signed request to the destination. They are set
 * up as their guides advise for many small jobs.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { Client } from "pg";
import { PgBoss } from "pg-boss";
import { Agent, request as send } from "undici";
import { serveDriver } from "./benchProcess.ts";
import { loadPackage } from "./rivalPackages.ts";
import { pause } from "./server.ts";
import { makeHeaders, newId } from "./signing.ts";

/** The requests that the rival handles. */
export type RivalAnswers = typeof answers;
/** The name of a job queue. */
export type RivalName = keyof typeof rivals;

type Job = { id: string; url: string; contentType: string; body: string };
type Deliver = (job: Job) => Promise<void>;
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
/** Connections to the database. More do not make it faster. */
const pool = 20;

/** How a job is stored, and how unfinished jobs are counted. */
type Rival = { store: Deliver; unsettled: () => Promise<number> };

/** Each function starts a rival. */
const rivals = {
  "pg-boss": async ({ database, deliver }: Plan): Promise<Rival> => {
    const boss = new PgBoss({ connectionString: database, max: pool });
    boss.on("error", (error) => console.error(error));
    await boss.start();
    await boss.createQueue("deliveries");
    // A worker fetches the next batch 500 ms after the last one, so batches are large.
    for (let worker = 0; worker < 4; worker += 1) {
      await boss.work<Job>("deliveries", { batchSize: 1_000, pollingIntervalSeconds: 0.5 }, async (jobs) => {
        await Promise.all(jobs.map(({ data }) => deliver(data)));
      });
    }
    return {
      store: async (job) => void (await boss.send("deliveries", job)),
      unsettled: await openCounter(
        database,
        "select count(*)::integer as jobs from pgboss.job where name = 'deliveries' and state < 'completed'",
      ),
    };
  },
  "graphile-worker": async ({ database, connections, deliver }: Plan): Promise<Rival> => {
    const logger = new Logger(() => () => undefined);
    const utils = await makeWorkerUtils({ connectionString: database, maxPoolSize: pool, logger });
    await utils.migrate();
    const preset = { worker: { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } };
    const taskList = { deliver: (payload: unknown) => deliver(payload as Job) };
    await run({
      connectionString: database,
      maxPoolSize: pool,
      concurrency: connections,
      taskList,
      preset,
      logger,
      noHandleSignals: true,
    });
    return {
      store: async (job) => void (await utils.addJob("deliver", job)),
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
    const { connections } = place;
    const agent = new Agent({ connections, pipelining: 1 });
    const deliver = async ({ id, url, contentType, body }: Job): Promise<void> => {
      const bytes = Buffer.from(body);
      const headers = makeHeaders({ id, url, contentType, body: bytes });
      const answered = await send(url, { method: "POST", headers, body: bytes, dispatcher: agent });
      await answered.body.dump();
    };
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
