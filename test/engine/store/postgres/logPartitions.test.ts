import { Client } from "pg";
import { expect, onTestFinished, test } from "vitest";
import { freshDatabase } from "../../../postgres.ts";
import { ask, openNode } from "./postgresDatabase.ts";
import { closeAfterTest, makeLogQuery, TestClock, StoreFixture } from "../storeFixture.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

const day = 24 * 60 * 60 * 1000;

async function oneNode(url: string, clock: TestClock): Promise<StoreFixture> {
  const world = new StoreFixture(closeAfterTest(await openNode(url, clock)), clock, "nod_a");
  await world.account();
  return world;
}

/** Delivers one message per day, and returns the ids in that order. */
async function days(world: StoreFixture, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let turn = 0; turn < count; turn++) {
    const delivery = await world.sent();
    await world.settle(delivery);
    ids.push(delivery.message.id);
    world.clock.now += day;
  }
  return ids;
}

/** Returns the ids of messages in the log, newest first. */
const seen = async (world: StoreFixture): Promise<string[]> => [
  ...new Set((await world.store.read.log(makeLogQuery())).events.map(({ message }) => message.id)),
];

const partsOf = async (url: string): Promise<unknown[]> =>
  (
    await ask(
      url,
      "select inhrelid::regclass::text as name from pg_inherits where inhparent = 'log'::regclass order by 1",
    )
  ).map(({ name }) => name);

const rowsOf = async (url: string): Promise<unknown> =>
  (await ask(url, "select count(*)::int as n from log"))[0]?.["n"];

const keptIn = async (url: string): Promise<unknown> =>
  (await ask(url, "select count(*)::int as n from kept_log"))[0]?.["n"];

const expire = (world: StoreFixture, log: number) =>
  world.store.execute("expire", {
    account: "acc",
    retention: { log, deadLetters: log },
    now: world.clock.now,
    limit: 100,
  });

test("each day has a partition that exists before its first row", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url, new TestClock());
  const first = Math.floor(world.clock.now / day);
  await days(world, 3);
  const parts = [0, 1, 2].map((index) => `log_day_${first + index}`);
  expect(await partsOf(url)).toEqual(expect.arrayContaining(parts));
  for (const part of parts)
    expect(await ask(url, `select count(*)::int as n from ${part}`)).toEqual([{ n: 1 }]);
});

test("expired log entries are hidden at once, and dropped together with their day", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url, new TestClock());
  const first = Math.floor(world.clock.now / day);
  const ids = await days(world, 4);
  const kept = 2 * day;
  await world.store.forgetBefore(world.clock.now - kept);
  // Nothing has been expired yet, so nothing is dropped.
  expect(await partsOf(url)).toContain(`log_day_${first}`);
  // Two log entries, four usage buckets, and the time index of two days.
  expect(await expire(world, kept)).toEqual({ removed: 14, more: false });
  expect(await rowsOf(url)).toBe(4);
  expect(await seen(world)).toEqual([ids[3], ids[2]]);
  expect(await world.states(ids[0] ?? "")).toEqual([]);
  expect(await ask(url, "select count(*)::int as n from stored_messages")).toEqual([{ n: 2 }]);
  // A second run finds nothing to remove.
  expect(await expire(world, kept)).toEqual({ removed: 0, more: false });
  await world.store.forgetBefore(world.clock.now - kept);
  expect(await partsOf(url)).not.toContain(`log_day_${first}`);
  expect(await partsOf(url)).toContain(`log_day_${first + 2}`);
  expect(await seen(world)).toEqual([ids[3], ids[2]]);
});

test("an account with a shorter log retention has its rows deleted one by one", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url, new TestClock());
  await days(world, 4);
  await world.store.forgetBefore(world.clock.now - 30 * day);
  expect(await expire(world, 2 * day)).toEqual({ removed: 14, more: false });
  expect(await rowsOf(url)).toBe(2);
});

