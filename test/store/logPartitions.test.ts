import { Client } from "pg";
import { expect, onTestFinished, test } from "vitest";
import { freshDatabase } from "../postgres.ts";
import { makeTablesOf } from "./olderTables.ts";
import { ask, openNode } from "./postgresDatabase.ts";
import { closedAfterwards, latest, TestClock, World } from "./world.ts";

const day = 24 * 60 * 60 * 1000;

async function oneNode(url: string, clock: TestClock): Promise<World> {
  const world = new World(closedAfterwards(await openNode(url, clock)), clock, "nod_a");
  await world.account();
  return world;
}

/** What follows on each other: deliver one, and let a day pass. */
async function days(world: World, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let turn = 0; turn < count; turn++) {
    const delivery = await world.sent();
    await world.settle(delivery);
    ids.push(delivery.message.id);
    world.clock.now += day;
  }
  return ids;
}

/** The messages of which the log shows something, the last one first. */
const seen = async (world: World): Promise<string[]> => [
  ...new Set((await world.store.read.log(latest())).events.map(({ envelope }) => envelope.id)),
];

const partsOf = async (url: string): Promise<unknown[]> =>
  (await ask(url, "select inhrelid::regclass::text as name from pg_inherits where inhparent = 'log'::regclass order by 1")).map(
    ({ name }) => name,
  );

const rowsOf = async (url: string): Promise<unknown> => (await ask(url, "select count(*)::int as n from log"))[0]?.["n"];

const expire = (world: World, log: number) =>
  world.store.execute("expire", { account: "acc", retention: { log, deadLetters: log }, now: world.clock.now, limit: 100 });

test("each day has its part, which is there before its first row", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url, new TestClock());
  const first = Math.floor(world.clock.now / day);
  await days(world, 3);
  const parts = [0, 1, 2].map((index) => `log_day_${first + index}`);
  expect(await partsOf(url)).toEqual(expect.arrayContaining(["log_before", ...parts]));
  for (const part of parts) expect(await ask(url, `select count(*)::int as n from ${part}`)).toEqual([{ n: 1 }]);
});

test("what is past its time is seen no more, is not deleted row by row, and goes with its day; its messages go at once", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url, new TestClock());
  const first = Math.floor(world.clock.now / day);
  const ids = await days(world, 4);
  const kept = 2 * day;
  await world.store.forgetBefore(world.clock.now - kept);
  // Nobody has been through it, so nothing is dropped.
  expect(await partsOf(url)).toContain(`log_day_${first}`);
  // Two lines of the log, four buckets of usage, and the sightings of two days.
  expect(await expire(world, kept)).toEqual({ removed: 14, more: false });
  expect(await rowsOf(url)).toBe(4);
  expect(await seen(world)).toEqual([ids[3], ids[2]]);
  expect(await world.states(ids[0] ?? "")).toEqual([]);
  expect(await ask(url, "select count(*)::int as n from envelopes")).toEqual([{ n: 2 }]);
  // A second time there is nothing left to do, and nothing is found again.
  expect(await expire(world, kept)).toEqual({ removed: 0, more: false });
  await world.store.forgetBefore(world.clock.now - kept);
  expect(await partsOf(url)).not.toContain("log_before");
  expect(await partsOf(url)).not.toContain(`log_day_${first}`);
  expect(await partsOf(url)).toContain(`log_day_${first + 2}`);
  expect(await seen(world)).toEqual([ids[3], ids[2]]);
});

test("an account that keeps its log for less time has its rows deleted, as those days stay for others", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url, new TestClock());
  await days(world, 4);
  await world.store.forgetBefore(world.clock.now - 30 * day);
  expect(await expire(world, 2 * day)).toEqual({ removed: 14, more: false });
  expect(await rowsOf(url)).toBe(2);
});

test("a dead letter that outlives its line of the log takes its message with it, although the row of that line is still there", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url, new TestClock());
  const { dlqId } = await world.die();
  world.clock.now += 2 * day;
  await world.store.forgetBefore(world.clock.now - day);
  const retention = { log: day, deadLetters: 30 * day };
  await world.store.execute("expire", { account: "acc", retention, now: world.clock.now, limit: 100 });
  expect(await rowsOf(url)).toBe(1);
  expect((await world.store.read.deadLetter("acc", dlqId))?.envelope.body.byteLength).toBeGreaterThan(0);
  expect(await world.store.execute("deleteDeadLetters", { account: "acc", dlqIds: [dlqId], logRetention: day })).toMatchObject({
    deleted: 1,
  });
  expect(await ask(url, "select count(*)::int as n from envelopes")).toEqual([{ n: 0 }]);
});

