import { createServer, connect as connectSocket } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { Client } from "pg";
import { expect, onTestFinished, test } from "vitest";
import {
  openPostgresReads,
  PostgresDatabase,
  postgresStore,
} from "../../../../src/engine/store/postgres/database.ts";
import { StorageRefused, Unavailable } from "../../../../src/engine/store/layout/storageErrors.ts";
import { freshDatabase, startPostgres } from "../../../postgres.ts";
import { createRandom } from "../createRandom.ts";
import { announced, ask, openNode } from "./postgresDatabase.ts";
import {
  closeAfterTest,
  makeInput,
  createSteppedClock,
  sleepReal,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";

async function oneNode(url: string, node = "nod_a", clock = new TestClock()): Promise<StoreFixture> {
  return new StoreFixture(closeAfterTest(await openNode(url, clock, { node })), clock, node);
}

const count = async (url: string): Promise<unknown> =>
  (await ask(url, "select count(*)::int as count from stored_messages"))[0]?.["count"];

/** Ends the connections of one kind, as an administrator would. */
const terminate = (url: string, kind: string) =>
  ask(
    url,
    "select pg_terminate_backend(pid) from pg_stat_activity " +
      `where application_name = 'waypost ${kind}' and datname = current_database()`,
  );

test.each([
  ["another version", "update store_schema set hash = 'other'"],
  ["a version that did not record its schema", "drop table store_schema"],
])("tables of %s are refused", async (_name, change) => {
  const url = await freshDatabase();
  const world = await oneNode(url);
  await world.store.close();
  await ask(url, change);
  await expect(openNode(url, new TestClock())).rejects.toThrow(
    new StorageRefused(
      "the database: has tables of another version of Waypost, which this version cannot use: " +
        "a newer one, or one before 0.1.0; start that version, restore the backup from before the upgrade, " +
        "or start with an empty database",
    ),
  );
});

test("opening fails as unavailable if there is no server", async () => {
  await expect(openNode("postgres://postgres@127.0.0.1:1/none", new TestClock())).rejects.toBeInstanceOf(
    Unavailable,
  );
});

test("the time is the database's, whatever the clock of the node's machine says", async () => {
  const url = await freshDatabase();
  const ahead = 3_600_000;
  const started = Date.now();
  // The clock of this machine is an hour behind.
  const clock = {
    now: () => Date.now() - ahead,
    sleep: (_: number, wake: AbortSignal) =>
      new Promise<void>((resolve) => wake.addEventListener("abort", () => resolve())),
  };
  const store = closeAfterTest(await postgresStore({ url, node: "nod_a", random: Math.random, clock }));
  const world = new StoreFixture(store, new TestClock(), "nod_a");
  const { createdAt } = await world.account();
  await world.send({ delay: 60_000 });
  const [told, asked] = [world.dues[0] ?? 0, (await store.nextDueAt()) ?? 0];
  // The offset of the clocks is known to half a round trip, which takes long on a busy machine.
  const inexact = 300_000;
  for (const at of [createdAt, told - 60_000, asked - 60_000]) {
    expect(at).toBeGreaterThan(started - inexact);
    expect(at).toBeLessThan(Date.now() + inexact);
  }
});

test("a node is notified once of due times, by itself and by other nodes", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const a = await oneNode(url, "nod_a", clock);
  const b = await oneNode(url, "nod_b", clock);
  await a.account();
  await a.send({ delay: 500 });
  await expect.poll(() => b.dues, announced).toEqual([clock.now + 500]);
  await b.send({ delay: 700 });
  await expect.poll(() => a.dues, announced).toEqual([clock.now + 500, clock.now + 700]);
  expect(b.dues).toEqual([clock.now + 500, clock.now + 700]);
});

test("a listener that lost its connection reconnects, reports due time 0, and listens again", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const a = await oneNode(url, "nod_a", clock);
  const b = await oneNode(url, "nod_b", clock);
  await a.account();
  await terminate(url, "listener");
  await expect.poll(() => [a.dues, b.dues], announced).toEqual([[0], [0]]);
  await a.send({ delay: 500 });
  await expect.poll(() => b.dues, announced).toEqual([0, clock.now + 500]);
});

test("a connection that ends between two batches goes unnoticed", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url);
  await world.account();
  await world.store.read.accounts();
  for (const kind of ["writer", "reader"]) {
    await terminate(url, kind);
    expect(await world.send({ delay: 1 })).toMatch(/^msg_/);
    expect(await world.store.read.accounts()).toHaveLength(1);
  }
  expect(await count(url)).toBe(2);
});

test("a batch runs again if its connection ends while it waits for a lock", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url);
  await world.account();
  const id = await world.send({ delay: 1 });
  const rival = await rivalHolding(url, "select * from messages for update");
  const cancelling = world.store.execute("cancel", { account: "acc", messageIds: [id] });
  await waiting(url);
  await terminate(url, "writer");
  await rival.query("commit");
  expect(await cancelling).toEqual({ cancelled: 1 });
});

test("a batch runs again after a deadlock or a lock timeout", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url);
  await world.account();
  const one = await world.send({ delay: 1 });
  const two = await world.send({ delay: 1 });
  const rival = await rivalHolding(url, `select * from messages where id = '${two}' for update`);
  const cancelling = world.store.execute("cancel", { account: "acc", messageIds: [one, two] });
  await waiting(url);
  // The database may pick either transaction as the victim.
  await rival.query(`select * from messages where id = '${one}' for update`).catch(() => undefined);
  await rival.query("rollback");
  expect(await cancelling).toEqual({ cancelled: 2 });
});

