import { laneName } from "../../../src/engine/core/admission/capacity.ts";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { CommandName } from "../../../src/engine/store/catalog/commands.ts";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { LeaseRef, MessageState } from "../../../src/engine/core/model/messageState.ts";
import type { Schedule } from "../../../src/engine/core/model/schedule.ts";
import type { Limiter, QueueSlot } from "../../../src/engine/core/model/limiter.ts";
import type { Rows, TableName } from "../../../src/engine/core/decision/command.ts";
import type { Run, Step } from "../../../src/engine/core/model/run.ts";
import type { DatabaseConnection } from "../../../src/engine/store/sql/database.ts";
import { toKey, formatKey } from "../../../src/engine/store/catalog/rowKeys.ts";
import { listWrongCounters } from "../../model/counters.ts";
import { Memory, memoryStore } from "../../model/memoryStore.ts";
import { openReaders } from "../../../src/engine/store/postgres/readers.ts";
import { openSqlite } from "../../../src/engine/store/sqlite/database.ts";
import { sqliteStore } from "../../../src/engine/store/sqlite/sqliteStore.ts";
import { tableNames } from "../../../src/engine/store/catalog/order.ts";
import type { OldestDue } from "../../../src/engine/store/layout/storageReads.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { tables } from "../../../src/engine/store/catalog/tables.ts";
import { freshDatabase } from "../../postgres.ts";
import { serverAccount } from "../../../src/engine/core/values/basics.ts";
import { chooseSeed } from "../../seeds.ts";
import { createRandom } from "./createRandom.ts";
import { openNode } from "./postgres/postgresDatabase.ts";
import { Effects, isSource, wantedEffects } from "./effects.ts";
import { RandomCommands } from "./randomCommands.ts";
import type { RandomCommand } from "./randomCommands.ts";
import { runFilters } from "./randomRuns.ts";
import { expectStoredBytes } from "./sql/stored.ts";
import {
  makeAccount,
  closeAfterTest,
  makeOldestFirstQuery,
  createTestFolder,
  makeLogQuery,
  createSource,
  TestClock,
  StoreFixture,
} from "./storeFixture.ts";

// The same random commands run on every store. All answers are equal, and so are the tables in the end. A
// failure names its seed; WAYPOST_SEED=<seed> repeats it.

const chosen = process.env["WAYPOST_SEED"];
const fixed: readonly number[] = [1, 3, 7, 14, 19, 22];
const quick = chosen === undefined ? chooseSeed() : Number(chosen);
/**
 * The number of batches. Each takes longer than the one before, because the tables grow, so several short
 * runs test more than a long one.
 */
const steps = 250;

type Dump = { [T in TableName]: unknown[] };
type Contestant = { world: StoreFixture; dump(): Promise<Dump> };

const everSeen = new Set<string>();

test(`memory, SQLite and PostgreSQL agree, seed ${quick}`, () => expectAgreement(quick));

describe.runIf(chosen === undefined)("seeds that together have every effect", { tags: "long" }, () => {
  test.each(fixed)("memory, SQLite and PostgreSQL agree, seed %i", (seed) => expectAgreement(seed));

  test("every effect has happened", () => {
    expect(wantedEffects.filter((effect) => !everSeen.has(effect))).toEqual([]);
  });
});

async function expectAgreement(seed: number): Promise<void> {
  const clock = new TestClock(1_800_000_000_000);
  const contestants = await Promise.all([
    inMemory(clock, seed),
    inSqlite(clock, seed),
    inPostgres(clock, seed),
  ]);
  for (const { world } of contestants) {
    world.capacity = { total: 6, perHost: 2 };
    world.pulls = new Map(
      [laneName("a", "one.example"), laneName("b", "one.example")].map((lane) => [lane, 2]),
    );
  }
  const chance = new RandomCommands(createRandom(seed));
  const effects = new Effects();
  await everywhere(
    contestants,
    [
      { name: "createAccount", input: makeAccount("a") },
      {
        name: "createAccount",
        input: {
          ...makeAccount("b"),
          limits: { requestsPerDay: 50, requestsPerDayHard: 500_000, requestsPerSecond: 9 },
        },
      },
    ],
    effects,
  );
  for (let step = 0; step < steps; step++) {
    const seen = await everywhere(contestants, chance.batch(clock.now), effects);
    chance.learn(seen);
    if (step % 5 === 0) await compareFigures(contestants);
    if (step % 10 === 0) await compareReads(contestants);
    if (step % 25 === 0) await compareTables(contestants, effects);
    clock.now += chance.pause();
  }
  await compareFigures(contestants);
  await compareTables(contestants, effects);
  for (const effect of effects.seen) everSeen.add(effect);
  expect(everSeen).toContain("claim");
}

/**
 * Runs a batch on every store, and compares the answers and deliveries. Returns what later commands can refer
 * to.
 */
