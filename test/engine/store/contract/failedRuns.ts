import { expect, describe, test } from "vitest";
import type { Filter } from "../../../../src/engine/core/search/filter.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import { bytes, makeLogQuery, makeOldestFirstQuery, makeInput, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

const url = "https://app.example/flow";
const features = { lazyFetch: true, initialBody: true, detect: false, captured: true };
/** Returns the request that starts a run whose first failure is final. */
export const makeStartInput = (runId: string, overrides: Partial<MessageInput> = {}): MessageInput =>
  makeInput({
    url,
    retries: 0,
    ...overrides,
    post: { kind: "start", runId, url: overrides.url ?? url, features, origin: "sdk", invoker: null },
  });

/** Starts runs whose first message fails. */
export async function failRuns(
  fixture: StoreFixture,
  inputs: readonly MessageInput[],
  account = "acc",
): Promise<void> {
  const results = await fixture.publish(inputs, account);
  if (results.some((result) => "refused" in result)) throw new Error(JSON.stringify(results));
  await Promise.all(
    fixture.delivered().map((delivery) => fixture.settle(delivery, { status: 500, body: bytes("no") })),
  );
}

/** Failed runs in the dead letter queue. */
export function describeFailedRuns(open: OpenStore): void {
  describe("failed runs", () => {
    test("are listed separately from messages, by every filter", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      for (const runId of ["order-1", "order-10", "order_%1", "ORDER-1", "заказ-1"]) {
        fixture.clock.now += 1_000;
        await failRuns(fixture, [
          makeStartInput(runId, runId === "order-10" ? { url: "https://other.example" } : {}),
        ]);
      }
      await failRuns(fixture, [makeStartInput("order-1")], "other");
      await fixture.publishFailing({ url });
      const found = async (filter: Filter, query = {}): Promise<(string | undefined)[]> =>
        (await fixture.store.read.deadLetters({ ...makeOldestFirstQuery({ filter }), ...query })).entries.map(
          ({ deadLetter: input }) => input.run?.runId,
        );
      expect(await found({ belongsToRun: true })).toEqual([
        "order-1",
        "order-10",
        "order_%1",
        "ORDER-1",
        "заказ-1",
      ]);
      expect(await found({ belongsToRun: false })).toEqual([undefined]);
      expect(await found({ belongsToRun: true, runIdStarts: ["order-1"] })).toEqual(["order-1", "order-10"]);
      expect(
        await found({ belongsToRun: true, runIdStarts: ["order_", "заказ"] }, { order: "latestFirst" }),
      ).toEqual(["заказ-1", "order_%1"]);
      expect(await found({ belongsToRun: true, runIdStarts: ["%"] })).toEqual([]);
      expect(await found({ belongsToRun: true, runIds: ["order-1", "заказ-1", "order-"] })).toEqual([
        "order-1",
        "заказ-1",
      ]);
      expect(await found({ belongsToRun: true, runUrls: ["https://other.example"] })).toEqual(["order-10"]);
      expect(await found({ belongsToRun: true, callbackStates: ["CALLBACK_FAIL"] })).toEqual([]);
      expect(
        await found({ belongsToRun: true, runsCreatedAt: [fixture.clock.now] }, { bodies: false }),
      ).toEqual(["заказ-1"]);
    });

    test("are grouped by cause, apart from messages, page by page", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await failRuns(fixture, [makeStartInput("wfr_1"), makeStartInput("wfr_2")]);
      fixture.clock.now += 1_000;
      await failRuns(fixture, [makeStartInput("wfr_3", { url: "https://other.example" })]);
      const message = await fixture.publishFailing({ url });
      const grouped = (filter: Filter, query = {}) =>
        fixture.store.read.groupDeadLetters({ ...makeLogQuery({ filter }), ...query });
      const cause = { error: "the endpoint answered with status …", stepName: null, afterStep: null };
      const ofRuns = { ...cause, status: null };
      const later = { firstAt: fixture.clock.now, lastAt: fixture.clock.now };
      const earlier = { firstAt: fixture.clock.now - 1_000, lastAt: fixture.clock.now - 1_000 };
      const other = { ...ofRuns, ...later, url: "https://other.example", count: 1 };
      expect(await grouped({ belongsToRun: true })).toMatchObject({
        ...{ groups: [{ ...ofRuns, ...earlier, url, count: 2 }, other], entries: 3, cursor: null },
      });
      expect(await grouped({ belongsToRun: false })).toEqual({
        groups: [
          {
            ...cause,
            cause: expect.any(String),
            isCut: false,
            trend: [],
            error: "answer",
            ...later,
            url,
            status: 500,
            count: 1,
            dlqId: message.dlqId,
          },
        ],
        ...{ entries: 1, cursor: null },
      });
      const first = await grouped({ belongsToRun: true }, { count: 2 });
      expect(first).toMatchObject({ groups: [other, { url, count: 1 }], entries: 2 });
      const second = await grouped({ belongsToRun: true }, { count: 2, cursor: first.cursor });
      expect(second).toMatchObject({ groups: [{ url, count: 1 }], entries: 1, cursor: null });
      expect(await grouped({ belongsToRun: true, runIds: ["none"] })).toEqual({
        ...{ groups: [], entries: 0, cursor: null },
      });
      expect(await grouped({}, { account: "other" })).toEqual({ groups: [], entries: 0, cursor: null });
    });

    test("include the run and the step, without bodies if none are requested", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await failRuns(fixture, [makeStartInput("wfr_1", { labels: ["a"], body: bytes("payload") })]);
      const { entries } = await fixture.store.read.deadLetters(
        makeOldestFirstQuery({ filter: { belongsToRun: true } }),
      );
      expect(entries).toMatchObject([
        {
          deadLetter: { body: bytes("no") },
          failed: {
            run: { runId: "wfr_1", state: "RUN_FAILED" },
            step: { position: 0, callType: "step" },
            payload: bytes("payload"),
          },
        },
      ]);
      const bare = await fixture.store.read.deadLetters({
        ...makeOldestFirstQuery({ filter: { belongsToRun: true } }),
        bodies: false,
      });
      expect(bare.entries.map(({ deadLetter, failed }) => [deadLetter.body.byteLength, failed])).toEqual([
        [0, undefined],
      ]);
      expect(await fixture.store.read.deadLetter("acc", entries[0]?.deadLetter.id ?? "")).toMatchObject({
        failed: { run: { runId: "wfr_1" }, payload: bytes("payload") },
      });
    });

    test("keep as much of their responses as requested, like messages", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const large = new Uint8Array(40_000).fill(65);
      await fixture.publish([
        makeStartInput("wfr_1"),
        makeInput({ retries: 0 }),
        makeInput({ keepResponse: true }),
      ]);
      const deliveries = fixture.delivered();
      expect(deliveries.map(({ message }) => message.keepResponse)).toEqual([undefined, undefined, true]);
      for (const [at, delivery] of deliveries.entries()) {
        const cut = { body: large, digest: "d", keptBytes: 30_000, cut: true } as const;
        await fixture.settle(
          delivery,
          at < 2 ? { status: 500, ...cut } : { status: 200, ...cut, keepsInLog: true },
        );
      }
      const { entries } = await fixture.store.read.deadLetters(makeOldestFirstQuery({ filter: {} }));
      for (const { deadLetter } of entries) {
        expect(deadLetter).toMatchObject({ digest: "d", cut: true });
        expect(deadLetter.body.byteLength).toBe(30_000);
      }
      expect(entries).toHaveLength(2);
      const { events } = await fixture.store.read.log(
        makeOldestFirstQuery({ filter: { states: ["ERROR", "DELIVERED"] } }),
      );
      expect(events.map(({ row }) => [row?.status, row?.body.byteLength, row?.digest, row?.cut])).toEqual([
        [500, 16_384, "d", true],
        [500, 16_384, "d", true],
        [200, 16_384, "d", true],
      ]);
    });

    test("are resumed with their payloads in the batch of a removal whose clock is ahead", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await failRuns(fixture, [makeStartInput("wfr_1", { body: bytes("payload") })]);
      const { entries } = await fixture.store.read.deadLetters(
        makeOldestFirstQuery({ filter: { belongsToRun: true } }),
      );
      const dlqId = entries[0]?.deadLetter.id ?? "";
      const retention = { log: 1_000, deadLetters: 1_000 };
      const now = fixture.clock.now + 10_000;
      const resume = { account: "acc", dlqId, from: "failure", overrides: {}, logRetention: 1e9 } as const;
      const [{ removed }, { runId }] = await Promise.all([
        fixture.store.execute("expire", { account: "acc", retention, now, limit: 10 }),
        fixture.store.execute("resumeRun", resume),
      ]);
      expect(removed).toBe(0);
      const resumed = await fixture.store.read.activeRun("acc", runId);
      const history = await fixture.store.read.history("acc", resumed?.run.id ?? "");
      expect(history.map(({ body }) => body)).toEqual([bytes("payload")]);
    });

    test("are resumed once, even if several requests arrive at the same time", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await failRuns(fixture, [makeStartInput("wfr_1")]);
      const { entries } = await fixture.store.read.deadLetters(
        makeOldestFirstQuery({ filter: { belongsToRun: true } }),
      );
      const dlqId = entries[0]?.deadLetter.id ?? "";
      const ask = (from: "failure" | "beginning") =>
        fixture.store.execute("resumeRun", { account: "acc", dlqId, from, overrides: {}, logRetention: 1e9 });
      const results = await Promise.allSettled([ask("failure"), ask("beginning"), ask("failure")]);
      expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected"]);
      expect(fixture.delivered()).toHaveLength(1);
      expect(
        (await fixture.store.read.runs({ account: "acc", filter: {}, cursor: null, count: 10 })).runs,
      ).toHaveLength(2);
    });
  });
}
