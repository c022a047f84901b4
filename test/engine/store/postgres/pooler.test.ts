import { Client } from "pg";
import { expect, onTestFinished, test } from "vitest";
import { openPostgresForMove } from "../../../../src/operations/moveStore/postgres.ts";
import { openPostgresReads, postgresStore } from "../../../../src/engine/store/postgres/database.ts";
import type { Pooling } from "../../../../src/engine/store/postgres/connect.ts";
import { freshDatabase } from "../../../postgres.ts";
import { createRandom } from "../createRandom.ts";
import { ask } from "./postgresDatabase.ts";
import { startPooler } from "./postgresPooler.ts";
import { startProxy } from "./postgresProxy.ts";
import { closeAfterTest, createSteppedClock, TestClock, StoreFixture } from "../storeFixture.ts";

// A pooler between the nodes and the database lends connections for one transaction at a time.

const open = (url: string, pooling: Pooling, { node = "nod_a", clock = new TestClock() } = {}) =>
  postgresStore({
    url,
    node,
    pooling,
    random: createRandom(1),
    now: () => clock.now,
    clock: createSteppedClock(clock),
  });

test.each([1, 3])(
  "nodes with transaction pooling work through a pooler of %i connections",
  async (connections) => {
    const url = await freshDatabase();
    const through = await startPooler(url, { connections });
    const clock = new TestClock();
    const worlds: StoreFixture[] = [];
    for (const node of ["nod_a", "nod_b"]) {
      worlds.push(
        new StoreFixture(closeAfterTest(await open(through, "transaction", { node, clock })), clock, node),
      );
    }
    const [a, b] = worlds as [StoreFixture, StoreFixture];
    await a.account();
    const delivery = await a.sent();
    await a.settle(delivery);
    const later = await a.send({ delay: 1 });
    clock.now += 1;
    expect((await b.claim()).map(({ message }) => message.id)).toEqual([later]);
    await b.settle(await b.sent());
    expect(await b.states(delivery.message.id)).toEqual(["CREATED", "ACTIVE", "DELIVERED"]);
  },
);

test("a node without transaction pooling says what to do, and leaves the database unchanged", async () => {
  const url = await freshDatabase();
  const through = await startPooler(url);
  for (const node of ["nod_a", "nod_b"]) {
    await expect(open(through, "session", { node })).rejects.toThrow(
      /pooler.*--database-pooling transaction/,
    );
  }
  expect(await ask(url, "select tablename from pg_tables where schemaname = 'public'")).toEqual([]);
});

test("the pooler is detected while others keep its connections busy", async () => {
  const through = await startPooler(await freshDatabase());
  const other = new Client({ connectionString: through });
  await other.connect();
  onTestFinished(() => other.end());
  await other.query("begin");
  await expect(open(through, "session")).rejects.toThrow(/pooler.*--database-pooling transaction/);
});

test("a database that refuses custom settings is used as it is", { tags: "long" }, async () => {
  const refused: string[] = [];
  const through = await startProxy(await freshDatabase(), {
    refuses: (text) => (text.startsWith("set waypost") ? (refused.push(text), "42704") : null),
  });
  const store = closeAfterTest(await open(through, "session"));
  expect(await store.read.accounts()).toEqual([]);
  expect(refused).toHaveLength(1);
});

test("tools report a pooler and say what to do", async () => {
  const url = await freshDatabase();
  const through = await startPooler(url);
  await expect(openPostgresReads({ url: through }, { name: "nod_a" })).rejects.toThrow(
    /pooler.*--database-pooling transaction/,
  );
  const clock = createSteppedClock(new TestClock());
  for (const isTarget of [true, false]) {
    await expect(openPostgresForMove(through, { name: "db", isTarget, clock })).rejects.toThrow(
      /pooler.*; give migrate-store the URL of the database itself/,
    );
  }
  expect(await ask(url, "select tablename from pg_tables where schemaname = 'public'")).toEqual([]);
});
