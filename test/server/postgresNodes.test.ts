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
  readStarts,
  settled,
  startLoad,
  startNode,
  startNodes,
} from "./nodes.ts";

// Real nodes on real databases, and failures of both. A checker at the destination verifies what was
// promised.

/** Waits until this many more messages were acknowledged, so that some are in flight. */
async function more(checker: { promised(): number }, count: number): Promise<void> {
  for (const enough = checker.promised() + count; checker.promised() < enough;) await pause(5);
}

type Checker = Awaited<ReturnType<typeof startDeliveryChecker>>;

/** Expects that limits were reached and never exceeded, and that the order was kept. */
async function expectKept(checker: Checker, ask: ReturnType<typeof createNodeClient>): Promise<void> {
  expect(checker.broken).toEqual([]);
  expect(checker.peaks).toEqual(parallelism);
  expect(checker.disorder()).toEqual([]);
  const { excess, uncounted } = checker.compareRate(await readStarts(ask, "rate"));
  expect(excess).toBeLessThanOrEqual(0);
  expect(uncounted).toEqual([]);
}

test("one of three nodes is killed, one is stopped beyond its leases, every promise is kept", async () => {
  const postgres = await startPostgres({ fsync: true });
  onTestFinished(() => postgres.kill());
  const checker = await startDeliveryChecker();
  const { nodes, token } = await startNodes(postgres.url, ["one", "two", "three"]);
  const [one, two, three] = nodes as [Node, Node, Node];
  let alive = nodes;
  const ask = createNodeClient(token, { nodes: () => alive, ...client });
  const asPatient = createNodeClient(token, { nodes: () => alive, ...builder });
  await createObjects(asPatient, checker);

  // One node survives and keeps the lease of a call that takes longer than a lease: no other node sends the
  // message.
  checker.slow("/slow/1", lease + 1_000);
  const askOne = createNodeClient(token, { nodes: () => [one], ...builder });
  const slow = await askOne("POST", `enqueue/slow/${checker.url}/slow/1`, {
    headers: { "svc-retries": "0" },
  });
  const afterIt = await askOne("POST", `enqueue/slow/${checker.url}/slow/2`, {
    headers: { "svc-retries": "0" },
  });
  checker.acknowledged("slow", [slow?.body, afterIt?.body], 0);

  const load = startLoad(ask, checker);
  await more(checker, 200);
  await fire(postgres.url, 3);
  three.kill("SIGSTOP");
  two.kill("SIGKILL");
  await pause(lease + 2_000);
  await fire(postgres.url, 3);
  checker.excuse("three", 5_000);
  three.kill("SIGCONT");
  alive = [one, three, await startNode(postgres.url, "four")];
  await more(checker, 200);
  await fire(postgres.url, 3);
  await load.stop();
  await settled(postgres.url, checker);

  await expectKept(checker, asPatient);
  expect([checker.fired("tick"), checker.fired("queued")]).toEqual([9, 9]);
  expect(checker.calls.filter(({ limiter }) => limiter === "slow").map(({ node }) => node)[0]).toBe("one");
  expect(checker.calls.filter(({ limiter }) => limiter === "slow")).toHaveLength(2);
  expect(new Set(checker.calls.map(({ node }) => node))).toEqual(new Set(["one", "two", "three", "four"]));
  expect(load.refused).toEqual([]);
});

test("the database is restarted under load: no message is lost, and publishes get Retry-After", async () => {
  const postgres = await startPostgres({ fsync: true });
  onTestFinished(() => postgres.kill());
  const checker = await startDeliveryChecker();
  const { nodes, token } = await startNodes(postgres.url, ["one", "two"]);
  const ask = createNodeClient(token, { nodes: () => nodes, ...client });
  const asPatient = createNodeClient(token, { nodes: () => nodes, ...builder });
  await createObjects(asPatient, checker);
  const load = startLoad(ask, checker);
  for (const signal of ["SIGINT", "SIGQUIT"] as const) {
    await more(checker, 100);
    await fire(postgres.url, 2);
    const before = load.refused.length;
    await postgres.down(signal);
    while (load.refused.length < before + 10) await pause(5);
    await postgres.up();
    await fire(postgres.url, 2);
    await more(checker, 100);
  }
  await load.stop();
  await settled(postgres.url, checker);

  await expectKept(checker, asPatient);
  expect([checker.fired("tick"), checker.fired("queued")]).toEqual([8, 8]);
  expect(new Set(load.refused.map(({ status, retryAfter }) => `${status} ${retryAfter}`))).toEqual(
    new Set(["503 1"]),
  );
});