async function everywhere(
  contestants: readonly Contestant[],
  batch: readonly RandomCommand[],
  effects: Effects,
) {
  const all = await Promise.all(contestants.map(({ world }) => run(world, batch)));
  const [first, ...others] = all;
  if (!first) throw new Error("no store to compare");
  for (const [index, other] of others.entries())
    expect(other, `${["SQLite", "PostgreSQL"][index]} on ${JSON.stringify(batch)}`).toEqual(first);
  if (first.calledOff.length > 0) effects.seen.add("call off");
  batch.forEach((given, index) => effects.note(given, first.answers[index], first.deliveries));
  const [{ world }] = contestants as [Contestant];
  const { entries } = await world.store.read.deadLetters(makeLogQuery({ account: "a", count: 15 }));
  const more = (await world.store.read.deadLetters(makeLogQuery({ account: "b", count: 5 }))).entries;
  const { messageIds } = await world.store.read.unfinished({
    account: "a",
    filter: {},
    cursor: null,
    count: 50,
  });
  const sourceIds = first.answers.flatMap((answer) => (isSource(answer) ? answer.id : []));
  const waiting = await world.store.read.listEventWaiters("a", "paid", { limit: 4 });
  const deadLetters = [...entries, ...more].map(({ deadLetter }) => deadLetter);
  const ofRuns = deadLetters.filter(({ run }) => run !== undefined);
  const toRepeat = ofRuns
    .filter(({ failureCallback }) => failureCallback?.state === "CALLBACK_FAIL")
    .map(({ id }) => id);
  const { runs: activeRuns } = await world.store.read.runs({
    account: "a",
    filter: { states: ["RUN_STARTED"] },
    cursor: null,
    count: 4,
  });
  const known = { dlqIds: deadLetters.map(({ id }) => id), runDlqIds: ofRuns.map(({ id }) => id), toRepeat };
  const jobs = await world.store.read.dueJobs(Infinity, 5);
  const alertsOf = (account: string) => world.store.read.alerts({ account, descending: true, limit: 4 });
  const alerts = [...(await alertsOf("a")), ...(await alertsOf("b")), ...(await alertsOf(serverAccount))];
  return {
    jobs,
    alerts,
    deliveries: first.deliveries,
    messageIds: messageIds.slice(-4),
    ...known,
    activeRuns: activeRuns.map(({ id, runId }) => ({ id, runId })),
    sourceIds,
    waiterIds: waiting.map(({ id }) => id),
  };
}

type Ran = {
  answers: unknown[];
  deliveries: Delivery[];
  calledOff: LeaseRef[];
  nextDueAt: number | null;
  oldestDue: OldestDue;
};

async function run(world: StoreFixture, batch: readonly RandomCommand[]): Promise<Ran> {
  for (const { name, input } of batch) {
    if (name === "settle") world.forgetDelivery(input.messageId);
    if (name === "returnLeases") input.leases.forEach(({ messageId }) => world.forgetDelivery(messageId));
  }
  const execute = world.store.execute as (name: CommandName, input: unknown) => Promise<unknown>;
  const settled = await Promise.allSettled(batch.map(({ name, input }) => execute(name, input)));
  const answers = settled.map((one) => (one.status === "fulfilled" ? one.value : refusal(one.reason)));
  return {
    answers,
    deliveries: world.delivered(),
    calledOff: world.calledOff.splice(0),
    nextDueAt: await world.store.nextDueAt(),
    oldestDue: await world.store.read.oldestDue(),
  };
}

/** Returns a refusal as an answer. Throws any other error. */
function refusal(error: unknown): { refused: string; message: string } {
  if (error instanceof Error && error.name === "Refusal" && "code" in error)
    return { refused: String(error.code), message: error.message };
  throw error;
}

async function compareReads(contestants: readonly Contestant[]): Promise<void> {
  const all = await Promise.all(
    contestants.map(async ({ world: { store } }) => [
      await store.read.log(makeLogQuery({ account: "a", count: 30 })),
      await store.read.log(
        makeOldestFirstQuery({ account: "b", count: 30, filter: { states: ["DELIVERED", "ERROR"] } }),
      ),
      await store.read.deadLetters(makeOldestFirstQuery({ account: "a", count: 3 })),
      await store.read.unfinished({
        account: "b",
        filter: { hosts: ["one.example"] },
        cursor: null,
        count: 3,
      }),
      await store.read.listQueueMessages({ account: "a", queue: "q1", limit: 5 }),
      await store.read.nextExpiryAt("a", { log: 5, deadLetters: 7 }),
      await store.read.usage("b", "12m", 1_800_000_000_000),
      ...(await readsOfRuns(store)),
    ]),
  );
  for (const other of all.slice(1)) expect(other).toEqual(all[0]);
}

