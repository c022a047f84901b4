import { Client } from "pg";
import { expect, onTestFinished, test, vi } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import type { PostgresOptions } from "../../../../src/engine/store/postgres/connect.ts";
import { inFoundation, postgresStore } from "../../../../src/engine/store/postgres/database.ts";
import { batchTimeout } from "../../../../src/engine/store/postgres/deadline.ts";
import { StorageRefused } from "../../../../src/engine/store/layout/storageErrors.ts";
import { freshDatabase } from "../../../postgres.ts";
import { createRandom } from "../createRandom.ts";
import { announced, ask, openNode } from "./postgresDatabase.ts";
import { startProxy } from "./postgresProxy.ts";
import { closeAfterTest, createSteppedClock, TestClock, StoreFixture } from "../storeFixture.ts";

// The ways of a node to its database: over several hosts, through a pooler, and beside nodes of other
// versions.

/**
 * `hastes` divides the pauses before a node looks again. Pauses of 0.3, 3 and 5 s, which distinguish a slow
 * host from a silent one, and the time of a batch keep their length.
 */
type Given = Omit<Partial<PostgresOptions>, "clock"> & { clock?: TestClock; hastes?: number };

async function nodeAt(url: string, { clock = new TestClock(), node = "nod_a", hastes = 1, ...more }: Given) {
  const pace = createSteppedClock(clock);
  const isPatience = (time: number): boolean => [300, 3_000, 5_000, batchTimeout].includes(time);
  const sleep: typeof pace.sleep = (until, wake) =>
    pace.sleep(isPatience(until - clock.now) ? until : clock.now + (until - clock.now) / hastes, wake);
  const store = await postgresStore({
    url,
    node,
    random: createRandom(1),
    now: () => clock.now,
    ...more,
    clock: { ...pace, sleep },
  });
  return new StoreFixture(closeAfterTest(store), clock, node);
}

const listeners = "application_name = 'waypost listener' and datname = current_database()";

const withHosts = (url: string, hosts: string, query: string): string => {
  const { username, pathname } = new URL(url);
  return `postgres://${username}@${hosts}${pathname}${query}`;
};

test("a node uses the one of several hosts that answers", async () => {
  const url = await freshDatabase();
  const world = await nodeAt(
    withHosts(url, `127.0.0.1:1,${new URL(url).host}`, "?target_session_attrs=read-write"),
    {},
  );
  await world.account();
  expect(await world.send({ delay: 1 })).toMatch(/^msg_/);
  expect(await world.store.read.accounts()).toHaveLength(1);
});

test("a database that accepts no writes is refused", async () => {
  const url = await freshDatabase();
  await ask(url, `alter database ${new URL(url).pathname.slice(1)} set default_transaction_read_only = on`);
  await expect(nodeAt(`${url}?target_session_attrs=read-write`, {})).rejects.toThrow(
    "no host of the database accepts writes",
  );
});

test("behind a pooler nothing outlives a transaction: nothing prepared, set or listened for", async () => {
  const url = await freshDatabase();
  const asked: string[] = [];
  const watched = watching(asked, Client.prototype.query);
  const query = vi.spyOn(Client.prototype, "query").mockImplementation(watched);
  onTestFinished(() => query.mockRestore());
  const world = await nodeAt(url, { pooling: "transaction" });
  await world.account();
  const delivery = await world.sent();
  await world.settle(delivery);
  await world.send({ delay: 1 });
  expect(await world.states(delivery.message.id)).toEqual(["CREATED", "ACTIVE", "DELIVERED"]);
  expect(asked.length).toBeGreaterThan(20);
  expect(
    asked.filter((text) => /^named|^listen\b|pg_notify|(^|; )set (?!local)|pg_advisory_lock/i.test(text)),
  ).toEqual([]);
  // A pooler refuses connections with limits as startup parameters, so each transaction sets its own limits.
  for (const text of asked.filter((one) => one.startsWith("begin") && !one.includes("advisory"))) {
    expect(text).toContain("set local statement_timeout");
    expect(text).toContain("set local idle_in_transaction_session_timeout");
  }
});

/** Records each text, and whether it is prepared under a name. */
function watching(asked: string[], original: typeof Client.prototype.query) {
  return function (this: Client, ...given: unknown[]) {
    const [first] = given;
    if (typeof first === "string") asked.push(first);
    else if (typeof first === "object" && first !== null && "text" in first)
      asked.push(`${"name" in first ? "named " : ""}${String(first.text)}`);
    return Reflect.apply(original, this, given);
  } as typeof Client.prototype.query;
}

test("a node behind a pooler polls for the due times of other nodes", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const a = await nodeAt(url, { clock });
  const b = await nodeAt(url, { clock, node: "nod_b", pooling: "transaction" });
  await a.account();
  let changes = 0;
  b.store.onAccounts(() => changes++);
  await a.send({ delay: 500 });
  await expect.poll(() => b.dues, announced).toContain(clock.now + 500);
  expect(changes).toBeGreaterThan(0);
});

