// @module-tag long
import { readFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { freshDatabase } from "../postgres.ts";
import { ask } from "../server/nodes.ts";
import {
  developmentToken,
  runWaypost,
  startDestination,
  startWaypost,
  temporaryFolder,
  type Process,
} from "../server/waypost.ts";
import { makeNextVersion, type SchemaChange } from "./nextVersion.ts";

/** The data of the first released version. */
const fixture = join(import.meta.dirname, "../fixtures/0.1.0");

/** A new column and a new table, which nodes of the version before do not need. */
const compatible: SchemaChange = {
  replaces: "create table accounts (",
  by:
    "create table notes (id text primary key, detail text not null);\n" +
    "create table accounts (\n  note text,",
  sql:
    "create table notes (id text primary key, detail text not null); " +
    'alter table accounts add column note text /*postgres: collate "C"*/;',
  allowsOlder: true,
};
/** Another table, whose version demands that all nodes are stopped first. */
const incompatible: SchemaChange = {
  replaces: "create table accounts (",
  by: "create table drafts (id text primary key);\ncreate table accounts (",
  sql: "create table drafts (id text primary key);",
  allowsOlder: false,
};

/** Publishes without a pause, to the present servers in turn, until `end`. `accepted` has the bodies. */
function startLoad(destination: string) {
  const servers: Process[] = [];
  const accepted = new Set<string>();
  let isEnding = false;
  const run = async (): Promise<void> => {
    for (let at = 0; !isEnding; at++) {
      const server = servers[at % servers.length];
      const body = `message ${at}`;
      const response = await fetch(`${server?.url}/v2/publish/${destination}`, {
        method: "POST",
        headers: { authorization: `Bearer ${developmentToken}`, "svc-delay": at % 3 === 0 ? "1s" : "0s" },
        body,
      }).catch(() => null);
      if (response?.status === 200) accepted.add(body);
      await pause(5);
    }
  };
  const running = run();
  return {
    servers,
    accepted,
    /** Waits until this many more messages were accepted. */
    progress: (count: number) => {
      const wanted = accepted.size + count;
      return vi.waitFor(() => expect(accepted.size).toBeGreaterThanOrEqual(wanted), { timeout: 300_000 });
    },
    end: async () => {
      isEnding = true;
      await running;
    },
  };
}

const stopServer = async (server: Process): Promise<void> => {
  server.kill("SIGTERM");
  expect(await server.ended).toMatchObject({ code: 0 });
};

const refusal =
  /has tables of another version of Waypost, which this version cannot use: a newer one.*; start/;

test("a folder is upgraded with its data between two loads, and a downgrade is refused", async () => {
  const destination = await startDestination();
  const data = join(temporaryFolder(), "data");
  const args = ["dev", "--port", "0", "--data", data];
  const restored = await runWaypost(["restore", join(fixture, "waypost.db"), "--data", data]).ended;
  expect(restored).toMatchObject({ code: 0, err: "" });
  const next = makeNextVersion(compatible);
  const last = makeNextVersion(incompatible, next);
  const load = startLoad(destination.url);
  for (const sources of [undefined, next, undefined, last]) {
    const server = await startWaypost(args, sources === undefined ? {} : { TEST_SOURCES: sources });
    load.servers.splice(0, 1, server);
    await load.progress(30);
    if (sources === last) await load.end();
    else await stopServer(server);
  }
  const { accepted, servers } = load;
  await vi.waitFor(
    () =>
      expect(accepted.difference(new Set(destination.arrivals.map(({ body }) => String(body)))).size).toBe(0),
    { timeout: 300_000 },
  );
  for (const server of servers) await stopServer(server);
  const downgrade = await runWaypost(args).ended;
  expect(downgrade).toMatchObject({ code: 2, err: expect.stringMatching(refusal) });

  const fresh = join(temporaryFolder(), "data");
  await stopServer(await startWaypost(["dev", "--port", "0", "--data", fresh], { TEST_SOURCES: last }));
  expect(describeTables(data)).toEqual(describeTables(fresh));
});

/** Returns the columns of all tables of a folder, without their order, which a migration cannot choose. */
function describeTables(data: string): string[] {
  const database = new DatabaseSync(join(data, "waypost.db"), { readOnly: true });
  const sql =
    "select t.name || '.' || c.name || ' ' || c.type || c.\"notnull\" || c.pk as text " +
    "from sqlite_schema t join pragma_table_info(t.name) c where t.type = 'table' order by text";
  const rows = database.prepare(sql).all();
  database.close();
  return rows.map(({ text }) => String(text));
}

test("nodes are upgraded one after another under load, and later ones stop the older", async () => {
  const destination = await startDestination();
  const databaseUrl = await freshDatabase();
  await ask(databaseUrl, readFileSync(join(fixture, "waypost.sql"), "utf8"));
  const args = ["dev", "--port", "0", "--data", temporaryFolder(), "--database-url", databaseUrl];
  const next = { TEST_SOURCES: makeNextVersion(compatible) };
  const last = { TEST_SOURCES: makeNextVersion(incompatible, next.TEST_SOURCES) };
  const [first, second] = [await startWaypost(args), await startWaypost(args)];
  const load = startLoad(destination.url);
  load.servers.push(first, second);
  await load.progress(30);
  const third = await startWaypost(args, next);
  // The older nodes still work with the new tables.
  await load.progress(60);
  expect(await ask(databaseUrl, "select hash from store_schema")).toHaveLength(2);
  load.servers.push(third);
  load.servers.shift();
  await stopServer(first);
  await load.progress(30);
  load.servers.shift();
  await stopServer(second);
  await load.progress(30);

  const fourth = await startWaypost(args, last);
  load.servers.unshift(fourth);
  // The node before does not change anything more, and is not ready.
  await vi.waitFor(async () => expect((await fetch(`${third.url}/v2/health/ready`)).status).toBe(503), {
    timeout: 300_000,
  });
  load.servers.pop();
  await load.progress(30);
  await load.end();
  await vi.waitFor(
    () =>
      expect(
        load.accepted.difference(new Set(destination.arrivals.map(({ body }) => String(body)))).size,
      ).toBe(0),
    { timeout: 300_000 },
  );
  const downgrade = await runWaypost(args).ended;
  expect(downgrade).toMatchObject({ code: 2, err: expect.stringMatching(refusal) });
});

test("an upgrade keeps a hold, and the mark of a moved store", async () => {
  const data = temporaryFolder();
  const args = ["dev", "--port", "0", "--data", data];
  await stopServer(await startWaypost([...args, "--hold"]));
  const move = ["migrate-store", "--from", `sqlite:${data}`, "--to", `sqlite:${temporaryFolder()}`];
  expect(await runWaypost(move).ended).toMatchObject({ code: 0, err: "" });
  const next = makeNextVersion(compatible);
  const last = makeNextVersion(incompatible, next);
  const readRows = (): string[] => {
    const database = new DatabaseSync(join(data, "waypost.db"), { readOnly: true });
    const rows = database.prepare("select hash from store_schema order by hash").all();
    database.close();
    return rows.map(({ hash }) => String(hash).replace(/^[0-9a-f]{64}$/, "a schema"));
  };
  const marks = ["held", expect.stringMatching(/^moved at /)];
  for (const [sources, schemas] of [
    [next, ["a schema", "a schema"]],
    [last, ["a schema"]],
  ] as const) {
    const environment = { TEST_SOURCES: sources };
    const before = readRows();
    const refused = await runWaypost(args, environment).ended;
    expect(refused).toMatchObject({ code: 2, err: expect.stringContaining("was moved to sqlite:") });
    expect(readRows()).toEqual(before);
    // A tool upgrades the tables.
    expect(await runWaypost(["account", "list", "--data", data], environment).ended).toMatchObject({
      code: 0,
    });
    expect(readRows()).toEqual([...schemas, ...marks]);
  }
  const server = await startWaypost([...args, "--force"], { TEST_SOURCES: last });
  expect(await (await fetch(`${server.url}/v2/health/ready`)).json()).toMatchObject({ held: true });
  await stopServer(server);
});