test("a standby replaces a primary that is killed under load: no accepted message is lost", async () => {
  const { primary, standby, promote } = await startPostgresPair();
  onTestFinished(() => standby.kill().then(() => primary.kill()));
  const hosts = `${new URL(primary.url).host},${new URL(standby.url).host}`;
  const url = `postgres://postgres@${hosts}/postgres?target_session_attrs=read-write`;
  const checker = await startDeliveryChecker();
  const { nodes, token } = await startNodes(url, ["one", "two"]);
  let alive = nodes;
  const ask = createNodeClient(token, { nodes: () => alive, ...client });
  const asPatient = createNodeClient(token, { nodes: () => alive, ...builder });
  await createObjects(asPatient, checker);
  const load = startLoad(ask, checker);
  await more(checker, 200);
  await fire(primary.url, 3);
  await primary.down("SIGKILL");
  const refused = load.refused.length;
  while (load.refused.length < refused + 10) await pause(5);
  await promote();
  await more(checker, 100);
  await fire(standby.url, 3);
  // A node that joins now finds the second host.
  alive = [...nodes, await startNode(url, "three")];
  await more(checker, 100);
  await load.stop();
  await settled(standby.url, checker);

  await expectKept(checker, asPatient);
  expect([checker.fired("tick"), checker.fired("queued")]).toEqual([6, 6]);
  expect(new Set(load.refused.map(({ status, retryAfter }) => `${status} ${retryAfter}`))).toEqual(
    new Set(["503 1"]),
  );
  expect(checker.calls.some(({ node }) => node === "three")).toBe(true);
});

test("an old transaction and a dump in progress delay no message and keep no node from joining", async () => {
  const postgres = await startPostgres({ fsync: true });
  onTestFinished(() => postgres.kill());
  const checker = await startDeliveryChecker();
  const { nodes, token } = await startNodes(postgres.url, ["one", "two"]);
  let alive = nodes;
  const ask = createNodeClient(token, { nodes: () => alive, ...client });
  const asPatient = createNodeClient(token, { nodes: () => alive, ...builder });
  await createObjects(asPatient, checker);
  const load = startLoad(ask, checker);
  await more(checker, 50);

  // A forgotten session with an uncommitted change: vacuum cannot remove rows that died since then.
  const old = await holdConnection(postgres.url, "begin; create table notes (note text)");
  // As pg_dump does: one snapshot of everything, all tables locked against changes of their definition, and
  // slow reads.
  const dump = await holdConnection(postgres.url, "begin isolation level repeatable read, read only");
  const tables = (
    await dump.query(
      "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')",
    )
  ).rows;
  await dump.query(`lock table ${tables.map(({ relname }) => relname).join(", ")} in access share mode`);
  await dump.query("declare slow cursor for select * from stored_messages");
  const copied = async (): Promise<number> => (await dump.query("fetch 10 from slow")).rows.length;

  for (let turn = 0; turn < 4; turn++) {
    expect(await copied()).toBeGreaterThan(0);
    await more(checker, 100);
    await fire(postgres.url, 1);
  }
  alive = [...nodes, await startNode(postgres.url, "three")];
  await more(checker, 100);
  await load.stop();
  await settled(postgres.url, checker);
  // Both transactions were open all the time, and still see every row of finished messages.
  expect((await dump.query("select count(*)::int as n from messages")).rows[0]?.n).toBeLessThan(200);
  const [horizon] = await asked(
    postgres.url,
    "select count(*)::int as n from pg_stat_activity " +
      "where backend_xmin is not null and pid <> pg_backend_pid()",
  );
  expect(Number(horizon?.["n"])).toBeGreaterThanOrEqual(1);
  await Promise.all([old.end(), dump.end()]);

  await expectKept(checker, asPatient);
  expect([checker.fired("tick"), checker.fired("queued")]).toEqual([4, 4]);
  expect(load.refused).toEqual([]);
});