test("a storage probe does not run inside a batch, which would store it", async () => {
  const url = await freshDatabase();
  await oneNode(url);
  const clock = new TestClock();
  const database = new PostgresDatabase({
    url,
    node: "nod_b",
    random: createRandom(1),
    clock: createSteppedClock(clock),
    now: () => clock.now,
  });
  onTestFinished(() => database.close());
  await database.probe(0);
  const written = Promise.withResolvers<void>();
  const end = Promise.withResolvers<void>();
  const failing = database.transaction(async ({ query }) => {
    await query("insert into log_cuts (account, up_to) values ('a', '1')", []);
    written.resolve();
    await end.promise;
    throw new Error("nothing of it happened");
  });
  await written.promise;
  const trial = database.probe(0);
  // Enough time for the probe to finish, if nothing delayed it.
  await Promise.race([trial, ask(url, "select pg_sleep(0.3)")]);
  end.resolve();
  await expect(failing).rejects.toThrow("nothing of it happened");
  await trial;
  expect(await ask(url, "select account from log_cuts")).toEqual([]);
});

test("a failing statement fails only its own command", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url);
  await world.account();
  await ask(
    url,
    "alter table stored_messages add constraint odd check (id is null or detail not like '%poison%')",
  );
  const all = await Promise.allSettled([
    world.send({ delay: 1 }),
    world.send({ labels: ["poison"], delay: 1 }),
    world.send({ delay: 1 }),
  ]);
  expect(all.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
  expect(await count(url)).toBe(2);
});

test("a connection cut during a commit is reported as uncertain, and nothing is stored twice", async () => {
  const url = await freshDatabase();
  const proxy = await cuttingProxy(url);
  const world = await oneNode(proxy.url);
  await world.account();
  // The protocol ends a string with NUL. Without it, "read committed" would match.
  proxy.cutAt("commit\0");
  const all = await Promise.allSettled([
    world.publish([makeInput({ delay: 1 })]),
    world.publish([makeInput({ delay: 1 })]),
  ]);
  for (const one of all)
    expect(one).toMatchObject({ status: "rejected", reason: { name: "Refusal", code: "outcome-unknown" } });
  // The server may complete the commit after the connection was cut.
  await expect.poll(() => count(url)).toBe(2);
  expect(await world.send({ delay: 1 })).toMatch(/^msg_/);
});

test("a batch cut off before its commit runs again, and nothing is stored twice", async () => {
  const url = await freshDatabase();
  const proxy = await cuttingProxy(url);
  const world = await oneNode(proxy.url);
  await world.account();
  await world.send({ delay: 1 });
  proxy.cutAt("unnest");
  // Each connection receives the text of a statement once, so only a new connection receives it again.
  await terminate(url, "writer");
  expect(await world.publish([makeInput({ delay: 1 })])).toMatchObject([{ deduplicated: false }]);
  expect(await count(url)).toBe(2);
});

test("without a server everything is refused as unavailable, and works again when it is back", async () => {
  const postgres = await startPostgres();
  onTestFinished(() => postgres.stop());
  const proxy = await cuttingProxy(postgres.url);
  const world = await oneNode(proxy.url);
  await world.account();
  proxy.close();
  await expect(world.send()).rejects.toMatchObject({ code: "unavailable" });
  await expect(world.store.read.accounts()).rejects.toMatchObject({ code: "unavailable" });
  await expect(world.store.nextDueAt()).rejects.toMatchObject({ code: "unavailable" });
  proxy.open();
  expect(await world.send()).toMatch(/^msg_/);
  expect(await world.store.read.accounts()).toHaveLength(1);
});

test("tools report that the database has no store yet", async () => {
  const looking = openPostgresReads({ url: await freshDatabase() }, { name: "tool" });
  await expect(looking).rejects.toThrow(
    new StorageRefused('the database has no store yet; "waypost start --database-url <url>" creates one'),
  );
});

test("tools can read from a database", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url);
  const account = await world.account();
  const { storageReads, close } = await openPostgresReads({ url }, { name: "nod_b" });
  expect(await storageReads.accounts()).toEqual([account]);
  await close();
});

/** Returns a transaction of another client that holds locks on the selected rows. */
async function rivalHolding(url: string, select: string): Promise<Client> {
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query("begin");
  await client.query(select);
  return client;
}

/** Waits until a connection waits for a lock. */
async function waiting(url: string): Promise<void> {
  const sql =
    "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
  while ((await ask(url, sql)).length === 0) await sleepReal(20);
}

/**
 * Forwards everything, and cuts the connection once after the text set by `cutAt` has passed to the server.
 */
async function cuttingProxy(target: string) {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let cutting: string | null = null;
  let isOpen = true;
  const server = createServer((client) => {
    if (!isOpen) return client.destroy();
    const upstream = connectSocket(Number(port), hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => sockets.delete(socket));
    }
    client.on("close", () => upstream.end());
    upstream.on("close", () => client.destroy());
    upstream.on("data", (data) => client.write(data));
    client.on("data", (data) => {
      upstream.write(data);
      if (cutting === null || !data.includes(cutting)) return;
      cutting = null;
      client.destroy();
    });
    return undefined;
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const url = new URL(target);
  url.port = String((server.address() as AddressInfo).port);
  return {
    url: url.href,
    cutAt: (text: string) => {
      cutting = text;
    },
    close: () => {
      isOpen = false;
      for (const socket of sockets) socket.destroy();
    },
    open: () => {
      isOpen = true;
    },
  };
}
