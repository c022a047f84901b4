import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import type { DatabaseConnection } from "../../../../src/engine/store/sql/database.ts";
import { openReaders } from "../../../../src/engine/store/postgres/readers.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { freshDatabase } from "../../../postgres.ts";
import { makeStartInput } from "../contract/failedRuns.ts";
import { ask, openNode } from "../postgres/postgresDatabase.ts";
import { expectStoredBytesInDatabase } from "./stored.ts";
import {
  closeAfterTest,
  createTestFolder,
  makeInput,
  createSource,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";

// Stored bytes equal the weight of the existing rows, also in cases that the contract does not cover.

const day = 24 * 60 * 60 * 1_000;

type Given = {
  open(clock: TestClock, node?: string): Promise<Store>;
  run(sql: string): Promise<unknown>;
  look<T>(with_: (connection: DatabaseConnection) => Promise<T>): Promise<T>;
};

const databases: [string, () => Promise<Given>][] = [
  [
    "SQLite",
    async () => {
      const path = join(createTestFolder(), "store.db");
      return {
        open: (clock) => sqliteStore(path, createSource(clock, "nod_a")),
        run: async (sql) => {
          const database = new DatabaseSync(path);
          database.exec(sql);
          database.close();
        },
        look: async (look) => {
          const database = openSqlite(path, { readOnly: true });
          return look(database.connection).finally(() => database.close());
        },
      };
    },
  ],
  [
    "PostgreSQL",
    async () => {
      const url = await freshDatabase();
      return {
        open: (clock, node) => openNode(url, clock, { ...(node !== undefined && { node }) }),
        run: (sql) => ask(url, sql),
        look: async (look) => {
          const { connection, close } = openReaders({ url });
          return look(connection).finally(close);
        },
      };
    },
  ],
];

/** Creates rows in each weighed table except the kept log. */
async function fill(world: StoreFixture): Promise<void> {
  await world.account();
  await world.publishFailing({ body: Buffer.from("ä𝄞".repeat(100)), labels: ["ä"] });
  await world.settle(await world.sent(), { status: 200 });
  const messageInput = makeInput();
  await world.store.execute("createSchedule", {
    account: "acc",
    id: "s",
    cron: "0 0 1 1 *",
    messageInput,
    body: messageInput.body,
  });
  const by = { kind: "commandLine", address: null } as const;
  await world.store.execute("addEndpoints", {
    account: "acc",
    name: "g",
    endpoints: [{ name: "ö", url: "https://one.example/" }],
    by,
  });
  await world.publish([makeStartInput("wfr_1"), makeStartInput("wfr_2")]);
  await world.store.execute("notify", {
    account: "acc",
    event: "e",
    body: messageInput.body,
    runId: "wfr_1",
    kind: "event",
  });
  await world.store.execute("cancelRuns", { account: "acc", runIds: ["wfr_2"] });
}

test.each(databases)(
  "a log entry on %s that moves to the kept log and is then removed is counted once",
  async (_name, given) => {
    const { open, look } = await given();
    const clock = new TestClock();
    const world = new StoreFixture(closeAfterTest(await open(clock)), clock, "nod_a");
    await fill(world);
    const expire = (log: number) =>
      world.store.execute("expire", {
        account: "acc",
        retention: { log, deadLetters: 60 * day },
        now: clock.now,
        limit: 3,
      });
    clock.now += 2 * day;
    for (let more = true; more;) ({ more } = await expire(day));
    expect(await look(expectStoredBytesInDatabase)).toHaveProperty("acc");
    await world.store.execute("changeAccount", {
      account: "acc",
      change: { limits: { logEntries: 0, deadLetters: 0 } },
    });
    const none = {
      log: { id: "log_z", limit: 0 },
      keptLog: { id: "log_z", limit: 0 },
      deadLetters: { id: "dlq_z", limit: 0 },
      audit: null,
    };
    for (let more = true; more;)
      ({ more } = await world.store.execute("trim", { account: "acc", tooMany: none, limit: 2 }));
    expect(await look(expectStoredBytesInDatabase)).toHaveProperty("acc");
  },
);

test("removed log entries do not count, before and after PostgreSQL drops their partition", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const world = new StoreFixture(closeAfterTest(await openNode(url, clock)), clock, "nod_a");
  await world.account();
  for (let n = 0; n < 4; n++) {
    await world.settle(await world.sent(), { status: 200 });
    clock.now += day;
  }
  const stored = async () => (await world.store.read.storedBytes(["acc"], null))[0]?.bytes ?? 0;
  const before = await stored();
  const retention = { log: 2 * day, deadLetters: 2 * day };
  await world.store.forgetBefore(clock.now - retention.log);
  await world.store.execute("expire", { account: "acc", retention, now: clock.now, limit: 100 });
  expect(await ask(url, "select count(*)::int as n from log")).toEqual([{ n: 4 }]);
  expect(await stored()).toBe(before / 2);
  await world.store.forgetBefore(clock.now - retention.log);
  const { connection, close } = openReaders({ url });
  await ask(
    url,
    "delete from log using log_cuts where log.account = log_cuts.account and log.id <= log_cuts.up_to",
  );
  expect(await expectStoredBytesInDatabase(connection).finally(close)).toEqual({ acc: before / 2 });
});

test("two nodes that count and remove rows at the same time agree with the rows", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const worlds = await Promise.all(
    ["nod_a", "nod_b"].map(
      async (node) => new StoreFixture(closeAfterTest(await openNode(url, clock, { node })), clock, node),
    ),
  );
  await worlds[0]?.account();
  for (let round = 0; round < 5; round++) {
    const sent = await Promise.all(
      worlds.map((world) => world.publish([makeInput({ delay: 9e6 }), makeInput()])),
    );
    expect(sent).toHaveLength(2);
    await Promise.all(
      worlds.flatMap((world) => world.delivered().map((delivery) => world.settle(delivery, { status: 200 }))),
    );
    clock.now += 10_000;
    const expired = { account: "acc", retention: { log: 15_000, deadLetters: 1 }, limit: 3 };
    await Promise.all(worlds.map((world) => world.store.execute("expire", { ...expired, now: clock.now })));
  }
  const { connection, close } = openReaders({ url });
  expect(await expectStoredBytesInDatabase(connection).finally(close)).toHaveProperty("acc");
});
