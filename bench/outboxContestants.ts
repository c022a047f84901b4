/** Waypost with an outbox, and the job queues that it is compared with, each on its own database. */
import { Client } from "pg";
import { PgBoss } from "pg-boss";
import { formatSchemaSql } from "../src/operations/outbox/schemaSql.ts";
import { type BenchResources, end } from "./benchResources.ts";
import type { DatabaseServer } from "./database.ts";
import { cpuTime } from "./processFigures.ts";
import type { ConsumerAnswers, ConsumerName } from "./rivalConsumer.ts";
import { bossQueue, graphileTask, type Job } from "./rivalWorkers.ts";
import { ask } from "./server.ts";
import { newId } from "./signing.ts";
import { startWaypost } from "./waypost.ts";

/** A product that stores a job in a transaction of the application, and does the work of the job later. */
export type OutboxContestant = {
  name: string;
  /** The URL of the database of the application. */
  database: string;
  /** Stores a job within the transaction of this connection. `isDelayed`: it is due in an hour. */
  enqueue(sql: Client, body: string, isDelayed?: boolean): Promise<void>;
  /** Begins to take jobs. */
  start(): Promise<void>;
  /** Takes no more jobs. */
  stop(): Promise<void>;
  /** Ends its process. */
  end(): Promise<void>;
  /** CPU time of its process so far, in microseconds. */
  cpu(): number;
};

/** `sink` is the URL that each job sends its request to. */
export type OutboxPlace = {
  resources: BenchResources;
  server: DatabaseServer;
  sink: string;
  connections: number;
};

/** Opens a connection. */
export async function connectTo(url: string): Promise<Client> {
  const sql = new Client({ connectionString: url });
  await sql.connect();
  return sql;
}

/** Creates the database of an application, which has orders. */
async function createShop(server: DatabaseServer, name: string): Promise<string> {
  const url = await server.database(name);
  const sql = await connectTo(url);
  await sql.query("create table orders (id bigint generated always as identity primary key, number integer)");
  await sql.end();
  return url;
}

/** Starts Waypost with its own store in SQLite. */
export async function startOutbox({ resources, server, sink }: OutboxPlace): Promise<OutboxContestant> {
  const database = await createShop(server, "waypost_shop");
  const sql = await connectTo(database);
  await sql.query(formatSchemaSql({ schema: "waypost" }));
  await sql.end();
  const waypost = await startWaypost(resources, { folder: resources.folder("waypost") });
  const url = new URL(database);
  url.password = "any";
  url.searchParams.set("sslmode", "disable");
  const path = "/v2/outboxes/shop";
  const headers = '{"Content-Type": "application/json"}';
  return {
    name: "waypost",
    database,
    enqueue: async (client, body, isDelayed = false) => {
      const settings = isDelayed ? '{"Svc-Delay": "1h"}' : "{}";
      await client.query("select waypost.publish($1, $2::text, $3, $4)", [sink, body, settings, headers]);
    },
    start: async () => {
      const json = { databaseUrl: url.href, token: waypost.token };
      await ask(waypost, { method: "PUT", path, json });
    },
    stop: async () => void (await ask(waypost, { method: "DELETE", path })),
    end: () => waypost.stop(),
    cpu: () => cpuTime(waypost.pid),
  };
}

/** Starts a job queue in the database of the application. */
export async function startConsumer(
  { resources, server, sink, connections }: OutboxPlace,
  name: ConsumerName,
): Promise<OutboxContestant> {
  const database = await createShop(server, `${name.replace("-", "_")}_shop`);
  const part = resources.part<ConsumerAnswers>("rivalConsumer", "server");
  await part.ask("open", { name, database, connections }, 60_000);
  const makeJob = (body: string): Job => ({ id: newId(), url: sink, contentType: "application/json", body });
  return {
    name,
    database,
    enqueue: await openEnqueue[name](database, makeJob),
    start: () => part.ask("start", undefined, 60_000),
    stop: () => part.ask("stop", undefined, 60_000),
    end: () => end(part.process, "SIGTERM"),
    cpu: () => cpuTime(part.process.pid ?? Number.NaN),
  };
}

type MakeJob = (body: string) => Job;
type Enqueue = OutboxContestant["enqueue"];

const openEnqueue: Record<ConsumerName, (database: string, makeJob: MakeJob) => Promise<Enqueue>> = {
  "pg-boss": async (database, makeJob) => {
    const boss = new PgBoss({
      ...{ connectionString: database, max: 2, supervise: false, schedule: false, migrate: false },
    });
    boss.on("error", (error) => console.error(error));
    await boss.start();
    return async (client, body) => {
      const executeSql = (text: string, values?: unknown[]) => client.query(text, values);
      await boss.send(bossQueue, makeJob(body), { db: { executeSql } });
    };
  },
  "graphile-worker": async (_, makeJob) => async (client, body) => {
    const job = JSON.stringify(makeJob(body));
    await client.query(`select graphile_worker.add_job('${graphileTask}', $1::json)`, [job]);
  },
};
