/** The bench's own PostgreSQL server, with durable commits, and its figures. */
import { chmodSync, readdirSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { Client } from "pg";
import { startPostgres } from "../test/postgres.ts";
import { cpuTime, readEndedCpuTime, readParent } from "./processFigures.ts";
import type { BenchResources } from "./benchResources.ts";

/** A PostgreSQL server that the bench has started. */
export type DatabaseServer = {
  /** Creates an empty database and returns its URL. */
  database(name: string): Promise<string>;
  /** CPU time of all its processes so far, in microseconds. */
  cpu(): number;
};

/**
 * The default settings, except for memory and WAL as guides to small servers advise, and for counting
 * statements.
 */
const settings = {
  shared_buffers: "256MB",
  max_wal_size: "4GB",
  shared_preload_libraries: "pg_stat_statements",
  synchronous_commit: "on",
};

const pin = "taskset";

/** Starts a PostgreSQL server in its own process. */
export async function startDatabase(
  resources: BenchResources,
  { pinned }: { pinned: boolean },
): Promise<DatabaseServer> {
  const within = resources.folder("postgres");
  // PostgreSQL runs as another user if this process is root.
  for (const folder of [within, `${within}/..`]) chmodSync(folder, 0o777);
  const server = await startPostgres({ fsync: true, within, more: settings });
  if (pinned) execFileSync(pin, ["-a", "-c", "-p", "1", String(server.pid())], { stdio: "ignore" });
  await ask(server.url, "create extension pg_stat_statements");
  return {
    database: async (name) => {
      await ask(server.url, `create database ${name}`);
      return server.url.replace(/\/postgres$/, `/${name}`);
    },
    cpu: () => {
      const living = listChildren(server.pid()).reduce(
        (sum, pid) => sum + readOrDefault(() => cpuTime(pid), 0),
        0,
      );
      return living + cpuTime(server.pid()) + readEndedCpuTime(server.pid());
    },
  };
}

/** Returns the number of statements that a database has run, including starts and ends of transactions. */
export async function statements(url: string): Promise<number> {
  const counted =
    "select coalesce(sum(calls), 0)::bigint as calls from pg_stat_statements " +
    `where dbid = (select oid from pg_database where datname = '${parseDatabaseName(url)}')`;
  const [row] = await ask(url.replace(/\/[^/]*$/, "/postgres"), counted);
  return Number(row?.["calls"] ?? 0);
}

/** The rows of a table, and its size in bytes. */
export type TableFigures = { table: string; live: number; dead: number; bytes: number };

/**
 * Returns the sizes of the tables, including indexes, the largest first. The day partitions of the log count
 * as one.
 */
export async function tableFigures(url: string): Promise<TableFigures[]> {
  const rows = await ask(
    url,
    `select regexp_replace(relname, '^log_.*', 'log') as name, sum(n_live_tup)::bigint as live,
      sum(n_dead_tup)::bigint as dead, sum(pg_total_relation_size(relid))::bigint as bytes
      from pg_stat_user_tables group by 1 order by bytes desc`,
  );
  return rows.map(({ name, live, dead, bytes }) => ({
    table: String(name),
    live: Number(live),
    dead: Number(dead),
    bytes: Number(bytes),
  }));
}

const parseDatabaseName = (url: string): string => new URL(url).pathname.slice(1);

async function ask(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(sql)).rows;
  } finally {
    await client.end();
  }
}

/** Returns a figure of a process, or the default if the process has ended, as autovacuum workers do. */
function readOrDefault(ask: () => number, otherwise: number): number {
  try {
    return ask();
  } catch {
    return otherwise;
  }
}

const listChildren = (parent: number): number[] =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => readOrDefault(() => readParent(pid), Number.NaN) === parent);
