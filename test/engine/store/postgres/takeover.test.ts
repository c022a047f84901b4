import { expect, onTestFinished, test } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import { freshDatabase } from "../../../postgres.ts";
import { ask, openNode } from "./postgresDatabase.ts";
import { startProxy } from "./postgresProxy.ts";
import { closeAfterTest, TestClock, StoreFixture } from "../storeFixture.ts";

// Nodes see each other's memberships on a real database: see docs/decisions/0051.

/** Limits a query to this database, because other tests share the server. */
const ofMemberships =
  "locktype = 'advisory' and objsubid = 1 " +
  "and database = (select oid from pg_database where datname = current_database())";

const until = async (isSo: () => Promise<boolean>): Promise<void> => {
  while (!(await isSo())) await new Promise((resolve) => setTimeout(resolve, 10));
};

async function nodes(url: string): Promise<[StoreFixture, StoreFixture]> {
  const clock = new TestClock();
  const open = async (node: string) =>
    new StoreFixture(closeAfterTest(await openNode(url, clock, { node })), clock, node);
  return [await open("nod_a"), await open("nod_b")];
}

const membershipOf = async (url: string, node: string): Promise<number> =>
  Number((await ask(url, `select session from nodes where id = '${node}'`))[0]?.["session"]);

const takeOver = (world: StoreFixture, membership: number) =>
  world.store.execute("takeOver", { node: "nod_a", membership, now: world.clock.now, limit: 10 });

test("a takeover makes due only the leases of the given membership", async () => {
  const url = await freshDatabase();
  const [a, b] = await nodes(url);
  await a.account();
  const mine = await a.sent();
  const theirs = await b.sent();
  const membership = await membershipOf(url, "nod_a");
  expect(membership).toBe(1);
  expect(await takeOver(b, membership + 1)).toEqual({ reclaimed: 0 });
  expect(await takeOver(b, membership)).toEqual({ reclaimed: 1 });
  expect(await takeOver(b, membership)).toEqual({ reclaimed: 0 });
  await b.store.execute("claim", { limit: 10 });
  const [again] = b.delivered();
  expect(again?.message.id).toBe(mine.message.id);
  expect(await b.states(mine.message.id)).toEqual(["CREATED", "ACTIVE", "ERROR", "RETRY", "ACTIVE"]);
  expect(await b.states(theirs.message.id)).toEqual(["CREATED", "ACTIVE"]);
  // The first node reports its outcome too late, so it does not count.
  expect(await a.settle(mine)).toMatchObject({ became: "late" });
});

test("a takeover ignores messages that are due later than any lease", async () => {
  const url = await freshDatabase();
  const [a, b] = await nodes(url);
  await a.account();
  await a.sent();
  await ask(url, `update messages set due_at = due_at + ${3 * spans.lease}`);
  expect(await takeOver(b, 1)).toEqual({ reclaimed: 0 });
});

test("a node whose connection ends begins another membership and takes its lease again", async () => {
  const url = await freshDatabase();
  const [a] = await nodes(url);
  const { membership } = a.store.upkeep;
  const changes: boolean[] = [];
  membership.onChange(() => changes.push(membership.isAlive()));
  const bothTaken = async (): Promise<boolean> =>
    (await ask(url, `select count(*)::int as count from pg_locks where ${ofMemberships}`))[0]?.["count"] ===
    2;
  await until(bothTaken);
  // A node can lose its membership only after it has seen another node.
  await until(async () => {
    await ask(url, `select pg_terminate_backend(pid) from pg_locks where ${ofMemberships}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
    return changes.includes(false);
  });
  await until(async () => membership.isAlive() && (await bothTaken()));
  expect(await membershipOf(url, "nod_a")).toBeGreaterThan(1);
  expect(await membershipOf(url, "nod_b")).toBeGreaterThan(1);
});

/** Creates a user that may only create tables. Returns the URL for that user. */
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

const locksIn = async (url: string): Promise<number> =>
  (await ask(url, `select 1 from pg_locks where ${ofMemberships}`)).length;

test("a node with no privilege beyond its own tables has a membership", async () => {
  const url = await freshDatabase();
  const own = await plainUser(url);
  const store = closeAfterTest(await openNode(own, new TestClock(), { node: "nod_a" }));
  expect(store.upkeep.membership.isAlive()).toBe(true);
  expect([await membershipOf(url, "nod_a"), await locksIn(url)]).toEqual([1, 1]);
});

test("a node that may not look at others has no visible membership, and delivers", async () => {
  const url = await freshDatabase();
  const own = await plainUser(url);
  await ask(url, "revoke execute on function pg_walfile_name(pg_lsn) from public");
  const store = closeAfterTest(await openNode(own, new TestClock(), { node: "nod_a" }));
  expect(store.upkeep.membership.isAlive()).toBe(true);
  expect([await ask(url, "select 1 from nodes"), await locksIn(url)]).toEqual([[], 0]);
});

test("a node that may no longer look at others abandons its membership, and delivers", async () => {
  const url = await freshDatabase();
  const own = await plainUser(url);
  const store = closeAfterTest(await openNode(own, new TestClock(), { node: "nod_a" }));
  await ask(url, "revoke execute on function pg_walfile_name(pg_lsn) from public");
  await ask(url, `select pg_terminate_backend(pid) from pg_locks where ${ofMemberships}`);
  await until(async () => (await membershipOf(url, "nod_a")) === 2);
  await until(async () => store.upkeep.membership.isAlive());
  expect(await locksIn(url)).toBe(0);
});

/**
 * Opens two nodes. The first one uses a proxy that drops what the database sends on some of its connections.
 */
async function nodesBehind(swallows: { application: string | null }) {
  const url = await freshDatabase();
  const clock = new TestClock();
  const through = await startProxy(url, {
    loses: (_, application) => application === swallows.application || swallows.application === "",
  });
  const open = async (node: string, at: string) =>
    new StoreFixture(closeAfterTest(await openNode(at, clock, { node })), clock, node);
  const b = await open("nod_b", url);
  const a = await open("nod_a", through);
  return { url, a, b };
}

test(
  "a node loses its membership when only its own connection is silent, and takes it again",
  { tags: "long" },
  async () => {
    const swallows: { application: string | null } = { application: null };
    const { url, a, b } = await nodesBehind(swallows);
    const { membership } = a.store.upkeep;
    let lostFor = 0;
    membership.onChange(() => (lostFor = membership.isAlive() ? lostFor : membership.lostFor()));
    swallows.application = "waypost listener";
    await until(async () => !membership.isAlive());
    expect(lostFor).toBeGreaterThanOrEqual(0);
    expect(b.store.upkeep.membership.isAlive()).toBe(true);
    swallows.application = null;
    await until(async () => membership.isAlive());
    expect(await membershipOf(url, "nod_a")).toBeGreaterThan(1);
  },
);

test(
  "a node keeps its membership when the whole database is silent, and can be closed",
  { tags: "long" },
  async () => {
    const swallows: { application: string | null } = { application: null };
    const { a } = await nodesBehind(swallows);
    const changes: unknown[] = [];
    a.store.upkeep.membership.onChange(() => changes.push(a.store.upkeep.membership.isAlive()));
    swallows.application = "";
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    expect(changes).toEqual([]);
    await a.store.close();
  },
);

test("a node that shuts down in order leaves no membership", async () => {
  const url = await freshDatabase();
  const [a] = await nodes(url);
  await a.store.close();
  expect(await membershipOf(url, "nod_a")).toBe(0);
});
