/** How fast is each list of an account with a million unfinished messages and ten million log rows? */
import { Client } from "pg";
import { request } from "undici";
import { createConnection } from "../src/engine/store/postgres/connection.ts";
import { createPartitions } from "../src/engine/store/postgres/partitions.ts";
import { openSqlite } from "../src/engine/store/sqlite/database.ts";
import { hour } from "../src/engine/core/values/time.ts";
import type { BenchResources } from "./benchResources.ts";
import { startDatabase } from "./database.ts";
import { formatTable, mebibytes } from "./figures.ts";
import { type ListRead, listReads } from "./listReads.ts";
import { type RowCounts, writeRows } from "./listRows.ts";
import { memory, startCpuClock } from "./processFigures.ts";
import { question } from "./question.ts";
import { devToken, startWaypost, type Waypost } from "./waypost.ts";

const options = {
  messages: { default: 1_000_000, help: "unfinished messages" },
  "dead-letters": { default: 1_000_000, help: "dead letters" },
  "log-rows": { default: 10_000_000, help: "rows of the log" },
  runs: { default: 100_000, help: "runs: three in four have failed, one in four waits" },
  rounds: { default: 10, help: "requests of each read, after one to warm up" },
  stores: { default: "sqlite,postgres", help: "stores to measure" },
  only: { default: "", help: "measures only reads that contain this text" },
  above: { default: 20, help: "reads whose slowest request is above this many milliseconds have a row" },
} as const;

/** The times of the requests of one read, in milliseconds, the size of the response, and its status. */
type ReadFigures = { read: string; status: number; bytes: number; wall: number[]; cpu: number[] };

type StoreFigures = { store: string; seconds: number; reads: ReadFigures[]; peak: number };

type Target = { store: string; server: Waypost; cpu(): () => number };

/** The benchmark of lists. */
export const lists = question({
  asks: "time of each list with a million messages and ten million log rows, on SQLite and PostgreSQL",
  options,
  async find(given, resources) {
    const counts: RowCounts = {
      messages: given.messages,
      deadLetters: given["dead-letters"],
      logRows: given["log-rows"],
      runs: given.runs,
    };
    const found: StoreFigures[] = [];
    for (const store of given.stores.split(",")) {
      const startedAt = performance.now();
      const open = store === "postgres" ? openOnPostgres : openOnSqlite;
      const target = await open(resources, counts);
      const seconds = (performance.now() - startedAt) / 1_000;
      await addResources(target.server);
      const reads: ReadFigures[] = [];
      for (const read of listReads(Date.now()).filter(({ path }) => path.includes(given.only)))
        reads.push(await measure(target, read, given.rounds));
      found.push({ store, seconds, reads, peak: memory(target.server.pid).peak });
      await target.server.stop();
    }
    return { figures: found, text: report(found, given.above) };
  },
});

/** Writes the rows to the file of a server that has created its tables, and starts the server again. */
export async function openOnSqlite(resources: BenchResources, counts: RowCounts): Promise<Target> {
  const folder = resources.folder("sqlite");
  await (await startWaypost(resources, { folder })).stop();
  const database = openSqlite(`${folder}/data/waypost.db`);
  await database.connection.query("pragma synchronous = off", []);
  await writeRows(database.connection, counts, (text) => console.error(`sqlite: ${text}`));
  await database.connection.query("pragma wal_checkpoint(truncate)", []);
  database.close();
  const server = await startWaypost(resources, { folder, settings: ["--hold"] });
  return { store: "sqlite", server, cpu: () => startCpuClock(server.pid) };
}

async function openOnPostgres(resources: BenchResources, counts: RowCounts): Promise<Target> {
  const databases = await startDatabase(resources, { pinned: false });
  const database = await databases.database("lists");
  const folder = resources.folder("postgres-server");
  await (await startWaypost(resources, { folder, database })).stop();
  const client = new Client({ connectionString: database });
  await client.connect();
  const now = Date.now();
  await createPartitions(client, [now - 2 * hour, now, now + 2 * hour]);
  await client.query("set synchronous_commit = off");
  const connection = createConnection((query) => client.query(query));
  await writeRows(connection, counts, (text) => console.error(`postgres: ${text}`));
  await client.query("analyze");
  await client.end();
  const server = await startWaypost(resources, { folder, database, settings: ["--hold"] });
  const cpu = (): (() => number) => {
    const ofServer = startCpuClock(server.pid);
    const before = databases.cpu();
    return () => ofServer() + databases.cpu() - before;
  };
  return { store: "postgres", server, cpu };
}

