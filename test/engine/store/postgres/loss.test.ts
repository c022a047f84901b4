import { expect, test } from "vitest";
import type { CommitLoss } from "../../../../src/engine/core/cluster/commitLoss.ts";
import { nodeRetention } from "../../../../src/engine/core/cluster/commitLoss.ts";
import { postgresStore } from "../../../../src/engine/store/postgres/database.ts";
import { freshDatabase } from "../../../postgres.ts";
import { createRandom } from "../createRandom.ts";
import { listHistory, makeRunStart, makeRunStep } from "../contract/runs.ts";
import { ask, openNode } from "./postgresDatabase.ts";
import { closeAfterTest, makeInput, createSteppedClock, TestClock, StoreFixture } from "../storeFixture.ts";

// The database has lost acknowledged batches, like a standby that was behind at a failover.

async function nodeAt(url: string): Promise<{ world: StoreFixture; losses: CommitLoss[] }> {
  const clock = new TestClock();
  const losses: CommitLoss[] = [];
  const options = {
    url,
    node: "nod_a",
    random: createRandom(1),
    now: () => clock.now,
    clock: createSteppedClock(clock),
  };
  const store = await postgresStore({ ...options, onLoss: (loss) => void losses.push(loss) });
  return { world: new StoreFixture(closeAfterTest(store), clock, "nod_a"), losses };
}

/** Runs a statement while the node has no writing connection. */
async function between(url: string, sql: string): Promise<void> {
  await ask(
    url,
    "select pg_terminate_backend(pid) from pg_stat_activity " +
      "where application_name = 'waypost writer' and datname = current_database()",
  );
  await ask(url, sql);
}

const counter = async (url: string): Promise<unknown> =>
  (await ask(url, "select counter::int as counter from nodes"))[0]?.["counter"];

test("each batch that changes something raises its node's counter by one", async () => {
  const url = await freshDatabase();
  const { world } = await nodeAt(url);
  expect(await counter(url)).toBe(0);
  await world.account();
  await world.send({ delay: 1 });
  expect(await counter(url)).toBe(2);
  await world.claim();
  await expect(world.publish([makeInput()], "nobody")).rejects.toMatchObject({ name: "Refusal" });
  expect(await counter(url)).toBe(2);
  const [row] = await ask(url, "select id, used_at::text as used from nodes");
  expect(row).toEqual({ id: "nod_a", used: String(world.clock.now) });
});

test("a node reports lost batches once and continues with the database's counter", async () => {
  const url = await freshDatabase();
  const { world, losses } = await nodeAt(url);
  await world.account();
  const from = world.clock.now;
  for (let batch = 0; batch < 3; batch++) {
    world.clock.now += 1_000;
    await world.send({ delay: 1 });
  }
  await between(url, `update nodes set counter = 1, used_at = ${from}`);
  world.clock.now += 1_000;
  await world.send({ delay: 1 });
  expect(losses).toEqual([{ batches: 3, from, to: from + 3_000 }]);
  expect(await counter(url)).toBe(2);
  await world.send({ delay: 1 });
  await between(url, "select 1");
  await world.send({ delay: 1 });
  expect(losses).toHaveLength(1);
  expect(await counter(url)).toBe(4);
});

test("a row with only a membership records no batch, so the beginning of the loss is unknown", async () => {
  const url = await freshDatabase();
  const { world, losses } = await nodeAt(url);
  await world.account();
  await between(url, "update nodes set counter = 0, used_at = 0");
  await world.send({ delay: 1 });
  expect(losses).toEqual([{ batches: 1, from: null, to: world.clock.now }]);
});

test("a commit with an unknown outcome is never reported as lost, stored or not", async () => {
  const url = await freshDatabase();
  const { world, losses } = await nodeAt(url);
  await world.account();
  // The connection is lost during the commit, so the node does not learn whether it was stored.
  await ask(
    url,
    `create function cut() returns trigger language plpgsql as $$
      begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$`,
  );
  await ask(
    url,
    "create constraint trigger cut after insert on stored_messages deferrable initially deferred " +
      "for each row execute function cut()",
  );
  await expect(world.send({ delay: 1 })).rejects.toMatchObject({
    message: expect.stringContaining("the request may or may not have been stored; check before you retry"),
  });
  await ask(url, "drop trigger cut on stored_messages");
  await world.send({ delay: 1 });
  // Pretends that a batch was stored without the knowledge of the node.
  await between(url, "update nodes set counter = counter + 1");
  await world.send({ delay: 1 });
  expect(losses).toEqual([]);
  expect(await counter(url)).toBe(4);
});

test("a starting node removes the rows of nodes that have changed nothing for 30 days", async () => {
  const url = await freshDatabase();
  const { world } = await nodeAt(url);
  const before = world.clock.now - nodeRetention;
  await ask(
    url,
    "insert into nodes (id, started_at, used_at) " +
      `values ('old', 1, ${before - 1}), ('new', ${before}, 0), ('used', 1, ${before})`,
  );
  closeAfterTest(await openNode(url, world.clock, { node: "nod_b" }));
  const ids = (await ask(url, "select id from nodes order by id")).map(({ id }) => id);
  expect(ids).toEqual(["new", "nod_a", "nod_b", "used"]);
});

test.each([
  ["with its connection", true],
  ["without losing its connection, as behind a pooler", false],
])("a node sends no step that the database has lost %s", async (_, isCut) => {
  const url = await freshDatabase();
  const { world, losses } = await nodeAt(url);
  await world.account();
  await world.publish([makeRunStart("wfr_1")]);
  await world.publish([makeRunStep("wfr_1", 1)]);
  const [node] = await ask(url, "select counter::int as counter, used_at::text as used_at from nodes");
  const [run] = await ask(url, "select steps::int as steps, size::int as size from active_runs");
  await world.publish([makeRunStep("wfr_1", 2)]);
  await world.publish([makeRunStep("wfr_1", 3)]);
  expect(world.delivered().map(listHistory).at(-1)).toEqual(["payload\0", "step 1", "step 2", "step 3"]);
  const lose =
    "delete from steps where position >= 2; " +
    `update active_runs set steps = ${String(run?.["steps"])}, size = ${String(run?.["size"])}; ` +
    `update nodes set counter = ${String(node?.["counter"])}, used_at = ${String(node?.["used_at"])}`;
  await (isCut ? between(url, lose) : ask(url, lose));
  const other = new StoreFixture(
    closeAfterTest(await openNode(url, world.clock, { node: "nod_b", seed: 2 })),
    world.clock,
    "nod_b",
  );
  await other.publish([makeRunStep("wfr_1", 8)]);
  await other.publish([makeRunStep("wfr_1", 9)]);
  // As many steps as before follow, so that the kept history would seem to fit.
  await world.publish([makeRunStep("wfr_1", 10)]);
  const expected = ["payload\0", "step 1", "step 8", "step 9", "step 10"];
  expect(world.delivered().map(listHistory)).toEqual([expected]);
  expect(losses).toHaveLength(1);
});
