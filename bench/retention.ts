// What does it cost to remove an expired log of 300,000 entries?
//
// node scripts/run.js bench/retention.ts sqlite
// node scripts/run.js bench/retention.ts postgres
//
// Of 100 messages, 94 are delivered at once, 5 after a retry, and one fails for good after a retry and stays
// as a dead letter. The bench fills the tables directly and removes rows with the server's own command, 500
// at a time, until none is left. CPU time is that of this process and, on PostgreSQL, of the database server.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import type { Rows, TableName } from "../src/engine/core/decision/command.ts";
import { createIdGenerator } from "../src/engine/core/values/ids.ts";
import { makeTagIds } from "../src/engine/core/search/tags.ts";
import type { Account } from "../src/engine/core/model/account.ts";
import type { StoredMessage } from "../src/engine/core/model/message.ts";
import type { LogState } from "../src/engine/core/model/logRow.ts";
import { noBytes } from "../src/engine/core/values/basics.ts";
import type { DatabaseConnection } from "../src/engine/store/sql/database.ts";
import { createConnection } from "../src/engine/store/postgres/connection.ts";
import { postgresStore } from "../src/engine/store/postgres/database.ts";
import { openSqlite } from "../src/engine/store/sqlite/database.ts";
import { sqliteStore } from "../src/engine/store/sqlite/sqliteStore.ts";
import type { Store } from "../src/engine/store/store.ts";
import type { Value } from "../src/engine/store/catalog/tables.ts";
import { tables } from "../src/engine/store/catalog/tables.ts";
import { startPostgres } from "../test/postgres.ts";
import { cpuTime } from "./processFigures.ts";

const entries = 300_000;
const account = "acc";
const newId = createIdGenerator(Math.random);
const start = Math.floor(Date.now() / 86_400_000) * 86_400_000;
/** When all entries have expired. */
const end = start + 40_000_000;

/** Returns a writer of rows and their index values. It writes a few thousand at a time. */
function createWriter(connection: DatabaseConnection) {
  const rows = new Map<TableName, Value[][]>();
  const put = <T extends TableName>(name: T, row: Rows[T]): void => {
    const known = rows.get(name) ?? [];
    known.push(Object.values(tables[name].write(row)));
    rows.set(name, known);
    for (const id of makeTagIds[name]?.(row) ?? []) put("tags", { account, id });
  };
  const flush = async (): Promise<void> => {
    await connection.query("begin", []);
    for (const [name, values] of rows) {
      const columns = Object.keys(tables[name].columns);
      const types = Object.values(tables[name].columns);
      const source = connection.dialect.givenRows(types).values;
      const text = `insert into ${tables[name].name} (${columns.join(", ")}) ${source}`;
      await connection.each(text, types, values);
    }
    await connection.query("commit", []);
    rows.clear();
  };
  return { put, flush };
}

const makeMessage = (time: number): StoredMessage => ({
  account,
  id: newId("msg", time),
  brand: "svc",
  method: "POST",
  headers: [],
  url: "https://shop.example/hook",
  body: new Uint8Array(200).fill(97),
  retries: 3,
  retryDelay: null,
  timeout: 1_000,
  callback: null,
  failureCallback: null,
  deduplication: null,
  redaction: null,
  reportsOn: null,
  endpoint: null,
  createdAt: time,
  notBefore: time,
  startedAtOnce: true,
  labels: [],
  queue: null,
  scheduleId: null,
  group: null,
  callerIp: null,
  flowControl: null,
});

type LogLine = { states: LogState[]; time: number; dlqId?: string };

async function fill(connection: DatabaseConnection): Promise<void> {
  const { put, flush } = createWriter(connection);
  let logged = 0;
  const logStates = (messageId: string, { states, time, dlqId }: LogLine): void => {
    put("log", {
      account,
      id: newId("log", time),
      messageId,
      time,
      states,
      status: 200,
      error: null,
      nextDueAt: null,
      headers: [],
      body: noBytes,
      dlqId: dlqId ?? null,
      tags: [],
    });
    logged++;
  };
  for (let n = 0; logged < entries; n++) {
    const time = start + n * 100;
    const message = makeMessage(time);
    put("storedMessages", message);
    const kind = n % 100;
    if (kind < 6) logStates(message.id, { states: ["ERROR", "RETRY"], time: time + 1 });
    if (kind < 6) logStates(message.id, { states: ["ACTIVE"], time: time + 60_000 });
    if (kind > 0) logStates(message.id, { states: ["DELIVERED"], time: time + (kind < 6 ? 60_001 : 1) });
    else {
      const id = newId("dlq", time + 60_001);
      logStates(message.id, { states: ["ERROR", "FAILED"], time: time + 60_001, dlqId: id });
      put("deadLetters", {
        account,
        id,
        messageId: message.id,
        status: 500,
        headers: [],
        body: noBytes,
        error: null,
        retried: 1,
        failureCallback: null,
        tags: [],
      });
    }
    if (n % 1_000 === 999) await flush();
  }
  await flush();
}

const owner: Omit<Account, "createdAt"> = {
  id: account,
  name: account,
  password: "",
  token: account,
  tokenHash: account,
  signingKeys: { current: "", next: "" },
};

/** Measures one removal. `server` returns the CPU time of a database server so far, in seconds. */
async function measure(store: Store, what: string, server = async (): Promise<number> => 0): Promise<void> {
  await store.forgetBefore(end - 1);
  const cpu = process.cpuUsage();
  const ofServer = await server();
  const at = performance.now();
  let removed = 0;
  let turns = 0;
  for (let more = true; more; turns++) {
    const turn = await store.execute("expire", {
      account,
      retention: { log: 1, deadLetters: 1e10 },
      now: end,
      limit: 500,
    });
    ({ more } = turn);
    removed += turn.removed;
  }
  const { user, system } = process.cpuUsage(cpu);
  const taken = {
    real: (performance.now() - at) / 1_000,
    here: (user + system) / 1e6,
    there: (await server()) - ofServer,
  };
  const cpuText = `CPU ${taken.here.toFixed(1)} s here and ${taken.there.toFixed(1)} s in the server`;
  const times = `${taken.real.toFixed(1)} s, ${cpuText}`;
  console.log(`${what}: ${removed} removed in ${turns} turns, ${times}`);
}

async function onSqlite(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "waypost-retention-"));
  const file = join(folder, "waypost.db");
  const source = { node: "nod_a", now: () => end, random: Math.random, newId };
  const store = await sqliteStore(file, source);
  await store.execute("createAccount", owner);
  const database = openSqlite(file);
  await fill(database.connection);
  database.close();
  await measure(store, "SQLite");
  await store.close();
  rmSync(folder, { recursive: true, force: true });
}

async function onPostgres(): Promise<void> {
  const server = await startPostgres();
  const { url } = server;
  const clock = { now: () => end, sleep: () => Promise.resolve() };
  const store = await postgresStore({ url, node: "nod_a", clock, random: Math.random, now: () => end });
  await store.execute("createAccount", owner);
  const client = new Client({ connectionString: url });
  await client.connect();
  await fill(createConnection((query) => client.query(query)));
  await client.query("analyze");
  const backends = await client.query<{ pid: number }>(
    "select pid from pg_stat_activity where application_name like 'waypost %'",
  );
  await measure(store, "PostgreSQL", async () =>
    backends.rows.reduce((sum, { pid }) => sum + cpuTime(pid) / 1e6, 0),
  );
  await client.end();
  await store.close();
  await server.stop();
}

await (process.argv[2] === "postgres" ? onPostgres() : onSqlite());
process.exit(0);
