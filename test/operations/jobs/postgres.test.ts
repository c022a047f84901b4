import { expect, test } from "vitest";
import type { JobRunner } from "../../../src/operations/jobs/runner.ts";
import { createJobRunner } from "./jobRunner.ts";
import type { StoreFixture } from "../../engine/store/storeFixture.ts";
import { makeLogQuery } from "../../engine/store/storeFixture.ts";
import { idsOf, openNodes } from "../../engine/store/postgres/severalNodes.ts";

const count = 30;

const createRunner = ({ store, clock, node }: StoreFixture): JobRunner =>
  createJobRunner({ store, now: () => clock.now, node });

test("nodes of one database that do a job at the same time do each entry once", async () => {
  const { worlds, clock } = await openNodes(3);
  const [first] = worlds;
  for (let at = 0; at < count; at++) await first.publishFailing();
  const { entries } = await first.store.read.deadLetters(makeLogQuery({ count }));
  const job = await first.store.execute("createJob", {
    account: "acc",
    action: "dlq.retry",
    filter: { belongsToRun: false },
    startedBy: { kind: "token", token: "main", address: null },
    last:
      entries
        .map(({ deadLetter }) => deadLetter.id)
        .sort()
        .at(-1) ?? "",
    rate: null,
    canary: null,
    known: [],
    logRetention: 86_400_000,
  });
  for (const world of worlds) world.delivered();
  // The node that created the job has died, so all others take over at once.
  const others = worlds.slice(1);
  const runners = others.map(createRunner);
  for (let round = 0; round < count; round++) {
    clock.now += 5_000;
    await Promise.all(runners.map((runner) => runner.round()));
  }
  expect(await first.store.read.job("acc", job.id)).toMatchObject({
    state: "done",
    total: count,
    done: count,
    failed: 0,
  });
  expect((await first.store.read.deadLetters(makeLogQuery({ count }))).entries).toEqual([]);
  const sent = idsOf(others.flatMap((world) => world.delivered()));
  expect(new Set(sent).size).toBe(count);
  expect(sent).toHaveLength(count);
});