test("a dead letter that outlives the log takes its message and log with it when it is deleted", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url, new TestClock());
  const { dlqId } = await world.publishFailing();
  world.clock.now += 2 * day;
  await world.store.forgetBefore(world.clock.now - day);
  const retention = { log: day, deadLetters: 30 * day };
  await world.store.execute("expire", { account: "acc", retention, now: world.clock.now, limit: 100 });
  expect([await rowsOf(url), await keptIn(url)]).toEqual([1, 1]);
  const entry = await world.store.read.deadLetter("acc", dlqId);
  expect(entry?.message.body.byteLength).toBeGreaterThan(0);
  expect(await world.states(entry?.message.id ?? "")).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
  expect(
    await world.store.execute("bulk", makeDeletion({ account: "acc", dlqIds: [dlqId], logRetention: day })),
  ).toMatchObject({
    done: 1,
  });
  expect(await ask(url, "select count(*)::int as n from stored_messages")).toEqual([{ n: 0 }]);
  expect([await rowsOf(url), await keptIn(url)]).toEqual([1, 0]);
});

/**
 * Creates three messages on the same day: one delivered, one failed for good after a retry, and one that
 * waits for its next retry.
 */
async function threeKinds(
  world: StoreFixture,
): Promise<{ done: string; dead: string; waiting: string; dlqId: string }> {
  const done = await world.sent();
  const dead = await world.sent({ retries: 1, retryDelay: "1000" });
  const waiting = await world.sent({ retries: 3 });
  await world.settle(done);
  await world.settle(dead, { status: 500 });
  await world.settle(waiting, { status: 500, headers: [["Retry-After", String((5 * day) / 1_000)]] });
  world.clock.now += 1_000;
  for (const delivery of await world.claim()) await world.settle(delivery, { status: 500 });
  const [found] = (await world.store.read.deadLetters(makeLogQuery())).entries;
  if (!found) throw new Error("no message has failed for good");
  return {
    done: done.message.id,
    dead: dead.message.id,
    waiting: waiting.message.id,
    dlqId: found.deadLetter.id,
  };
}

const dead = ["CREATED", "ACTIVE", "ERROR", "RETRY", "ACTIVE", "ERROR", "FAILED"];
const waiting = ["CREATED", "ACTIVE", "ERROR", "RETRY"];

const keeping = (world: StoreFixture, limit: number) =>
  world.store.execute("expire", {
    account: "acc",
    retention: { log: day, deadLetters: 30 * day },
    now: world.clock.now,
    limit,
  });

test("log entries to keep move before their day is dropped, even if nodes die at any point", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  let world = await oneNode(url, clock);
  const part = `log_day_${Math.floor(clock.now / day)}`;
  const ids = await threeKinds(world);
  clock.now += 2 * day;
  // The day has five log entries.
  for (let turn = 0; turn < 5; turn++) {
    await world.store.forgetBefore(clock.now - day);
    expect(await partsOf(url), "the day holds entries that have not moved").toContain(part);
    expect([await world.states(ids.dead), await world.states(ids.waiting)]).toEqual([dead, waiting]);
    await keeping(world, 1);
    // The node dies after one entry, and loses all it knew.
    world = new StoreFixture(
      closeAfterTest(await openNode(url, clock, { node: `nod_${turn}` })),
      clock,
      `nod_${turn}`,
    );
  }
  await world.store.forgetBefore(clock.now - day);
  expect(await partsOf(url)).not.toContain(part);
  expect([
    await world.states(ids.dead),
    await world.states(ids.waiting),
    await world.states(ids.done),
  ]).toEqual([dead, waiting, []]);
  expect([await rowsOf(url), await keptIn(url)]).toEqual([0, 4]);
  // The dead letter is deleted together with its log. The unfinished message keeps its log until a day after
  // it has finished.
  await world.store.execute("bulk", makeDeletion({ account: "acc", dlqIds: [ids.dlqId], logRetention: day }));
  expect([await world.states(ids.dead), await world.states(ids.waiting), await keptIn(url)]).toEqual([
    [],
    waiting,
    1,
  ]);
  clock.now += 4 * day;
  for (const delivery of await world.claim()) await world.settle(delivery);
  clock.now += day;
  await keeping(world, 100);
  expect(await world.states(ids.waiting)).toEqual([...waiting, "ACTIVE", "DELIVERED"]);
  clock.now += 1;
  await keeping(world, 100);
  expect([await world.states(ids.waiting), await keptIn(url)]).toEqual([[], 0]);
  expect(await ask(url, "select count(*)::int as n from stored_messages")).toEqual([{ n: 0 }]);
});

