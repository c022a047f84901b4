import { expect, test } from "vitest";
import { freshDatabase } from "../../../postgres.ts";
import { failRuns, makeStartInput } from "../contract/failedRuns.ts";
import { openNode } from "./postgresDatabase.ts";
import { closeAfterTest, makeOldestFirstQuery, TestClock, StoreFixture } from "../storeFixture.ts";

async function twoNodes(): Promise<[StoreFixture, StoreFixture]> {
  const url = await freshDatabase();
  const clock = new TestClock();
  const open = async (node: string, seed: number) =>
    new StoreFixture(closeAfterTest(await openNode(url, clock, { node, seed })), clock, node);
  const worlds: [StoreFixture, StoreFixture] = [await open("nod_a", 1), await open("nod_b", 2)];
  await worlds[0].account();
  return worlds;
}

const entriesOf = async ({ store }: StoreFixture): Promise<string[]> =>
  (await store.read.deadLetters(makeOldestFirstQuery({ filter: { belongsToRun: true } }))).entries.map(
    ({ deadLetter }) => deadLetter.id,
  );

const resume = ({ store }: StoreFixture, dlqId: string | undefined, overrides = {}) =>
  store.execute("resumeRun", {
    account: "acc",
    dlqId: dlqId ?? "",
    from: "failure",
    overrides,
    logRetention: 1e9,
  });

const countRuns = async ({ store }: StoreFixture): Promise<number> =>
  (await store.read.runs({ account: "acc", filter: { states: ["RUN_STARTED"] }, cursor: null, count: 100 }))
    .runs.length;

test("nodes that resume one run at the same time create one new run", async () => {
  const worlds = await twoNodes();
  for (let round = 1; round <= 15; round++) {
    for (const world of worlds) world.delivered();
    await failRuns(worlds[0], [makeStartInput(`wfr_${round}`)]);
    const [dlqId] = await entriesOf(worlds[0]);
    const results = await Promise.allSettled([...worlds, ...worlds].map((world) => resume(world, dlqId)));
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    for (const result of results)
      if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "not-found" });
    expect(await countRuns(worlds[1])).toBe(round);
    expect(await entriesOf(worlds[1])).toEqual([]);
  }
});

test("nodes that resume two runs under one name at the same time create one run of that name", async () => {
  const worlds = await twoNodes();
  for (let round = 1; round <= 10; round++) {
    for (const world of worlds) world.delivered();
    await failRuns(worlds[0], [makeStartInput(`one_${round}`), makeStartInput(`two_${round}`)]);
    const dlqIds = (await entriesOf(worlds[0])).slice(-2);
    const results = await Promise.allSettled(
      worlds.map((world, at) => resume(world, dlqIds[at], { runId: `name_${round}` })),
    );
    expect(results.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
    expect(await countRuns(worlds[1])).toBe(round);
    // The dead letter of the other run is still there.
    expect(await entriesOf(worlds[1])).toHaveLength(round);
  }
});
