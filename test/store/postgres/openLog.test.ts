import { Client } from "pg";
import { expect, onTestFinished, test, vi } from "vitest";
import { freshDatabase } from "../../postgres.ts";
import { makeTablesOf } from "./olderTables.ts";
import { ask, openNode } from "./postgresDatabase.ts";
import { accountNamed, closedAfterwards, latest, TestClock, World } from "../world.ts";

// A log that was large before it had parts becomes the first of them while nodes are at work.

const day = 24 * 60 * 60 * 1000;
const lines = 20_000;

/** A database of the version before, with lines of the last ten minutes that are ten megabytes together. */
async function olderDatabase(clock: TestClock): Promise<string> {
  const [made, url] = [await freshDatabase(), await freshDatabase()];
  const node = await openNode(made, clock);
  await node.execute("createAccount", accountNamed("acc"));
  await node.close();
  await makeTablesOf(7, "postgres", (sql) => ask(url, sql));
  const [account] = await ask(made, "select id, token_hash, detail from accounts");
  const { id, token_hash: hash, detail } = account as Record<string, string>;
  await ask(url, `insert into accounts (id, token_hash, detail) values ('${id}', '${hash}', '${detail}')`);
  await ask(
    url,
    `insert into log (account, id, message_id, time, states, detail) select 'acc', lpad((${clock.now} - 600000 + g)::text, 13, '0') || '-000000000',
      'msg_' || g, ${clock.now} - 600000 + g, 'DELIVERED', '{"error":"' || repeat('x', 500) || '"}' from generate_series(1, ${lines}) as g`,
  );
  return url;
}

async function nodeAt(url: string, clock: TestClock, node = "nod_a"): Promise<World> {
  return new World(closedAfterwards(await openNode(url, clock, { node })), clock, node);
}

const boundsOf = async (url: string): Promise<unknown> =>
  (await ask(url, "select pg_get_expr(relpartbound, oid) as bounds from pg_class where relname = 'log_before'"))[0]?.["bounds"];

const isOpen = async (url: string): Promise<boolean> => (await boundsOf(url)) === "FOR VALUES FROM (MINVALUE) TO (MAXVALUE)";

const constraints = async (url: string): Promise<unknown> =>
  (await ask(url, "select convalidated from pg_constraint where conname = 'log_end'")).map(({ convalidated }) => convalidated);

/** How many rows of the old log were read by going through all of it, since ever. */
const lookedThrough = async (url: string): Promise<number> =>
  Number((await ask(url, "select seq_tup_read as n from pg_stat_user_tables where relname = 'log_before'"))[0]?.["n"]);

type Gate = { reached: Promise<void>; open(): void; restore(): void };

/** Stops whoever validates the constraint, when that is done and nothing committed yet: it has its lock then. `fails`: it ends then. */
function gateAtValidation({ fails = false } = {}): Gate {
  const original = Client.prototype.query;
  let [reach, open] = [(): void => undefined, (): void => undefined];
  const reached = new Promise<void>((resolve) => (reach = resolve));
  const opened = new Promise<void>((resolve) => (open = resolve));
  const put = (client: Client, text: string): Promise<unknown> => Promise.resolve(Reflect.apply(original, client, [text]));
  const gated = function (this: Client, ...given: unknown[]) {
    const [text] = given;
    if (typeof text !== "string" || !text.includes("validate constraint")) return Reflect.apply(original, this, given) as unknown;
    return put(this, text.replace(/; commit$/, "")).then(async () => {
      reach();
      await opened;
      if (fails) throw new Error("the machine is gone");
      return put(this, "commit");
    });
  } as typeof original;
  const spy = vi.spyOn(Client.prototype, "query").mockImplementation(gated);
  onTestFinished(() => {
    open();
    spy.mockRestore();
  });
  return { reached, open, restore: () => spy.mockRestore() };
}

async function deliver(world: World): Promise<string> {
  const delivery = await world.sent();
  await world.settle(delivery);
  return delivery.message.id;
}

/** How many states the log tells of messages: three of each. */
const told = async (world: World, messageIds: string[]): Promise<number> =>
  (await world.store.read.log(latest({ filter: { messageIds }, count: 100 }))).events.length;

test("an upgrade looks through a large log once, to count its bytes, and lines are added to it as before", { tags: "long" }, async () => {
  const clock = new TestClock();
  const url = await olderDatabase(clock);
  const world = await nodeAt(url, clock);
  const migrated = async (): Promise<unknown> =>
    (await ask(url, "select n_tup_ins::int as n from pg_stat_user_tables where relname = 'schema_version'"))[0]?.["n"];
  const [{ n: versions } = {}] = await ask(url, "select count(*)::int as n from schema_version");
  await vi.waitFor(async () => expect(await migrated(), "what it did is counted").toBe(versions), { timeout: 10_000 });
  await vi.waitFor(async () => expect(await lookedThrough(url)).toBe(lines), { timeout: 10_000 });
  expect(await isOpen(url)).toBe(true);
  const id = await deliver(world);
  clock.now += 5 * day;
  const next = await deliver(world);
  const { events } = await world.store.read.log(latest({ count: 4 }));
  expect(new Set(events.map(({ envelope }) => envelope.id))).toEqual(new Set([id, next]));
});