async function readsOfRuns({ read }: Store): Promise<unknown[]> {
  const pages = await Promise.all(
    runFilters.map((filter) => read.runs({ account: "a", filter, cursor: null, count: 3 })),
  );
  const [{ runs, cursor } = { runs: [], cursor: null }] = pages;
  const behind = await read.runs({
    account: "a",
    filter: { to: runs.at(-1)?.createdAt ?? 0 },
    cursor,
    count: 2,
  });
  const each = runs.map(({ account, id, runId, createdAt }) =>
    Promise.all([
      read.runs({ account, filter: { runs: [{ runId, createdAt }] }, cursor: null, count: 2 }),
      read.run(account, id),
      read.activeRun(account, runId),
      read.history(account, id),
      read.history(account, id, { bodies: false }),
      read.listWaiters(account, id),
      read.listNotifications(account, id),
      read.listRunMessages(account, id),
    ]),
  );
  const waiters = await read.listEventWaiters("a", "paid", { limit: 2 });
  return [
    pages,
    behind,
    await Promise.all(each),
    waiters,
    await read.listEventWaiters("a", "paid", { after: waiters[0]?.id ?? "", limit: 1 }),
    await read.runLog({ account: "a", filter: {}, cursor: null, count: 5 }),
    await read.runLog({ account: "a", filter: {}, cursor: null, count: 5, byteLimit: 4_000 }),
  ];
}

/** The store in memory computes the figures from its rows. The others add them up with each batch. */
async function compareFigures(contestants: readonly Contestant[]): Promise<void> {
  const [first, ...others] = await Promise.all(
    contestants.map(({ world }) => world.store.read.storeFigures()),
  );
  for (const other of others) expect(other).toEqual(first);
}

async function compareTables(contestants: readonly Contestant[], effects: Effects): Promise<void> {
  const [first, ...others] = await Promise.all(contestants.map(({ dump }) => dump()));
  for (const other of others) expect(other).toEqual(first);
  if (first) {
    const messages = first.messages as MessageState[];
    const slots = first.queueSlots as QueueSlot[];
    const flows = first.limiters as Limiter[];
    expect(listWrongCounters({ messages, slots, flows }), "the counters of limiters match the rows").toEqual(
      [],
    );
  }
  if (first) expectStoredBytes(<T extends TableName>(name: T) => first[name] as Rows[T][]);
  for (const name of tableNames) if (first && first[name].length > 0) effects.seen.add(`rows in ${name}`);
  // Its message may wait for delivery capacity.
  if (first?.schedules.some((row) => (row as Schedule).lastMessages.length > 0)) effects.seen.add("fire");
  if (first)
    effects.noteRuns(
      first.runs.map((row) => (row as Run).id),
      first.steps.map((row) => textOf((row as Step).body)),
    );
}

const textOf = (body: Uint8Array): string => new TextDecoder().decode(body);

async function inMemory(clock: TestClock, seed: number): Promise<Contestant> {
  // SQLite reads at once, PostgreSQL in rounds and with hints. So this one has neither.
  const memory = new Memory({ readsAtOnce: false, usesHints: false });
  const dump = async (): Promise<Dump> => dumpOf(async (name) => [...memory.tables[name].values()]);
  return contestant(memoryStore(createSource(clock, "nod_a", seed), memory), clock, dump);
}

async function inSqlite(clock: TestClock, seed: number): Promise<Contestant> {
  const path = join(createTestFolder(), "store.db");
  const store = await sqliteStore(path, createSource(clock, "nod_a", seed));
  return contestant(store, clock, async () => {
    const database = openSqlite(path, { readOnly: true });
    const rows = await dumpSql(database.connection);
    expect(await database.connection.query("pragma integrity_check", [])).toEqual([
      { integrity_check: "ok" },
    ]);
    database.close();
    return rows;
  });
}

async function inPostgres(clock: TestClock, seed: number): Promise<Contestant> {
  const url = await freshDatabase();
  return contestant(await openNode(url, clock, { seed }), clock, async () => {
    const { connection, close } = openReaders({ url });
    return dumpSql(connection).finally(close);
  });
}

const contestant = (store: Store, clock: TestClock, dump: () => Promise<Dump>): Contestant => ({
  world: new StoreFixture(closeAfterTest(store), clock, "nod_a"),
  dump,
});

const dumpSql = (connection: DatabaseConnection): Promise<Dump> =>
  dumpOf(async (name) =>
    (await connection.query(`select * from ${tables[name].name}`, [])).map((row) => tables[name].read(row)),
  );

/** Returns all rows of all tables, in the order of their keys. */
async function dumpOf(rowsOf: (name: TableName) => Promise<unknown[]>): Promise<Dump> {
  const named = (name: TableName) => (row: unknown) => ({
    key: formatKey((toKey[name] as (row: unknown) => ReturnType<(typeof toKey)["log"]>)(row)),
    row,
  });
  const entries = tableNames.map(async (name) => {
    const rows = (await rowsOf(name)).map(named(name));
    return [name, rows.sort((a, b) => (a.key < b.key ? -1 : 1)).map(({ row }) => row)] as const;
  });
  return Object.fromEntries(await Promise.all(entries)) as Dump;
}
