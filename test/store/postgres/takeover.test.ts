import { expect, onTestFinished, test } from "vitest";
import { spans } from "../../../src/core/values/limits.ts";
import { freshDatabase } from "../../postgres.ts";
import { ask, openNode } from "./postgresDatabase.ts";
import { startProxy } from "./postgresProxy.ts";
import { closeAfterTest, TestClock, StoreFixture } from "../storeFixture.ts";

// The sessions by which nodes see that others are there, on a real database: see docs/decisions/0051.

/** The server is shared with other tests. */
const ofSessions = `locktype = 'advisory' and objsubid = 1 and database = (select oid from pg_database where datname = current_database())`;

const until = async (isSo: () => Promise<boolean>): Promise<void> => {
  while (!(await isSo())) await new Promise((resolve) => setTimeout(resolve, 10));
};

async function nodes(url: string): Promise<[StoreFixture, StoreFixture]> {
  const clock = new TestClock();
  const open = async (node: string) => new StoreFixture(closeAfterTest(await openNode(url, clock, { node })), clock, node);
  return [await open("nod_a"), await open("nod_b")];
}

const sessionOf = async (url: string, node: string): Promise<number> =>
  Number((await ask(url, `select session from nodes where id = '${node}'`))[0]?.["session"]);

const takeOver = (world: StoreFixture, session: number) =>
  world.store.execute("takeOver", { node: "nod_a", session, now: world.clock.now, limit: 10 });

test("the leases of a session become due, those of a later one and of other nodes do not", async () => {
  const url = await freshDatabase();
  const [a, b] = await nodes(url);
  await a.account();
  const mine = await a.sent();
  const theirs = await b.sent();
  const session = await sessionOf(url, "nod_a");
  expect(session).toBe(1);
  expect(await takeOver(b, session + 1)).toEqual({ reclaimed: 0 });
  expect(await takeOver(b, session)).toEqual({ reclaimed: 1 });
  expect(await takeOver(b, session)).toEqual({ reclaimed: 0 });
  await b.store.execute("claim", { limit: 10 });
  const [again] = b.delivered();
  expect(again?.message.id).toBe(mine.message.id);
  expect(await b.states(mine.message.id)).toEqual(["CREATED", "ACTIVE", "ERROR", "RETRY", "ACTIVE"]);
  expect(await b.states(theirs.message.id)).toEqual(["CREATED", "ACTIVE"]);
  // Its node reports late, and is not heard.
  expect(await a.settle(mine)).toMatchObject({ became: "late" });
});

test("messages that are due or delayed beyond any lease are not looked at", async () => {
  const url = await freshDatabase();
  const [a, b] = await nodes(url);
  await a.account();
  await a.sent();
  await ask(url, `update messages set due_at = due_at + ${3 * spans.lease}`);
  expect(await takeOver(b, 1)).toEqual({ reclaimed: 0 });
});

