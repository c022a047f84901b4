import { expect, describe, test } from "vitest";
import type { Filter } from "../../src/core/filter.ts";
import type { Letter } from "../../src/core/message.ts";
import { bytes, earliest, letterTo, World } from "./world.ts";
import type { OpenStore } from "./world.ts";

const url = "https://app.example/flow";
const features = { lazyFetch: true, initialBody: true, detect: false, captured: true };
export const startOf = (runId: string, over: Partial<Letter> = {}): Letter =>
  letterTo({ url, retries: 0, ...over, post: { kind: "start", runId, url: over.url ?? url, features, origin: "sdk", invoker: null } });

/** Starts runs, and lets each fail with its first message. */
export async function failRuns(world: World, letters: readonly Letter[], account = "acc"): Promise<void> {
  const results = await world.publish(letters, account);
  if (results.some((result) => "refused" in result)) throw new Error(JSON.stringify(results));
  await Promise.all(world.delivered().map((delivery) => world.settle(delivery, { status: 500, body: bytes("no") })));
}

/** Failed runs in the dead letter queue. */
export function describeFailedRuns(open: OpenStore): void {
  describe("failed runs", () => {
    test("are listed apart from messages, by what they have", async () => {
      const world = await World.open(open);
      await world.account();
      await world.account("other");
      for (const runId of ["order-1", "order-10", "order_%1", "ORDER-1", "заказ-1"]) {
        world.clock.now += 1_000;
        await failRuns(world, [startOf(runId, runId === "order-10" ? { url: "https://other.example" } : {})]);
      }
      await failRuns(world, [startOf("order-1")], "other");
      await world.die({ url });
      const found = async (filter: Filter, query = {}): Promise<(string | undefined)[]> =>
        (await world.store.read.deadLetters({ ...earliest({ filter }), ...query })).entries.map(({ letter }) => letter.run?.runId);
      expect(await found({ ofRuns: true })).toEqual(["order-1", "order-10", "order_%1", "ORDER-1", "заказ-1"]);
      expect(await found({ ofRuns: false })).toEqual([undefined]);
      expect(await found({ ofRuns: true, runIdStarts: ["order-1"] })).toEqual(["order-1", "order-10"]);
      expect(await found({ ofRuns: true, runIdStarts: ["order_", "заказ"] }, { order: "latestFirst" })).toEqual(["заказ-1", "order_%1"]);
      expect(await found({ ofRuns: true, runIdStarts: ["%"] })).toEqual([]);
      expect(await found({ ofRuns: true, runIds: ["order-1", "заказ-1", "order-"] })).toEqual(["order-1", "заказ-1"]);
      expect(await found({ ofRuns: true, runUrls: ["https://other.example"] })).toEqual(["order-10"]);
      expect(await found({ ofRuns: true, callbackStates: ["CALLBACK_FAIL"] })).toEqual([]);
      expect(await found({ ofRuns: true, runsCreatedAt: [world.clock.now] }, { bodies: false })).toEqual(["заказ-1"]);
    });

    test("come with the run and the step, but without bodies where none are asked for", async () => {
      const world = await World.open(open);
      await world.account();
      await failRuns(world, [startOf("wfr_1", { labels: ["a"] })]);
      const { entries } = await world.store.read.deadLetters(earliest({ filter: { ofRuns: true } }));
      expect(entries).toMatchObject([
        {
          letter: { body: bytes("no") },
          failed: { run: { runId: "wfr_1", state: "RUN_FAILED" }, step: { position: 0, callType: "step" } },
        },
      ]);
      const bare = await world.store.read.deadLetters({ ...earliest({ filter: { ofRuns: true } }), bodies: false });
      expect(bare.entries.map(({ letter, failed }) => [letter.body.byteLength, failed])).toEqual([[0, undefined]]);
      expect(await world.store.read.deadLetter("acc", entries[0]?.letter.id ?? "")).toMatchObject({ failed: { run: { runId: "wfr_1" } } });
    });

    test("are resumed once, however often that is asked for at the same time", async () => {
      const world = await World.open(open);
      await world.account();
      await failRuns(world, [startOf("wfr_1")]);
      const { entries } = await world.store.read.deadLetters(earliest({ filter: { ofRuns: true } }));
      const dlqId = entries[0]?.letter.id ?? "";
      const ask = (from: "failure" | "beginning") =>
        world.store.execute("resumeRun", { account: "acc", dlqId, from, overrides: {}, logRetention: 1e9 });
      const results = await Promise.allSettled([ask("failure"), ask("beginning"), ask("failure")]);
      expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected"]);
      expect(world.delivered()).toHaveLength(1);
      expect((await world.store.read.runs({ account: "acc", filter: {}, cursor: null, count: 10 })).runs).toHaveLength(2);
    });
  });
}