/** Adds what is not stored as rows: sources, schedules, URL groups, queues and jobs. */
async function addResources(server: Waypost): Promise<void> {
  const post = async (path: string, body: unknown, headers: Record<string, string> = {}): Promise<void> => {
    const { statusCode, text } = await send(server, { path, change: { method: "POST", body } }, headers);
    if (statusCode >= 300) throw new Error(`${path}: ${statusCode} ${text.slice(0, 200)}`);
  };
  for (let n = 0; n < 100; n++) {
    const url = `https://shop${n}.example/hook`;
    await post("/v2/sources", { name: `source-${n}`, destination: url });
    await post(`/v2/schedules/${url}`, {}, { "Svc-Cron": "0 0 1 1 *" });
    await post(`/v2/topics/group-${n}/endpoints`, { endpoints: [{ url }] });
    await post("/v2/jobs", { action: "dlq.delete", filter: { label: `none-${n}` } });
  }
  await post("/v2/queues", { queueName: "busy", parallelism: 100 });
}

async function measure(target: Target, read: ListRead, rounds: number): Promise<ReadFigures> {
  const wall: number[] = [];
  const cpu: number[] = [];
  const name = `${read.change?.method ?? "GET"} ${read.path}`;
  const { statusCode, text } = await send(target.server, read);
  for (let round = 0; round < rounds; round++) {
    const clock = target.cpu();
    const startedAt = performance.now();
    await send(target.server, read);
    wall.push(performance.now() - startedAt);
    cpu.push(clock() / 1_000);
  }
  const figures = { read: name, status: statusCode, bytes: text.length, wall, cpu };
  console.error(`${target.store}  ${formatRow(figures).join("  ")}`);
  return figures;
}

async function send({ port }: Waypost, { path, change }: ListRead, more: Record<string, string> = {}) {
  const { statusCode, body } = await request(`http://127.0.0.1:${port}${path}`, {
    method: (change?.method ?? "GET") as "GET",
    headers: { authorization: `Bearer ${devToken}`, "content-type": "application/json", ...more },
    body: change?.body === undefined ? null : JSON.stringify(change.body),
    headersTimeout: 600_000,
  });
  return { statusCode, text: await body.text() };
}

const formatRow = ({ read, status, bytes, wall, cpu }: ReadFigures): string[] => [
  read,
  String(status),
  `${(bytes / 1_024).toFixed(0)} kB`,
  quantile(wall, 0.5).toFixed(1),
  quantile(wall, 0.99).toFixed(1),
  (cpu.reduce((sum, one) => sum + one, 0) / cpu.length).toFixed(1),
];

/** Returns the smallest value that this part of all values does not exceed. */
const quantile = (values: readonly number[], part: number): number =>
  values.toSorted((a, b) => a - b)[Math.max(0, Math.ceil(values.length * part) - 1)] ?? 0;

const isList = ({ read }: ReadFigures): boolean => read.startsWith("GET ");

/** Returns the times of all requests of these reads together. */
function describeAll(what: string, reads: readonly ReadFigures[]): string {
  const all = reads.flatMap(({ wall }) => wall);
  return (
    `${reads.length} ${what}, all requests together: p50 ${quantile(all, 0.5).toFixed(1)} ms, ` +
    `p99 ${quantile(all, 0.99).toFixed(1)} ms, slowest ${Math.max(0, ...all).toFixed(1)} ms`
  );
}

function report(found: readonly StoreFigures[], above: number): string {
  const head = ["", "status", "size", "p50 ms", "p99 ms", "CPU ms"];
  return found
    .map(({ store, seconds, reads, peak }) => {
      const slow = reads.filter(({ wall }) => quantile(wall, 0.99) > above);
      return [
        `${store}: ${describeAll("lists", reads.filter(isList))}`,
        `${store}: ${describeAll(
          "bulk actions",
          reads.filter((read) => !isList(read)),
        )}`,
        `filled in ${seconds.toFixed(0)} s; peak memory of the server ${mebibytes(peak)}`,
        slow.length === 0 ? "" : formatTable([head, ...slow.map(formatRow)]),
      ].join("\n");
    })
    .join("\n\n");
}
