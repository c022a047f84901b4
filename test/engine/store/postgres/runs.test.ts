import { expect, test } from "vitest";
import { freshDatabase } from "../../../postgres.ts";
import { listHistory, makeRunStart, makeRunStep, makeWaiter } from "../contract/runs.ts";
import { openNode } from "./postgresDatabase.ts";
import { bytes, closeAfterTest, TestClock, StoreFixture } from "../storeFixture.ts";

// Several nodes work on one run at the same time. Its history has no gap, each wait ends once, and the nodes
// do not wait for each other in a circle.

async function nodes(
  count: number,
): Promise<{ clock: TestClock; worlds: StoreFixture[]; first: StoreFixture }> {
  const url = await freshDatabase();
  const clock = new TestClock();
  const worlds: StoreFixture[] = [];
  for (let index = 0; index < count; index++) {
    const node = `nod_${index}`;
    worlds.push(
      new StoreFixture(closeAfterTest(await openNode(url, clock, { node, seed: index + 1 })), clock, node),
    );
  }
  const [first] = worlds;
  if (!first) throw new Error("one at least");
  await first.account();
  return { clock, worlds, first };
}

const slots = async (world: StoreFixture, runId: string): Promise<string[]> => {
  const found = await world.store.read.activeRun("acc", runId);
  const history = await world.store.read.history("acc", found?.run.id ?? "");
  expect(history.map(({ position }) => position)).toEqual(history.map((_, index) => index));
  expect(found?.active.steps).toBe(history.length);
  return history.map(({ id }) => id.split("/")[1] ?? "");
};

test("nodes that start one run at the same time start it once", async () => {
  const { worlds, first } = await nodes(3);
  for (let round = 0; round < 10; round++) {
    const answers = (
      await Promise.all(worlds.map((world) => world.publish([makeRunStart(`wfr_${round}`)])))
    ).flat();
    expect(
      new Set(answers.map((answer) => ("messageId" in answer ? answer.messageId : JSON.stringify(answer))))
        .size,
    ).toBe(1);
    expect(answers.filter((answer) => "deduplicated" in answer && !answer.deduplicated)).toHaveLength(1);
  }
  expect(
    (await first.store.read.runs({ account: "acc", filter: {}, cursor: null, count: 50 })).runs,
  ).toHaveLength(10);
});

test("nodes that post to one run at the same time keep each step once and in order", async () => {
  const { worlds, first } = await nodes(3);
  await first.publish([makeRunStart("wfr_1")]);
  const posts = worlds.flatMap((world, node) =>
    Array.from({ length: 20 }, (_, index) => world.publish([makeRunStep("wfr_1", 1 + node * 10 + index)])),
  );
  await Promise.all(posts);
  expect((await slots(first, "wfr_1")).sort()).toEqual(
    ["i", ...Array.from({ length: 40 }, (_, index) => `r${index + 1}`)].sort(),
  );
});

test("a waiter that is notified and times out at the same time on several nodes wakes once", async () => {
  const { worlds, first, clock } = await nodes(3);
  for (let round = 0; round < 10; round++) {
    const runId = `wfr_${round}`;
    await first.publish([makeRunStart(runId)]);
    for (const stepId of [1, 2, 3])
      await first.store.execute("wait", { account: "acc", runId, waiter: makeWaiter(stepId) });
    clock.now += 5_000;
    const waiting = await first.store.read.listEventWaiters("acc", "paid", { limit: 9 });
    await Promise.all([
      ...worlds.map((world) => world.store.execute("claim", { limit: 10 })),
      ...worlds.map((world) =>
        world.store.execute("notify", {
          account: "acc",
          event: "paid",
          body: bytes("x"),
          runId,
          kind: "event",
        }),
      ),
      first.store.execute("notify", {
        account: "acc",
        event: "paid",
        body: bytes("y"),
        waiterIds: waiting.map(({ id }) => id).reverse(),
      }),
    ]);
    expect((await slots(first, runId)).sort()).toEqual(["i", "r1", "r2", "r3"]);
  }
});

test("a run that is finished and cancelled at the same time ends once and keeps no message", async () => {
  const { worlds, first } = await nodes(3);
  for (let round = 0; round < 10; round++) {
    const runId = `wfr_${round}`;
    await first.publish([makeRunStart(runId, { delay: 60_000 })]);
    const found = await first.store.read.activeRun("acc", runId);
    const [one, two, three] = worlds;
    const [finished, cancelled] = await Promise.all([
      one?.store.execute("finishRun", { account: "acc", runId, body: bytes("r") }),
      two?.store.execute("cancelRuns", { account: "acc", runIds: [runId] }),
      three?.publish([makeRunStep(runId, 1, { delay: 60_000 })]).catch(() => null),
    ]);
    expect(Number(finished?.finished) + (cancelled?.cancelled ?? 0)).toBe(1);
    expect(await first.store.read.listRunMessages("acc", found?.run.id ?? "")).toEqual([]);
  }
});

test("calls carry the whole history, whichever node stored its steps and whichever sends them", async () => {
  const { worlds, first, clock } = await nodes(3);
  await first.publish([makeRunStart("wfr_1"), makeRunStart("wfr_2", { delay: 1_000 })]);
  const expected = ["payload\0"];
  expect(first.delivered().map(listHistory)).toEqual([expected]);
  // Each node finds steps of the others, now and then two of them in a row.
  for (const [index, node] of [0, 1, 1, 2, 0, 0, 2, 1, 0, 2, 2].entries()) {
    const world = worlds[node];
    await world?.publish([makeRunStep("wfr_1", index + 1), makeRunStep("wfr_2", index + 1)]);
    expected.push(`step ${index + 1}`);
    expect(world?.delivered().map(listHistory)).toEqual([expected, expected]);
  }
  const delayed = makeRunStep("wfr_1", 90, { delay: 60_000 });
  await worlds[1]?.publish([delayed]);
  await worlds[2]?.publish([makeRunStep("wfr_1", 91)]);
  clock.now += 60_000;
  const sent = (await first.claim()).find(({ message }) => message.run?.stepKey === "r90");
  expect(sent && listHistory(sent)).toEqual([...expected, "step 90"]);
});