test("of an account that is gone nothing is noted any more, when no day is left that could hold lines of it", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url, new TestClock());
  await world.account("other");
  await days(world, 2);
  await world.store.execute("changeAccount", { account: "acc", change: { state: "passive" } });
  await world.store.execute("deleteAccount", { account: "acc" });
  world.clock.now += 40 * day;
  const [kept, noted] = [41 * day, () => ask(url, "select account from log_forgotten")];
  await world.store.forgetBefore(world.clock.now - kept);
  await expire(world, day);
  expect(await world.store.execute("removeAccount", { account: "acc", beside: "other" })).toEqual({ removed: true });
  await world.store.forgetBefore(world.clock.now - kept);
  expect([await rowsOf(url), await noted()], "a line is there still, and would be seen again").toEqual([1, [{ account: "acc" }]]);
  world.clock.now += 20 * day;
  await world.store.forgetBefore(world.clock.now - kept);
  expect([await rowsOf(url), await noted()]).toEqual([0, []]);
});

test("a day is not dropped while others read it for long, and nobody who writes waits for that", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url, new TestClock());
  const first = Math.floor(world.clock.now / day);
  await days(world, 4);
  const kept = 2 * day;
  await world.store.forgetBefore(world.clock.now - kept);
  await expire(world, kept);
  const reader = new Client({ connectionString: url });
  await reader.connect();
  onTestFinished(() => reader.end());
  await reader.query("begin isolation level repeatable read; select count(*) from log");
  await world.store.forgetBefore(world.clock.now - kept);
  expect(await partsOf(url)).toContain(`log_day_${first}`);
  // A new day finds its part all the same.
  await days(world, 2);
  await reader.query("commit");
  await world.store.forgetBefore(world.clock.now - kept);
  expect(await partsOf(url)).not.toContain(`log_day_${first}`);
});

test("a part that somebody took away is made again by whoever writes", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url, new TestClock());
  await days(world, 2);
  const today = `log_day_${Math.floor(world.clock.now / day)}`;
  const delivery = await world.sent();
  await ask(url, `drop table ${today}`);
  await world.settle(delivery);
  expect(await partsOf(url)).toContain(today);
  expect(await seen(world)).toContain(delivery.message.id);
});

test("nodes that drop the same days at once do it once, and none of them fails", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const worlds = [await oneNode(url, clock)];
  for (const node of ["nod_b", "nod_c"]) worlds.push(new World(closedAfterwards(await openNode(url, clock, { node })), clock, node));
  const [first] = worlds;
  if (!first) throw new Error("one at least");
  const [day0, kept] = [Math.floor(clock.now / day), 2 * day];
  await days(first, 5);
  await first.store.forgetBefore(clock.now - 5 * day);
  await expire(first, kept);
  await Promise.all(worlds.map(({ store }) => store.forgetBefore(clock.now - kept)));
  const left = await partsOf(url);
  for (const gone of ["log_before", `log_day_${day0}`, `log_day_${day0 + 1}`]) expect(left).not.toContain(gone);
  expect(left).toContain(`log_day_${day0 + 3}`);
});

test("of a log that is kept for less than a day only what is old enough is told of by its last line", async () => {
  const url = await freshDatabase();
  const clock = new TestClock(Math.ceil((new TestClock().now + day) / day) * day + day / 2);
  const world = await oneNode(url, clock);
  await world.store.execute("changeAccount", { account: "acc", change: { limits: { logEntries: 1 } } });
  const minute = 60_000;
  // A line of another node, whose transaction began before, may still come in among these.
  const deliver = async (): Promise<void> => void (await world.settle(await world.sent()));
  await deliver();
  clock.now += minute;
  await deliver();
  await deliver();
  await world.store.forgetBefore(clock.now - minute);
  const { id } = await world.store.read.tooMany("log", "acc", 1);
  await world.store.execute("trim", { account: "acc", tooMany: { log: { id: id ?? "", most: 1 }, deadLetters: null }, limit: 100 });
  expect(await seen(world)).toHaveLength(1);
  expect(await ask(url, "select * from log_forgotten")).toEqual([]);
});

test("the log of a database of the version before becomes the first part of the new one", async () => {
  const [made, url] = [await freshDatabase(), await freshDatabase()];
  const clock = new TestClock();
  const world = await oneNode(made, clock);
  const ids = await days(world, 2);
  await world.store.close();
  await makeTablesOf(3, "postgres", (sql) => ask(url, sql));
  for (const table of ["accounts", "envelopes", "log"]) await copy(table, { from: made, to: url });
  const again = new World(closedAfterwards(await openNode(url, clock)), clock, "nod_b");
  expect(await seen(again)).toEqual(ids.toReversed());
  expect(await partsOf(url)).toEqual(["log_before"]);
  const [next] = await days(again, 1);
  expect(await seen(again)).toEqual([next, ...ids.toReversed()]);
});

async function copy(table: string, { from, to }: { from: string; to: string }): Promise<void> {
  const [row] = await ask(from, `select json_agg(one)::text as rows from ${table} as one`);
  await ask(
    to,
    `insert into ${table} select * from json_populate_recordset(null::${table}, '${String(row?.["rows"]).replaceAll("'", "''")}')`,
  );
}