test("nodes expire the same log exactly while dead letters are deleted", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const world = await oneNode(url, clock);
  const others = ["nod_b", "nod_c"].map(
    async (node) => new StoreFixture(closeAfterTest(await openNode(url, clock, { node })), clock, node),
  );
  const worlds = [world, ...(await Promise.all(others))];
  const all: Awaited<ReturnType<typeof threeKinds>>[] = [];
  for (let turn = 0; turn < 12; turn++) all.push(await threeKinds(world));
  const gone = all.slice(0, 6);
  const kept = all.slice(6);
  clock.now += 2 * day;
  await Promise.all([
    ...worlds.map(async (one) => {
      while ((await keeping(one, 5)).more);
    }),
    ...gone.map(({ dlqId }, at) =>
      worlds[at % 3]?.store.execute(
        "bulk",
        makeDeletion({
          account: "acc",
          dlqIds: [dlqId],
          logRetention: day,
        }),
      ),
    ),
  ]);
  for (const ids of kept)
    expect([await world.states(ids.dead), await world.states(ids.waiting)]).toEqual([dead, waiting]);
  for (const ids of gone)
    expect([await world.states(ids.dead), await world.states(ids.waiting)]).toEqual([[], waiting]);
  expect(await keptIn(url)).toBe(6 * 4 + 6);
});

test("the cut of a removed account is forgotten once no day can hold its log entries", async () => {
  const url = await freshDatabase();
  const world = await oneNode(url, new TestClock());
  await world.account("other");
  await days(world, 2);
  await world.store.execute("changeAccount", { account: "acc", change: { state: "passive" } });
  await world.store.execute("deleteAccount", { account: "acc" });
  world.clock.now += 40 * day;
  const kept = 41 * day;
  const noted = () => ask(url, "select account from log_cuts");
  await world.store.forgetBefore(world.clock.now - kept);
  await expire(world, day);
  expect(await world.store.execute("removeAccount", { account: "acc", remaining: "other" })).toEqual({
    removed: true,
  });
  await world.store.forgetBefore(world.clock.now - kept);
  expect([await rowsOf(url), await noted()], "one entry is left, and would be shown again").toEqual([
    1,
    [{ account: "acc" }],
  ]);
  world.clock.now += 20 * day;
  await world.store.forgetBefore(world.clock.now - kept);
  expect([await rowsOf(url), await noted()]).toEqual([0, []]);
});

test("a day is not dropped during a long read, and writers do not wait for the read", async () => {
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
  // A new day still gets its partition.
  await days(world, 2);
  await reader.query("commit");
  await world.store.forgetBefore(world.clock.now - kept);
  expect(await partsOf(url)).not.toContain(`log_day_${first}`);
});

test("a writer creates a removed partition again", async () => {
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

test("nodes that drop the same days at the same time drop them once, and none fails", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const worlds = [await oneNode(url, clock)];
  for (const node of ["nod_b", "nod_c"])
    worlds.push(new StoreFixture(closeAfterTest(await openNode(url, clock, { node })), clock, node));
  const [first] = worlds;
  if (!first) throw new Error("no node");
  const day0 = Math.floor(clock.now / day);
  const kept = 2 * day;
  await days(first, 5);
  await first.store.forgetBefore(clock.now - 5 * day);
  await expire(first, kept);
  await Promise.all(worlds.map(({ store }) => store.forgetBefore(clock.now - kept)));
  const left = await partsOf(url);
  for (const gone of [`log_day_${day0}`, `log_day_${day0 + 1}`]) expect(left).not.toContain(gone);
  expect(left).toContain(`log_day_${day0 + 3}`);
});

test("entries of the last ten minutes are deleted one by one, even if their day has expired", async () => {
  const url = await freshDatabase();
  const clock = new TestClock(Math.ceil((new TestClock().now + day) / day) * day + day / 2);
  const world = await oneNode(url, clock);
  await world.store.execute("changeAccount", { account: "acc", change: { limits: { logEntries: 1 } } });
  const minute = 60_000;
  // Another node's transaction may have begun earlier and add an entry among these.
  const deliver = async (): Promise<void> => void (await world.settle(await world.sent()));
  await deliver();
  clock.now += minute;
  await deliver();
  await deliver();
  await world.store.forgetBefore(clock.now - minute);
  const { id } = await world.store.read.findOverLimit("log", "acc", 1);
  await world.store.execute("trim", {
    account: "acc",
    tooMany: { log: { id: id ?? "", limit: 1 }, keptLog: null, deadLetters: null, audit: null },
    limit: 100,
  });
  expect(await seen(world)).toHaveLength(1);
  expect(await ask(url, "select * from log_cuts")).toEqual([]);
});
