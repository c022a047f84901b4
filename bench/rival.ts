/**
 * Other job queues in PostgreSQL, in their own process. A publish over HTTP becomes a job, which is in the
 * database when the answer is sent. The job sends one signed request to the destination. They are set up as
 * their guides advise for many small jobs.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { Client } from "pg";
import { PgBoss } from "pg-boss";
import { Agent, request as send } from "undici";
import { serveDriver } from "./benchProcess.ts";
import { pause } from "./server.ts";
import { makeHeaders, newId } from "./signing.ts";

/** The requests that the rival handles. */
export type RivalAnswers = typeof answers;
/** The name of a job queue. */
export type RivalName = keyof typeof rivals;

type Job = { id: string; url: string; contentType: string; body: string };
type Deliver = (job: Job) => Promise<void>;
type Plan = { database: string; connections: number; deliver: Deliver };

const prefix = "/v2/publish/";
/** Connections to the database. More do not make it faster. */
const pool = 20;

/** How a job is stored, and the SQL statement that counts unfinished jobs. */
type Rival = { store: Deliver; unsettled: string };

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
      unsettled:
        "select count(*)::integer as jobs from pgboss.job where name = 'deliveries' and state < 'completed'",
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
      unsettled: "select count(*)::integer as jobs from graphile_worker._private_jobs",
    };
  },
};

/** Milliseconds between two counts, because each scans a table that is in use. */
const restBetween = 20;
let count: () => Promise<number> = () => Promise.reject(new Error("the rival has not started"));

const answers = {
  unsettled: async (): Promise<number> => {
    await pause(restBetween);
    return count();
  },
  listen: async ({
    name,
    database,
    connections,
  }: {
    name: RivalName;
    database: string;
    connections: number;
  }): Promise<{ port: number }> => {
    const agent = new Agent({ connections, pipelining: 1 });
    const deliver = async ({ id, url, contentType, body }: Job): Promise<void> => {
      const bytes = Buffer.from(body);
      const headers = makeHeaders({ id, url, contentType, body: bytes });
      const answered = await send(url, { method: "POST", headers, body: bytes, dispatcher: agent });
      await answered.body.dump();
    };
    const rival = await rivals[name]({ database, connections, deliver });
    const counter = new Client({ connectionString: database });
    await counter.connect();
    count = async () => (await counter.query<{ jobs: number }>(rival.unsettled)).rows[0]?.jobs ?? Number.NaN;
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
