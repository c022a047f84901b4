import { Client } from "pg";
import { expect, onTestFinished, test, vi } from "vitest";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import { freshDatabase } from "../../../postgres.ts";
import { ask, openNode } from "./postgresDatabase.ts";
import { openNodes } from "./severalNodes.ts";
import type { Cost } from "./counting.ts";
import { counting } from "./counting.ts";
import { closeAfterTest, makeInput, StoreFixture, TestClock } from "../storeFixture.ts";

// A waitlist may hold messages of many keys and hosts. Their rows are read and locked together.

const withKey = (index: number, parallelism: number): Partial<MessageInput> => ({
  flowControl: { key: `k${String(index).padStart(3, "0")}`, parallelism, rate: null, period: null },
});

async function openFixture(): Promise<StoreFixture> {
  const clock = new TestClock();
  const store = closeAfterTest(await openNode(await freshDatabase(), clock));
  const fixture = new StoreFixture(store, clock, "nod_a");
  await fixture.account();
  return fixture;
}

test("a claim sends a waitlist of one host in which each message has another key", async () => {
  const fixture = await openFixture();
  fixture.capacity = { total: 1_000, perHost: 1 };
  await fixture.publish([makeInput()]);
  const [sent] = fixture.delivered();
  await fixture.publish(Array.from({ length: 100 }, (_, index) => makeInput(withKey(index, 5))));
  await fixture.claim(1_000);
  fixture.forgetDelivery(sent?.message.id ?? "");
  fixture.capacity = { total: 1_000, perHost: 1_000 };
  fixture.clock.now += 20_000;
  expect(await fixture.claim(1_000)).toHaveLength(100);
});

/** Returns the cost of settling `count` deliveries while as many messages wait for each of them to end. */
async function settleCost(
  count: number,
  { perHost, over }: { perHost: number; over: (index: number) => Partial<MessageInput> },
): Promise<Cost> {
  const fixture = await openFixture();
  fixture.capacity = { total: 2_000, perHost };
  const inputs = Array.from({ length: count }, (_, index) => makeInput(over(index)));
  const { during } = counting();
  // The first batch finds or creates a partition of the log.
  await fixture.store.execute("claim", { limit: 1 });
  await fixture.publish(inputs);
  const sent = fixture.delivered();
  expect(sent).toHaveLength(count);
  await fixture.publish(inputs);
  await fixture.claim(1_000);
  const cost = await during(() => Promise.all(sent.map((delivery) => fixture.settle(delivery))));
  expect(fixture.delivered()).toHaveLength(count);
  return cost;
}

test("outcomes of one host take as many round trips for 64 waiting messages as for 4", async () => {
  const [few, many] = [
    await settleCost(4, { perHost: 4, over: () => ({}) }),
    await settleCost(64, { perHost: 64, over: () => ({}) }),
  ];
  expect(many).toEqual(few);
});

test("outcomes of one key take as many round trips for messages to 64 hosts as to 4", async () => {
  const over = (count: number) => (index: number) => ({
    url: `https://host-${index}.example/`,
    flowControl: { key: "k", parallelism: count, rate: null, period: null },
  });
  const [few, many] = [
    await settleCost(4, { perHost: 2_000, over: over(4) }),
    await settleCost(64, { perHost: 2_000, over: over(64) }),
  ];
  expect(many).toEqual(few);
});

/**
 * Returns the codes of statements that failed because of a deadlock. Connections that are opened from now on
 * wait for locks without a limit, so the database ends a wait only if the waits of transactions form a cycle.
 */
function noteDeadlocks(): string[] {
  const original = Client.prototype.query;
  const noted: string[] = [];
  const watched = function (this: Client, text: unknown, ...given: unknown[]) {
    const patient = typeof text === "string" ? text.replace(/lock_timeout = \d+/, "lock_timeout = 0") : text;
    const answer: unknown = Reflect.apply(original, this, [patient, ...given]);
    void Promise.resolve(answer).catch((error: unknown) => {
      const code = error instanceof Error && "code" in error ? String(error.code) : "";
      if (["40P01", "55P03", "40001"].includes(code)) noted.push(code);
    });
    return answer;
  } as typeof original;
  const spy = vi.spyOn(Client.prototype, "query").mockImplementation(watched);
  onTestFinished(() => spy.mockRestore());
  return noted;
}