test.each([
  ["0A000", "not supported"],
  ["42501", "not permitted"],
  ["42601", "not understood"],
])("nodes poll if the database refuses to listen (%s, %s)", { tags: "long" }, async (code) => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const refused: string[] = [];
  const through = await startProxy(url, {
    refuses: (text) => {
      if (!/^listen /i.test(text)) return null;
      refused.push(text);
      return code;
    },
  });
  const a = await nodeAt(through, { clock });
  const b = await nodeAt(through, { clock, node: "nod_b" });
  expect(refused, "one refusal per node").toHaveLength(2);
  let changes = 0;
  b.store.onAccounts(() => changes++);
  await a.account();
  const start = clock.now;
  const id = await a.send({ delay: 500 });
  await expect.poll(() => b.dues, announced).toContain(start + 500);
  expect(changes).toBeGreaterThan(0);
  // The node that published the message is closed.
  await a.store.close();
  clock.now += 500;
  expect((await b.claim()).map(({ message }) => message.id)).toEqual([id]);
  await b.settle(await b.sent());
});

test("nodes poll if listening is refused when they reconnect", { tags: "long" }, async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  let isRefused = false;
  let refusals = 0;
  const refuses = (text: string): string | null =>
    isRefused && /^listen /i.test(text) && ++refusals > 0 ? "0A000" : null;
  const through = await startProxy(url, { refuses });
  const a = await nodeAt(through, { clock });
  const b = await nodeAt(through, { clock, node: "nod_b" });
  await a.account();
  isRefused = true;
  await ask(url, `select pg_terminate_backend(pid) from pg_stat_activity where ${listeners}`);
  await expect
    .poll(() => [a, b].filter(({ dues }) => dues.includes(0)), {
      ...announced,
      message: "both nodes look immediately",
    })
    .toHaveLength(2);
  expect(refusals, "one refusal per node").toBe(2);
  let changes = 0;
  b.store.onAccounts(() => changes++);
  await a.send({ delay: 500 });
  await expect.poll(() => b.dues, announced).toContain(clock.now + 500);
  expect(changes).toBeGreaterThan(0);
  // The change cannot be announced, and does not wait for that.
  await a.store.execute("rotateToken", { account: "acc", password: "p", token: "t", tokenHash: "h" });
  expect(await ask(url, `select pid from pg_stat_activity where ${listeners}`)).toEqual([]);
});

test("nodes find due messages at their next check if an announcement is lost", { tags: "long" }, async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  let lost = 0;
  const through = await startProxy(url, { loses: (type) => type === "A" && ++lost > 0 });
  const a = await nodeAt(through, { clock });
  const b = await nodeAt(through, { clock, node: "nod_b", hastes: 100 });
  await a.account();
  await a.send({ delay: 500 });
  await expect.poll(() => b.dues, announced).toContain(clock.now + 500);
  expect(lost).toBeGreaterThan(0);
});

test("a due time is not announced if the other nodes will check by then without it", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const a = await nodeAt(url, { clock });
  const b = await nodeAt(url, { clock, node: "nod_b" });
  await a.account();
  const start = clock.now;
  await a.send({ delay: 500 });
  await expect.poll(() => b.dues, announced).toEqual([start + 500]);
  // The other nodes look at that time, and find these messages too.
  for (const delay of [500, 600, 10_000]) await a.send({ delay });
  await a.send({ delay: 400 });
  await expect.poll(() => b.dues, announced).toEqual([start + 500, start + 400]);
  // That time has passed, and the other nodes may have looked already.
  clock.now += 400;
  await a.send({ delay: 10_000 });
  await expect.poll(() => b.dues, announced).toEqual([start + 500, start + 400, start + 10_400]);
});

test("a node that reconnects announces that something may be due now", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const a = await nodeAt(url, { clock });
  const b = await nodeAt(url, { clock, node: "nod_b" });
  await a.account();
  await a.send({ delay: 500 });
  await expect.poll(() => b.dues, announced).toHaveLength(1);
  const [listener] = await ask(
    url,
    `select pid from pg_stat_activity where ${listeners} order by backend_start limit 1`,
  );
  await ask(url, `select pg_terminate_backend(${String(listener?.["pid"])})`);
  await expect.poll(() => [...a.dues, ...b.dues].filter((at) => at === 0), announced).toHaveLength(2);
});

test("a node that is closed while it reconnects ends", async () => {
  const url = await freshDatabase();
  const world = await nodeAt(url, {});
  let reach = (): void => undefined;
  let open = (): void => undefined;
  const reached = new Promise<void>((resolve) => (reach = resolve));
  const opened = new Promise<void>((resolve) => (open = resolve));
  const original = Client.prototype.query;
  const gated = function (this: Client, ...given: unknown[]) {
    const answer: unknown = Reflect.apply(original, this, given);
    if (!String(given[0]).startsWith("listen ")) return answer;
    reach();
    return opened.then(() => answer);
  } as typeof original;
  const query = vi.spyOn(Client.prototype, "query").mockImplementation(gated);
  onTestFinished(() => query.mockRestore());
  await ask(url, `select pg_terminate_backend(pid) from pg_stat_activity where ${listeners}`);
  await reached;
  const closing = world.store.close();
  // The node is closed first, and connects only afterwards.
  await new Promise((resolve) => setImmediate(resolve));
  open();
  await closing;
  await expect.poll(() => ask(url, `select pid from pg_stat_activity where ${listeners}`)).toEqual([]);
});

