import { expect, onTestFinished, test } from "vitest";
import { spans } from "../../src/core/limits.ts";
import { freshDatabase } from "../postgres.ts";
import { ask, openNode } from "./postgresDatabase.ts";
import { closedAfterwards, TestClock, World } from "./world.ts";

// The sessions by which nodes see that others are there, on a real database: see docs/decisions/0051.

const until = async (isSo: () => Promise<boolean>): Promise<void> => {
  while (!(await isSo())) await new Promise((resolve) => setTimeout(resolve, 10));
};

async function nodes(url: string): Promise<[World, World]> {
  const clock = new TestClock();
  const open = async (node: string) => new World(closedAfterwards(await openNode(url, clock, { node })), clock, node);
  return [await open("nod_a"), await open("nod_b")];
}

const sessionOf = async (url: string, node: string): Promise<number> =>
  Number((await ask(url, `select session from nodes where id = '${node}'`))[0]?.["session"]);

const takeOver = (world: World, session: number) =>
  world.store.execute("takeOver", { node: "nod_a", session, now: world.clock.now, limit: 10 });

test("the leases of a session become due, those of a later one and of other nodes do not", async () => {
  const url = await freshDatabase();
  const [a, b] = await nodes(url);
  await a.account();
  const [mine, theirs] = [await a.sent(), await b.sent()];
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
  const { hold } = a.store;
  const changes: boolean[] = [];
  hold?.onChange(() => changes.push(hold.isHeld()));
  const held = async (): Promise<boolean> =>
    (await ask(url, "select count(*)::int as count from pg_locks where locktype = 'advisory' and objsubid = 1"))[0]?.["count"] === 2;
  await until(held);
  await ask(url, "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and objsubid = 1");
  await until(async () => (await sessionOf(url, "nod_a")) === 2 && (await sessionOf(url, "nod_b")) === 2 && (await held()));
  await until(async () => hold?.isHeld() === true);
  expect(changes.every((isHeld, at) => isHeld === (at % 2 === 1))).toBe(true);
});

test("a user without any privilege beyond its own tables has a hold", async () => {
  const url = await freshDatabase();
  const name = `plain_${new URL(url).pathname.slice(1)}`;
  await ask(url, `create role ${name} login`);
  await ask(url, `grant create, usage on schema public to ${name}`);
  const own = new URL(url);
  own.username = name;
  onTestFinished(async () => {
    await ask(url, `drop owned by ${name}`);
    await ask(url, `drop role ${name}`);
  });
  const clock = new TestClock();
  const store = closedAfterwards(await openNode(own.href, clock, { node: "nod_a" }));
  expect(store.hold?.isHeld()).toBe(true);
  expect(await sessionOf(url, "nod_a")).toBe(1);
  const locks = await ask(url, "select 1 from pg_locks where locktype = 'advisory' and objsubid = 1");
  expect(locks).toHaveLength(1);
});