test("two nodes that serve the same keys in opposite order have no deadlocks", async () => {
  const count = 64;
  const deadlocks = noteDeadlocks();
  const clock = new TestClock();
  const url = await freshDatabase();
  const [a, b] = [
    new StoreFixture(closeAfterTest(await openNode(url, clock, { node: "nod_a" })), clock, "nod_a"),
    new StoreFixture(closeAfterTest(await openNode(url, clock, { node: "nod_b", seed: 2 })), clock, "nod_b"),
  ];
  await a.account();
  const hosts = [
    { node: a, url: "https://aa.example/", keyOf: (index: number) => index },
    { node: b, url: "https://bb.example/", keyOf: (index: number) => count - 1 - index },
  ];
  const sent = [];
  for (const host of hosts) {
    host.node.capacity = { total: 2_000, perHost: count };
    await host.node.publish(Array.from({ length: count }, () => makeInput({ url: host.url })));
    sent.push({ node: host.node, deliveries: host.node.delivered() });
  }
  for (const { node, url: to, keyOf } of hosts) {
    await node.publish(
      Array.from({ length: count }, (_, index) => makeInput({ url: to, ...withKey(keyOf(index), 2) })),
    );
    await node.claim(1_000);
  }
  for (const { node } of hosts) node.delivered();
  await Promise.all(
    sent.flatMap(({ node, deliveries }) => deliveries.map((delivery) => node.settle(delivery))),
  );
  expect(hosts.reduce((sum, { node }) => sum + node.delivered().length, 0)).toBe(2 * count);
  expect(deadlocks).toEqual([]);
});

/**
 * Makes batches that store a message to a URL wait before their commit. Returns a function that ends this.
 */
async function holdCommits(url: string, to: string): Promise<() => Promise<unknown>> {
  await ask(url, "create table gate (is_open boolean)");
  await ask(
    url,
    `create function wait_at_gate() returns trigger language plpgsql as $$ begin
      while not exists (select 1 from gate) loop perform pg_sleep(0.01); end loop;
      return new;
    end $$`,
  );
  await ask(
    url,
    `create trigger wait before insert on stored_messages for each row
      when (new.detail like '%${to}%') execute function wait_at_gate()`,
  );
  return () => ask(url, "insert into gate values (true)");
}

// A waitlist for capacity is a row, and a row that does not exist cannot be locked. A batch that has not
// found it counts as earlier than the batch that creates it, although it is committed later.
test("a message that was decided before a waitlist existed may be sent before its messages", async () => {
  const { url, clock, worlds } = await openNodes();
  const [a, b] = worlds;
  const open = await holdCommits(url, "one.example/early");
  // Node b has no capacity, so the message is left for a claim, which holds it.
  b.capacity = { total: 10, perHost: 0 };
  const early = a.send({ url: "https://one.example/early" });
  await expect
    .poll(() => ask(url, "select 1 from pg_stat_activity where wait_event = 'PgSleep'"))
    .toHaveLength(1);
  const waiting = await b.send({ url: "https://one.example/waiting" });
  expect(await b.claim()).toEqual([]);
  expect(await ask(url, "select host from host_waitlists")).toEqual([{ host: "one.example" }]);
  await open();
  const sent = await early;
  expect(a.delivered().map(({ message }) => message.id)).toEqual([sent]);
  // Each batch that begins later finds the waitlist, and waits behind its message.
  const late = await a.send({ url: "https://one.example/late" });
  expect(a.delivered()).toEqual([]);
  clock.now += spans.waitlistCheck;
  const claimed = [...(await a.claim()), ...(await a.claim())];
  expect(claimed.map(({ message }) => message.id)).toEqual([waiting, late]);
});