test("each of several starting nodes sees what earlier ones have created", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const worlds = await Promise.all(["nod_a", "nod_b", "nod_c"].map((node) => nodeAt(url, { clock, node })));
  const founded = await Promise.all(
    worlds.map(({ store }, index) =>
      inFoundation({ url, clock: createSteppedClock(clock) }, async () => {
        if ((await store.read.accounts()).length > 0) return 0;
        const secrets = {
          signingKeys: { current: "a", next: "b" },
          password: "p",
          token: `t${index}`,
          tokenHash: `h${index}`,
        };
        await store.execute("createAccount", { id: `acc${index}`, name: "owner", ...secrets });
        return 1;
      }),
    ),
  );
  expect(founded.reduce<number>((sum, one) => sum + one, 0)).toBe(1);
  expect(await worlds[0]?.store.read.accounts()).toHaveLength(1);
});

test(
  "a stopped node holds a lock that others wait for no longer than a lease",
  { tags: "long" },
  async () => {
    const url = await freshDatabase();
    const { lease } = spans;
    Object.assign(spans, { lease: 1_000 });
    onTestFinished(() => void Object.assign(spans, { lease }));
    const place = { url, clock: createSteppedClock(new TestClock()) };
    let goOn: () => void = () => undefined;
    const stopped = inFoundation(place, () => new Promise<void>((resolve) => (goOn = resolve)));
    const held =
      "select 1 from pg_locks join pg_database on oid = database " +
      "where datname = current_database() and locktype = 'advisory' and granted";
    await expect.poll(() => ask(url, held)).toHaveLength(1);
    expect(await inFoundation(place, async () => "founded")).toBe("founded");
    goOn();
    await expect(stopped).rejects.toThrow("cannot be reached");
  },
);

test("a node works with a later schema that is compatible with its version", async () => {
  const url = await freshDatabase();
  const a = await nodeAt(url, {});
  await a.account();
  await ask(url, "insert into store_schema (hash) values ('later')");
  expect(await a.send({ delay: 1 })).toMatch(/^msg_/);
  const b = await nodeAt(url, { node: "nod_b" });
  expect(await b.send({ delay: 1 })).toMatch(/^msg_/);
});

test("a node whose tables were replaced changes nothing more, and none starts", async () => {
  const url = await freshDatabase();
  const told: string[] = [];
  const a = await nodeAt(url, { onOutdated: (trouble) => void told.push(trouble) });
  await a.account();
  const before = await a.send({ delay: 1 });
  await ask(url, "delete from store_schema");
  await expect(a.send({ delay: 1 })).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringContaining("nothing was stored"),
  });
  await expect(a.store.execute("cancel", { account: "acc", messageIds: [before] })).rejects.toMatchObject({
    code: "unavailable",
  });
  expect(told[0]).toContain("the tables of the database were replaced");
  await expect(openNode(url, new TestClock())).rejects.toBeInstanceOf(StorageRefused);
  expect(await ask(url, "select count(*)::int as count from messages")).toEqual([{ count: 1 }]);
});

test.each(["session", "transaction"] as const)(
  "a node that writes nothing notices replaced tables at its next check (pooling %s)",
  { tags: "long" },
  async (pooling) => {
    const url = await freshDatabase();
    const told: string[] = [];
    const clock = new TestClock();
    const a = await nodeAt(url, {
      clock,
      pooling,
      hastes: 100,
      onOutdated: (trouble) => void told.push(trouble),
    });
    await a.account();
    await ask(url, "insert into store_schema (hash) values ('later')");
    await a.send({ delay: 500 });
    const dues = a.dues.length;
    clock.now += 60_000;
    await expect
      .poll(() => a.dues.length, { ...announced, message: "the node looks again" })
      .toBeGreaterThan(dues);
    expect(told, "the later schema is compatible").toEqual([]);
    await ask(url, "delete from store_schema");
    const hearLater = (): string => {
      clock.now += 1_000;
      return told[0] ?? "";
    };
    await expect.poll(hearLater, announced).toContain("the tables of the database were replaced");
  },
);

test("if many nodes start at the same time with an empty database, one creates the tables", async () => {
  const url = await freshDatabase();
  const nodes = await Promise.all(["nod_a", "nod_b", "nod_c", "nod_d"].map((node) => nodeAt(url, { node })));
  await nodes[0]?.account();
  for (const node of nodes) expect(await node.send({ delay: 1 })).toMatch(/^msg_/);
  expect(await ask(url, "select count(*)::int as n from store_schema")).toEqual([{ n: 1 }]);
});
