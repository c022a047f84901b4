import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../src/core/model/message.ts";
import { migrations } from "../../../src/store/sql/migrate.ts";
import { sqliteStore } from "../../../src/store/sqlite/sqliteStore.ts";
import type { Store } from "../../../src/store/store.ts";
import { freshDatabase } from "../../postgres.ts";
import { makeTablesOf } from "./olderTables.ts";
import { ask, openNode } from "./postgresDatabase.ts";
import { closedAfterwards, freshFolder, letterTo, sourceOf, TestClock, World } from "../world.ts";

// Stores of the version before there were endpoints: what was counted, and what waited, by host.

/** The last version of the tables without endpoints. */
const versions = migrations("sqlite");
const withEndpoints = versions.findIndex(({ sql }) => sql.includes("counted_to_endpoint"));
const before = versions[withEndpoints - 1]?.version ?? 0;

const host = "one.example";
const { url } = letterTo();

/** What a gate was called then. */
const idBefore = (column: string): string =>
  `case when ${column} like 'endpoint:%' then 'under-way:${host}' when ${column} = 'account:' then 'under-way:'
    when ${column} like 'capacity:%' then 'host:${host}' else ${column} end`;

/** Those tables that the messages of this test are in, with what turns their rows into what the version before had. */
const asBefore: Readonly<Record<string, string>> = {
  accounts: "*",
  envelopes: "*",
  messages: `*, counted_to_endpoint as counted_to_host, ${idBefore("line")} as line_before`,
  flows: `*, ${idBefore("id")} as id_before`,
};

type Old = { store(clock: TestClock, seed: number): Promise<Store>; grow(): Promise<void> };

async function onSqlite(): Promise<Old> {
  const [made, older] = [join(freshFolder(), "store.db"), join(freshFolder(), "store.db")];
  let path = made;
  return {
    store: (clock, seed) => sqliteStore(path, sourceOf(clock, "nod_a", seed)),
    grow: async () => {
      const database = new DatabaseSync(older);
      await makeTablesOf(before, "sqlite", (sql) => database.exec(sql));
      database.exec(`attach database '${made}' as made`);
      for (const [table, columns] of Object.entries(asBefore)) {
        const names = database
          .prepare(`select name from pragma_table_info('${table}')`)
          .all()
          .map(({ name }) => String(name));
        database.exec(
          `insert into main.${table} select ${names.map(columnBefore(table)).join(", ")} from (select ${columns} from made.${table})`,
        );
      }
      database.close();
      path = older;
    },
  };
}

async function onPostgres(): Promise<Old> {
  const [made, older] = [await freshDatabase(), await freshDatabase()];
  let url = made;
  return {
    store: (clock, seed) => openNode(url, clock, { seed }),
    grow: async () => {
      await makeTablesOf(before, "postgres", (sql) => ask(older, sql));
      for (const [table, columns] of Object.entries(asBefore)) {
        const [found] = await ask(made, `select json_agg(rows)::text as rows from (select ${columns} from ${table}) as rows`);
        const rows = JSON.parse(typeof found?.["rows"] === "string" ? found["rows"] : "[]") as Record<string, unknown>[];
        for (const row of rows) for (const name of ["line", "id"]) if (`${name}_before` in row) row[name] = row[`${name}_before`];
        await ask(older, `insert into ${table} select * from json_populate_recordset(null::${table}, $json$${JSON.stringify(rows)}$json$)`);
      }
      url = older;
    },
  };
}

const columnBefore =
  (table: string) =>
  (name: string): string =>
    (table === "messages" && name === "line") || (table === "flows" && name === "id") ? `${name}_before` : name;

describe.each([
  ["SQLite", onSqlite],
  ["PostgreSQL", onPostgres],
])("on %s, a store from before there were endpoints", (_, opened) => {
  test("is opened and goes on: what was under way and what waited is counted by its host to its end, the rest by its endpoint", async () => {
    const clock = new TestClock();
    const old = await opened();
    const first = await World.open(async () => old.store(clock, 1));
    await first.account();
    await first.store.execute("changeAccount", { account: "acc", change: { limits: { parallelism: 2, globalParallelism: 5 } } });
    const sent = [await first.sent(), await first.sent()];
    const waiting = [await first.send(), await first.send()];
    const delayed = await first.send({ delay: 1_000 });
    await first.store.close();
    await old.grow();

    const world = new World(closedAfterwards(await old.store(clock, 2)), clock, "nod_a");
    const counts = async () =>
      (await world.store.read.allSetUp("flows", { account: "acc", limit: 9 })).map(({ id, running, waiting: line }) => [id, running, line]);
    expect(await counts()).toEqual([
      ["account:", 2, 0],
      [`endpoint:${host}`, 2, 2],
    ]);
    const ofEndpoint = [await world.sent(), await world.sent()];
    const behind = await world.send();
    expect(await counts()).toEqual([
      ["account:", 4, 0],
      [`endpoint:${url}`, 2, 1],
      [`endpoint:${host}`, 2, 2],
    ]);
    // It has no endpoint either.
    clock.now += 1_000;
    expect(await world.claim()).toEqual([]);
    expect(await counts()).toContainEqual([`endpoint:${host}`, 2, 3]);
    const ended: string[] = [];
    const end = async (all: readonly Delivery[]): Promise<void> => {
      for (const delivery of all) {
        await world.settle(delivery);
        ended.push(delivery.message.id);
      }
    };
    await end(sent);
    await end(ofEndpoint);
    for (let turn = 0; turn < 9 && ended.length < 8; turn++) await end([...world.delivered(), ...(await world.claim())]);
    expect(new Set(ended)).toEqual(new Set([...[...sent, ...ofEndpoint].map(({ message }) => message.id), ...waiting, delayed, behind]));
    expect([await counts(), world.faults]).toEqual([[["account:", 0, 0]], []]);
  });
});