test("a node whose connection is ended begins another session, and takes its hold again", async () => {
  const url = await freshDatabase();
  const [a] = await nodes(url);
  const { sessionLease } = a.store;
  const changes: boolean[] = [];
  sessionLease?.onChange(() => changes.push(sessionLease.isHeld()));
  const held = async (): Promise<boolean> =>
    (await ask(url, `select count(*)::int as count from pg_locks where ${ofSessions}`))[0]?.["count"] === 2;
  await until(held);
  // Only a node that has seen another one has something to lose.
  await until(async () => {
    await ask(url, `select pg_terminate_backend(pid) from pg_locks where ${ofSessions}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
    return changes.includes(false);
  });
  await until(async () => sessionLease?.isHeld() === true && (await held()));
  expect(await sessionOf(url, "nod_a")).toBeGreaterThan(1);
  expect(await sessionOf(url, "nod_b")).toBeGreaterThan(1);
});

/** A user that may make tables and do nothing else, and the URL with which it comes. */
async function plainUser(url: string): Promise<string> {
  const name = `plain_${new URL(url).pathname.slice(1)}`;
  await ask(url, `create role ${name} login`);
  await ask(url, `grant create, usage on schema public to ${name}`);
  onTestFinished(async () => {
    await ask(url, `drop owned by ${name}`);
    await ask(url, `drop role ${name}`);
  });
  const own = new URL(url);
  own.username = name;
  return own.href;
}

const locksIn = async (url: string): Promise<number> => (await ask(url, `select 1 from pg_locks where ${ofSessions}`)).length;

test("a user without any privilege beyond its own tables has a hold", async () => {
  const url = await freshDatabase();
  const own = await plainUser(url);
  const store = closeAfterTest(await openNode(own, new TestClock(), { node: "nod_a" }));
  expect(store.sessionLease?.isHeld()).toBe(true);
  expect([await sessionOf(url, "nod_a"), await locksIn(url)]).toEqual([1, 1]);
});

test("a user who may not look has no session that others could see, and sends", async () => {
  const url = await freshDatabase();
  const own = await plainUser(url);
  await ask(url, "revoke execute on function pg_walfile_name(pg_lsn) from public");
  const store = closeAfterTest(await openNode(own, new TestClock(), { node: "nod_a" }));
  expect(store.sessionLease?.isHeld()).toBe(true);
  expect([await ask(url, "select 1 from nodes"), await locksIn(url)]).toEqual([[], 0]);
});

test("a user who may not look any more gives its hold up, so that nobody takes over from it, and sends", async () => {
  const url = await freshDatabase();
  const own = await plainUser(url);
  const store = closeAfterTest(await openNode(own, new TestClock(), { node: "nod_a" }));
  await ask(url, "revoke execute on function pg_walfile_name(pg_lsn) from public");
  await ask(url, `select pg_terminate_backend(pid) from pg_locks where ${ofSessions}`);
  await until(async () => (await sessionOf(url, "nod_a")) === 2);
  await until(async () => store.sessionLease?.isHeld() === true);
  expect(await locksIn(url)).toBe(0);
});

/** Two nodes, of which the first one comes through something that swallows what the database says to some of its connections. */
async function nodesBehind(swallows: { application: string | null }) {
  const url = await freshDatabase();
  const clock = new TestClock();
  const through = await startProxy(url, { loses: (_, application) => application === swallows.application || swallows.application === "" });
  const open = async (node: string, at: string) => new StoreFixture(closeAfterTest(await openNode(at, clock, { node })), clock, node);
  const b = await open("nod_b", url);
  const a = await open("nod_a", through);
  return { url, a, b };
}

test("a node takes its hold as lost when its connection alone is silent, and takes it again", { tags: "long" }, async () => {
  const swallows: { application: string | null } = { application: null };
  const { url, a, b } = await nodesBehind(swallows);
  const { sessionLease } = a.store;
  let lostFor = 0;
  sessionLease?.onChange(() => (lostFor = sessionLease.isHeld() ? lostFor : sessionLease.lostFor()));
  swallows.application = "waypost listener";
  await until(async () => sessionLease?.isHeld() === false);
  expect(lostFor).toBeGreaterThanOrEqual(0);
  expect(b.store.sessionLease?.isHeld()).toBe(true);
  swallows.application = null;
  await until(async () => sessionLease?.isHeld() === true);
  expect(await sessionOf(url, "nod_a")).toBeGreaterThan(1);
});

test(
  "a node keeps its hold when the whole database is silent, and can be closed meanwhile",
  { tags: "long", timeout: 25_000 },
  async () => {
    const swallows: { application: string | null } = { application: null };
    const { a } = await nodesBehind(swallows);
    const changes: unknown[] = [];
    a.store.sessionLease?.onChange(() => changes.push(a.store.sessionLease?.isHeld()));
    swallows.application = "";
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    expect(changes).toEqual([]);
    await a.store.close();
  },
);

test("a node that ends in order leaves no session", async () => {
  const url = await freshDatabase();
  const [a] = await nodes(url);
  await a.store.close();
  expect(await sessionOf(url, "nod_a")).toBe(0);
});
