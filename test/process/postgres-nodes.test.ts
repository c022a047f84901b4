// @module-tag long
import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { startPostgres, startPostgresPair } from "../postgres.ts";
import { parallelism, startDeliveryChecker } from "./deliveryChecker.ts";
import type { Node } from "./nodes.ts";
import {
  ask as asked,
  createNodeClient,
  builder,
  client,
  fire,
  holdConnection,
  lease,
  createObjects,
  settled,
  startLoad,
  startNode,
  startNodes,
} from "./nodes.ts";

// Real nodes on real databases, and what happens to both. A judge at the destination recounts what was promised.

const timeout = 90_000;

/** Waits until so many more were acknowledged, so that there is something under way. */
async function more(judge: { promised(): number }, count: number): Promise<void> {
  for (const enough = judge.promised() + count; judge.promised() < enough;) await pause(5);
}

test("of three nodes one is killed and one is stopped beyond its leases, and every promise is kept", { timeout }, async () => {
  const postgres = await startPostgres({ fsync: true });
  onTestFinished(() => postgres.kill());
  const judge = await startDeliveryChecker();
  const { nodes, token } = await startNodes(postgres.url, ["one", "two", "three"]);
  const [one, two, three] = nodes as [Node, Node, Node];
  let alive = nodes;
  const ask = createNodeClient(token, { nodes: () => alive, ...client });
  await createObjects(createNodeClient(token, { nodes: () => nodes, ...builder }), judge);

  // One node lives on, and keeps the lease of a call that takes longer than a lease: nobody else sends it meanwhile.
  judge.slow("/slow/1", lease + 1_000);
  const askOne = createNodeClient(token, { nodes: () => [one], ...builder });
  const slow = await askOne("POST", `enqueue/slow/${judge.url}/slow/1`, { "svc-retries": "0" });
  const afterIt = await askOne("POST", `enqueue/slow/${judge.url}/slow/2`, { "svc-retries": "0" });
  judge.acknowledged("slow", [slow?.body, afterIt?.body], 0);

  const load = startLoad(ask, judge);
  await more(judge, 200);
  await fire(postgres.url, 3);
  three.kill("SIGSTOP");
  two.kill("SIGKILL");
  await pause(lease + 2_000);
  await fire(postgres.url, 3);
  judge.excuse("three", 5_000);
  three.kill("SIGCONT");
  alive = [one, three, await startNode(postgres.url, "four")];
  await more(judge, 200);
  await fire(postgres.url, 3);
  await load.stop();
  await settled(postgres.url, judge);

  expect(judge.broken).toEqual([]);
  expect(judge.peaks).toEqual(parallelism);
  expect(judge.disorder()).toEqual([]);
  expect(judge.tooMany()).toBeLessThanOrEqual(0);
  expect([judge.fired("tick"), judge.fired("queued")]).toEqual([9, 9]);
  expect(judge.calls.filter(({ limiter }) => limiter === "slow").map(({ node }) => node)[0]).toBe("one");
  expect(judge.calls.filter(({ limiter }) => limiter === "slow")).toHaveLength(2);
  expect(new Set(judge.calls.map(({ node }) => node))).toEqual(new Set(["one", "two", "three", "four"]));
  expect(load.refused).toEqual([]);
});

test(
  "the database is restarted under load, in order and at once: nothing accepted is lost, and publishes are told to come again",
  { timeout },
  async () => {
    const postgres = await startPostgres({ fsync: true });
    onTestFinished(() => postgres.kill());
    const judge = await startDeliveryChecker();
    const { nodes, token } = await startNodes(postgres.url, ["one", "two"]);
    const ask = createNodeClient(token, { nodes: () => nodes, ...client });
    await createObjects(createNodeClient(token, { nodes: () => nodes, ...builder }), judge);
    const load = startLoad(ask, judge);
    for (const signal of ["SIGINT", "SIGQUIT"] as const) {
      await more(judge, 100);
      await fire(postgres.url, 2);
      const before = load.refused.length;
      await postgres.down(signal);
      while (load.refused.length < before + 10) await pause(5);
      await postgres.up();
      await fire(postgres.url, 2);
      await more(judge, 100);
    }
    await load.stop();
    await settled(postgres.url, judge);

    expect(judge.broken).toEqual([]);
    expect(judge.peaks).toEqual(parallelism);
    expect(judge.disorder()).toEqual([]);
    expect(judge.tooMany()).toBeLessThanOrEqual(0);
    expect([judge.fired("tick"), judge.fired("queued")]).toEqual([8, 8]);
    expect(new Set(load.refused.map(({ status, retryAfter }) => `${status} ${retryAfter}`))).toEqual(new Set(["503 1"]));
  },
);

