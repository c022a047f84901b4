import { expect, describe, test } from "vitest";
import type { Filter } from "../../../src/core/search/filter.ts";
import type { Letter } from "../../../src/core/model/message.ts";
import { bytes, earliest, letterTo, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

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
      await failRuns(world, [startOf("wfr_1", { labels: ["a"], body: bytes("payload") })]);
      const { entries } = await world.store.read.deadLetters(earliest({ filter: { ofRuns: true } }));
      expect(entries).toMatchObject([
        {
          letter: { body: bytes("no") },
          failed: { run: { runId: "wfr_1", state: "RUN_FAILED" }, step: { position: 0, callType: "step" }, payload: bytes("payload") },
        },
      ]);
      const bare = await world.store.read.deadLetters({ ...earliest({ filter: { ofRuns: true } }), bodies: false });
      expect(bare.entries.map(({ letter, failed }) => [letter.body.byteLength, failed])).toEqual([[0, undefined]]);
      expect(await world.store.read.deadLetter("acc", entries[0]?.letter.id ?? "")).toMatchObject({
        failed: { run: { runId: "wfr_1" }, payload: bytes("payload") },
      });
    });

    test("keep of their responses, and of those of messages, what they were given", async () => {
      const world = await World.open(open);
      await world.account();
      const large = new Uint8Array(40_000).fill(65);
      await world.publish([startOf("wfr_1"), letterTo({ retries: 0 }), letterTo({ keepResponse: true })]);
      const deliveries = world.delivered();
      expect(deliveries.map(({ message }) => message.keepResponse)).toEqual([undefined, undefined, true]);
      for (const [at, delivery] of deliveries.entries()) {
        const cut = { body: large, digest: "d", kept: 30_000, cut: true } as const;
        await world.settle(delivery, at < 2 ? { status: 500, ...cut } : { status: 200, ...cut, logged: true });
      }
      const { entries } = await world.store.read.deadLetters(earliest({ filter: {} }));
      for (const { letter } of entries) {
        expect(letter).toMatchObject({ digest: "d", cut: true });
        expect(letter.body.byteLength).toBe(30_000);
      }
      expect(entries).toHaveLength(2);
      const { events } = await world.store.read.log(earliest({ filter: { states: ["ERROR", "DELIVERED"] } }));
      expect(events.map(({ row }) => [row?.status, row?.body.byteLength, row?.digest, row?.cut])).toEqual([
        [500, 16_384, "d", true],
        [500, 16_384, "d", true],
        [200, 16_384, "d", true],
      ]);
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