test("its end is found while nodes write, read and start; then each day has a part of its own", async () => {
  const clock = new TestClock();
  const url = await olderDatabase(clock);
  const gate = gateAtValidation();
  const world = await nodeAt(url, clock);
  const first = await deliver(world);
  await world.store.forgetBefore(clock.now - 3 * day);
  await gate.reached;
  // The lock is held now: whoever works does not wait for it.
  expect(await isOpen(url)).toBe(true);
  const other = await nodeAt(url, clock, "nod_b");
  const ids = [first, await deliver(world), await deliver(other)];
  clock.now += day / 2;
  ids.push(await deliver(world), await deliver(other));
  expect(await told(world, ids)).toBe(15);
  gate.open();
  await vi.waitFor(async () => expect(await isOpen(url)).toBe(false), { timeout: 10_000 });
  expect(await constraints(url)).toEqual([]);
  await vi.waitFor(async () => expect(await lookedThrough(url)).toBe(2 * lines + 1), { timeout: 10_000 });
  for (let turn = 0; turn < 5; turn++) {
    ids.push(await deliver(world), await deliver(other));
    clock.now += day;
  }
  expect(await told(world, ids)).toBe(45);
  expect(await lookedThrough(url), "once more than the upgrade did").toBe(2 * lines + 1);
  expect((await ask(url, "select count(*)::int as n from log"))[0]).toEqual({ n: lines + 15 });
  const today = Math.floor(clock.now / day);
  expect(await ask(url, `select count(*)::int as n from log_day_${today - 1}`)).toEqual([{ n: 2 }]);
});

test("where its end comes near before it is found, nobody is refused: it is taken back, and another one is found", async () => {
  const clock = new TestClock();
  const url = await olderDatabase(clock);
  const gate = gateAtValidation({ fails: true });
  const world = await nodeAt(url, clock);
  await deliver(world);
  await world.store.forgetBefore(clock.now - 3 * day);
  await gate.reached;
  gate.open();
  const looking = "application_name = 'waypost migration' and datname = current_database()";
  await vi.waitFor(async () => expect(await ask(url, `select pid from pg_stat_activity where ${looking}`)).toEqual([]), {
    timeout: 10_000,
  });
  // The constraint is left behind, and holds for what comes in.
  expect(await constraints(url)).toEqual([false]);
  for (let turn = 0; turn < 12; turn++) {
    await deliver(world);
    clock.now += day / 3;
  }
  expect(await isOpen(url)).toBe(true);
  expect(await constraints(url)).toEqual([]);
  gate.restore();
  await world.store.forgetBefore(0);
  await vi.waitFor(async () => expect(await isOpen(url)).toBe(false), { timeout: 10_000 });
  clock.now += 5 * day;
  await deliver(world);
  expect((await ask(url, "select count(*)::int as n from log"))[0]).toEqual({ n: lines + 14 });
});

test("where it cannot have an end, because a line is of a time to come, that is told, and lines are added as before", async () => {
  const clock = new TestClock();
  const url = await olderDatabase(clock);
  const world = await nodeAt(url, clock);
  await deliver(world);
  const line = `'nobody', '${clock.now + 100 * day}-000000000', 'msg_0', ${clock.now + 100 * day}, 'DELIVERED'`;
  await ask(url, `insert into log (account, id, message_id, time, states) values (${line})`);
  await world.store.forgetBefore(0);
  await vi.waitFor(async () => expect(world.store.forgetBefore(0)).rejects.toThrow("log_end"), { timeout: 10_000 });
  for (let turn = 0; turn < 6; turn++) {
    await deliver(world);
    clock.now += day;
  }
  expect(await isOpen(url)).toBe(true);
});

test("a node that stops does not wait for it, and the next one goes on", async () => {
  const clock = new TestClock();
  const url = await olderDatabase(clock);
  const world = await nodeAt(url, clock);
  await deliver(world);
  const original = Client.prototype.query;
  let reach = (): void => undefined;
  const reached = new Promise<void>((resolve) => (reach = resolve));
  const endless = function (this: Client, ...given: unknown[]) {
    const isLook = typeof given[0] === "string" && given[0].includes("validate constraint");
    if (isLook) reach();
    return Reflect.apply(original, this, isLook ? ["select pg_sleep(600)"] : given) as unknown;
  } as typeof original;
  const spy = vi.spyOn(Client.prototype, "query").mockImplementation(endless);
  onTestFinished(() => spy.mockRestore());
  await world.store.forgetBefore(clock.now - 3 * day);
  await reached;
  await world.store.close();
  spy.mockRestore();
  expect([await isOpen(url), await constraints(url)]).toEqual([true, [false]]);
  const next = await nodeAt(url, clock, "nod_b");
  await next.store.forgetBefore(clock.now - 3 * day);
  await vi.waitFor(async () => expect(await isOpen(url)).toBe(false), { timeout: 10_000 });
});