test("a standby takes the place of a primary that is killed under load: nothing accepted is lost", { timeout }, async () => {
  const { primary, standby, promote } = await startPostgresPair();
  onTestFinished(() => standby.kill().then(() => primary.kill()));
  const hosts = `${new URL(primary.url).host},${new URL(standby.url).host}`;
  const url = `postgres://postgres@${hosts}/postgres?target_session_attrs=read-write`;
  const judge = await startDeliveryChecker();
  const { nodes, token } = await startNodes(url, ["one", "two"]);
  let alive = nodes;
  const ask = createNodeClient(token, { nodes: () => alive, ...client });
  await createObjects(createNodeClient(token, { nodes: () => nodes, ...builder }), judge);
  const load = startLoad(ask, judge);
  await more(judge, 200);
  await fire(primary.url, 3);
  await primary.down("SIGKILL");
  const refused = load.refused.length;
  while (load.refused.length < refused + 10) await pause(5);
  await promote();
  await more(judge, 100);
  await fire(standby.url, 3);
  // One that joins now finds the second host.
  alive = [...nodes, await startNode(url, "three")];
  await more(judge, 100);
  await load.stop();
  await settled(standby.url, judge);

  expect(judge.broken).toEqual([]);
  expect(judge.peaks).toEqual(parallelism);
  expect(judge.disorder()).toEqual([]);
  expect(judge.tooMany()).toBeLessThanOrEqual(0);
  expect([judge.fired("tick"), judge.fired("queued")]).toEqual([6, 6]);
  expect(new Set(load.refused.map(({ status, retryAfter }) => `${status} ${retryAfter}`))).toEqual(new Set(["503 1"]));
  expect(judge.calls.some(({ node }) => node === "three")).toBe(true);
});

test(
  "an old transaction and a copy of everything, as pg_dump takes one, keep no message back, and no node from joining",
  { timeout },
  async () => {
    const postgres = await startPostgres({ fsync: true });
    onTestFinished(() => postgres.kill());
    const judge = await startDeliveryChecker();
    const { nodes, token } = await startNodes(postgres.url, ["one", "two"]);
    let alive = nodes;
    const ask = createNodeClient(token, { nodes: () => alive, ...client });
    await createObjects(createNodeClient(token, { nodes: () => nodes, ...builder }), judge);
    const load = startLoad(ask, judge);
    await more(judge, 50);

    // Somebody left a terminal open, with a change that is not committed: nothing that is dead since then can be cleared away.
    const old = await holdConnection(postgres.url, "begin; create table notes (note text)");
    // As pg_dump does: one moment of everything, all tables locked against being changed in shape, and read from slowly.
    const dump = await holdConnection(postgres.url, "begin isolation level repeatable read, read only");
    const tables = (await dump.query("select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')"))
      .rows;
    await dump.query(`lock table ${tables.map(({ relname }) => relname).join(", ")} in access share mode`);
    await dump.query("declare slow cursor for select * from stored_messages");
    const copied = async (): Promise<number> => (await dump.query("fetch 10 from slow")).rows.length;

    for (let turn = 0; turn < 4; turn++) {
      expect(await copied()).toBeGreaterThan(0);
      await more(judge, 100);
      await fire(postgres.url, 1);
    }
    alive = [...nodes, await startNode(postgres.url, "three")];
    await more(judge, 100);
    await load.stop();
    await settled(postgres.url, judge);
    // Both were there all the time, and every row of a finished message still is.
    expect((await dump.query("select count(*)::int as n from messages")).rows[0]?.n).toBeLessThan(200);
    const [horizon] = await asked(
      postgres.url,
      "select count(*)::int as n from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid()",
    );
    expect(Number(horizon?.["n"])).toBeGreaterThanOrEqual(1);
    await Promise.all([old.end(), dump.end()]);

    expect(judge.broken).toEqual([]);
    expect(judge.peaks).toEqual(parallelism);
    expect(judge.disorder()).toEqual([]);
    expect(judge.tooMany()).toBeLessThanOrEqual(0);
    expect([judge.fired("tick"), judge.fired("queued")]).toEqual([4, 4]);
    expect(load.refused).toEqual([]);
  },
);
