/**
 * Others that keep jobs in PostgreSQL, a process of its own: a publish over HTTP becomes a job, which is in the database when the answer
 * goes out, and the job one signed request to the destination. Set up as their guides advise for many small jobs.
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

export type RivalAnswers = typeof answers;
export type RivalName = keyof typeof rivals;

type Job = { id: string; url: string; contentType: string; body: string };
type Deliver = (job: Job) => Promise<void>;
type Plan = { database: string; connections: number; deliver: Deliver };

const prefix = "/v2/publish/";
/** Connections to the database: enough that more bring nothing. */
const pool = 20;

/** How a job is stored, and the statement that counts those that are not done, to the database. */
type Rival = { store: Deliver; unsettled: string };

/** Each begins to work. */
const rivals = {
  "pg-boss": async ({ database, deliver }: Plan): Promise<Rival> => {
    const boss = new PgBoss({ connectionString: database, max: pool });
    boss.on("error", (error) => console.error(error));
    await boss.start();
    await boss.createQueue("deliveries");
    // A worker fetches the next batch half a second after the last one, so batches are large.
    for (let worker = 0; worker < 4; worker += 1) {
      await boss.work<Job>("deliveries", { batchSize: 1_000, pollingIntervalSeconds: 0.5 }, async (jobs) => {
        await Promise.all(jobs.map(({ data }) => deliver(data)));
      });
    }
    return {
      store: async (job) => void (await boss.send("deliveries", job)),
      unsettled: "select count(*)::integer as jobs from pgboss.job where name = 'deliveries' and state < 'completed'",
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

/** So long between two counts: each goes through a table that is being worked on. */
const restBetween = 20;
let count: () => Promise<number> = () => Promise.reject(new Error("nothing listens yet"));

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
      response.writeHead(status, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(text) });
      response.end(text);
    };
    store(job).then(
      () => answer(201, `{"messageId":"${job.id}"}`),
      (error: unknown) => answer(500, String(error)),
    );
  });
}

serveDriver(answers);
