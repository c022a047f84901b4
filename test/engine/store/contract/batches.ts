import { describe, expect, test } from "vitest";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import { makeAccount, makeInput, makeOutcome, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

/** Commands that share a batch, and what a node is notified of. */
export function describeBatches(open: OpenStore): void {
  describe("a batch", () => {
    test("runs its commands in order, each on the changes of the earlier ones", async () => {
      const fixture = await StoreFixture.open(open);
      const [created, published, second] = await Promise.all([
        fixture.store.execute("createAccount", makeAccount("acc")),
        fixture.publish([makeInput({ deduplication: "d" })]),
        fixture.publish([makeInput({ deduplication: "d" })]),
        fixture.store.execute("rotateKeys", { account: "acc" }),
        fixture.publish([makeInput({ delay: 1 })]),
      ]);
      expect(created.id).toBe("acc");
      expect(second).toEqual([{ ...published[0], deduplicated: true, url: makeInput().url }]);
      expect(fixture.delivered()).toMatchObject([{ signingKey: "sig_acc_1" }]);
    });

    test("keeps no change of a refused command and stores the other commands", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { messageId, dlqId } = await fixture.publishFailing();
      const tooMany = { account: "acc", dlqIds: [dlqId], logRetention: 0, overrides: { retries: 1_000_000 } };
      const all = await Promise.allSettled([
        fixture.send(),
        fixture.publish([makeInput()], "none"),
        fixture.store.execute("retryDeadLetters", tooMany),
        fixture.send(),
      ]);
      expect(all.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected", "fulfilled"]);
      for (const one of all) if (one.status === "rejected") expect(one.reason).toBeInstanceOf(Refusal);
      expect(fixture.delivered()).toHaveLength(2);
      expect(await fixture.store.read.deadLetter("acc", dlqId)).not.toBeNull();
      expect(
        (await fixture.store.read.unfinished({ account: "acc", filter: {}, cursor: null, count: 9 }))
          .messageIds,
      ).toHaveLength(2);
      expect(await fixture.states(messageId)).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
    });

    test("continues the old count if a limit is removed and set again together with a publish", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const limit = (parallelism: number | null) =>
        fixture.store.execute("changeAccount", { account: "acc", change: { limits: { parallelism } } });
      const counted = async () =>
        (await fixture.store.read.listResources("limiters", { account: "acc", limit: 9 })).map(
          ({ id, running }) => [id, running],
        );
      await limit(1);
      const url = "https://e.example/";
      await fixture.publish([makeInput({ url })]);
      expect(await counted()).toEqual([["endpoint:https://e.example/", 1]]);
      await limit(null);
      const [, published] = await Promise.all([
        limit(2),
        fixture.publish([makeInput({ url })]),
        fixture.publish([makeInput({ url })]),
      ]);
      expect(published).toMatchObject([{ deduplicated: false }]);
      // The limit applies to the other commands of the batch: one message is sent, and one is held.
      expect(await counted()).toEqual([["endpoint:https://e.example/", 2]]);
      await fixture.publish([makeInput({ url }), makeInput({ url })]);
      expect(await counted()).toEqual([["endpoint:https://e.example/", 2]]);
      for (let round = 0; round < 5; round++)
        for (const delivery of fixture.delivered())
          await fixture.store.execute("settle", makeOutcome(delivery));
      expect(await counted()).toEqual([]);
    });

    test("runs many commands at once", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      fixture.capacity = { total: 2_000, perHost: 2_000 };
      await Promise.all(Array.from({ length: 700 }, (_, index) => fixture.send({ labels: [String(index)] })));
      const deliveries = fixture.delivered();
      expect(new Set(deliveries.map(({ message }) => message.id)).size).toBe(700);
      const settled = await Promise.all(
        deliveries.map((delivery) => fixture.store.execute("settle", makeOutcome(delivery))),
      );
      expect(settled.every(({ became }) => became === "delivered")).toBe(true);
      expect(await fixture.store.nextDueAt()).toBeNull();
    });

    test("keeps two accounts apart if it expires rows of both", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account("a");
      await fixture.account("b");
      const a = await fixture.publishFailing({}, "a");
      const b = await fixture.publishFailing({}, "b");
      fixture.clock.now += 1_000;
      const { now } = fixture.clock;
      const expire = (account: string, kept: number) =>
        fixture.store.execute("expire", {
          account,
          retention: { log: kept, deadLetters: kept },
          now,
          limit: 100,
        });
      expect(await Promise.all([expire("a", 100), expire("b", 5_000)])).toEqual([
        { removed: 2, more: false },
        { removed: 0, more: false },
      ]);
      expect(await fixture.store.read.message("a", a.messageId)).toBeNull();
      expect(await fixture.store.read.deadLetter("b", b.dlqId)).not.toBeNull();
    });

    test("keeps a deduplication id that is used again in the batch that would expire it", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.send({ deduplication: "d" });
      fixture.clock.now += spans.deduplication + 1;
      const retention = { log: 1e9, deadLetters: 1e9 };
      const [again] = await Promise.all([
        fixture.send({ deduplication: "d" }),
        fixture.store.execute("expire", { account: "acc", retention, now: fixture.clock.now, limit: 100 }),
      ]);
      expect(await fixture.publish([makeInput({ deduplication: "d" })])).toEqual([
        { messageId: again, deduplicated: true, url: makeInput().url },
      ]);
    });
  });

  describe("due rows", () => {
    test("notify listeners until they unsubscribe", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { now } = fixture.clock;
      const heard: number[] = [];
      const stop = fixture.store.onDue((at) => heard.push(at));
      await fixture.send({ delay: 500 });
      await Promise.all([fixture.send({ delay: 900 }), fixture.send({ delay: 700 })]);
      await fixture.send();
      stop();
      await fixture.send({ delay: 100 });
      expect(heard).toEqual([now + 500, now + 700, now + spans.lease]);
      expect(fixture.dues).toEqual([...heard, now + 100]);
      expect(await fixture.store.nextDueAt()).toBe(now + 100);
    });

    test("do not exist in an empty store or after all messages have ended", async () => {
      const fixture = await StoreFixture.open(open);
      expect(await fixture.store.nextDueAt()).toBeNull();
      await fixture.account();
      await fixture.settle(await fixture.sent());
      expect(await fixture.store.nextDueAt()).toBeNull();
    });
  });

  test("a dead letter that is retried under another key joins the count of that key", async () => {
    const fixture = await StoreFixture.open(open);
    await fixture.account();
    const limited = (key: string) => ({ flowControl: { key, parallelism: 1, rate: null, period: null } });
    const { dlqId } = await fixture.publishFailing(limited("old"));
    await fixture.sent(limited("new"));
    const again = { account: "acc", dlqIds: [dlqId], logRetention: 1e9, overrides: limited("new") };
    const [retried] = await fixture.store.execute("retryDeadLetters", again);
    expect((await fixture.store.read.message("acc", retried?.messageId ?? ""))?.state).toMatchObject({
      state: "held",
      waitlist: "key:new",
    });
    expect(await fixture.store.read.findResource("limiters", "acc", "key:new")).toMatchObject({
      running: 1,
      waiting: 1,
    });
  });

  test("a closed store refuses new calls and finishes running ones", async () => {
    const fixture = await StoreFixture.open(open);
    await fixture.account();
    const underWay = fixture.send();
    const closed = fixture.store.close();
    await expect(fixture.send()).rejects.toMatchObject({ code: "stopping" });
    expect(await underWay).toMatch(/^msg_/);
    await closed;
  });
}
