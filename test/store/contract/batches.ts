import { describe, expect, test } from "vitest";
import { Refusal } from "../../../src/core/values/errors.ts";
import { spans } from "../../../src/core/values/limits.ts";
import { accountNamed, letterTo, outcomeOf, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

/** Commands that go together, and what a node is told. */
export function describeBatches(open: OpenStore): void {
  describe("a batch", () => {
    test("runs its commands in order, each on what those before it made", async () => {
      const world = await World.open(open);
      const [created, published, second] = await Promise.all([
        world.store.execute("createAccount", accountNamed("acc")),
        world.publish([letterTo({ deduplication: "d" })]),
        world.publish([letterTo({ deduplication: "d" })]),
        world.store.execute("rotateKeys", { account: "acc" }),
        world.publish([letterTo({ delay: 1 })]),
      ]);
      expect(created.id).toBe("acc");
      expect(second).toEqual([{ ...published[0], deduplicated: true, url: letterTo().url }]);
      expect(world.delivered()).toMatchObject([{ signingKey: "sig_acc_1" }]);
    });

    test("a command that is refused leaves no trace, and the others go through", async () => {
      const world = await World.open(open);
      await world.account();
      const { messageId, dlqId } = await world.die();
      const tooMany = { account: "acc", dlqIds: [dlqId], logRetention: 0, overrides: { retries: 1_000_000 } };
      const all = await Promise.allSettled([
        world.send(),
        world.publish([letterTo()], "none"),
        world.store.execute("retryDeadLetters", tooMany),
        world.send(),
      ]);
      expect(all.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected", "fulfilled"]);
      for (const one of all) if (one.status === "rejected") expect(one.reason).toBeInstanceOf(Refusal);
      expect(world.delivered()).toHaveLength(2);
      expect(await world.store.read.deadLetter("acc", dlqId)).not.toBeNull();
      expect((await world.store.read.unfinished({ account: "acc", filter: {}, cursor: null, count: 9 })).messageIds).toHaveLength(2);
      expect(await world.states(messageId)).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
    });

    test("a limit that is given beside a publish goes on counting where it counted before it was taken away", async () => {
      const world = await World.open(open);
      await world.account();
      const limit = (parallelism: number | null) =>
        world.store.execute("changeAccount", { account: "acc", change: { limits: { parallelism } } });
      const counted = async () =>
        (await world.store.read.allSetUp("flows", { account: "acc", limit: 9 })).map(({ id, running }) => [id, running]);
      await limit(1);
      const url = "https://e.example/";
      await world.publish([letterTo({ url })]);
      expect(await counted()).toEqual([["endpoint:https://e.example/", 1]]);
      await limit(null);
      const [, published] = await Promise.all([limit(2), world.publish([letterTo({ url })]), world.publish([letterTo({ url })])]);
      expect(published).toMatchObject([{ deduplicated: false }]);
      // Those beside it have begun before there was a limit again.
      expect(await counted()).toEqual([["endpoint:https://e.example/", 1]]);
      await world.publish([letterTo({ url }), letterTo({ url })]);
      expect(await counted()).toEqual([["endpoint:https://e.example/", 2]]);
      for (let round = 0; round < 2; round++)
        for (const delivery of world.delivered()) await world.store.execute("settle", outcomeOf(delivery));
      expect(await counted()).toEqual([]);
    });

    test("takes many commands at once", async () => {
      const world = await World.open(open);
      await world.account();
      world.hands = { total: 2_000, perHost: 2_000 };
      await Promise.all(Array.from({ length: 700 }, (_, index) => world.send({ labels: [String(index)] })));
      const deliveries = world.delivered();
      expect(new Set(deliveries.map(({ message }) => message.id)).size).toBe(700);
      const settled = await Promise.all(deliveries.map((delivery) => world.store.execute("settle", outcomeOf(delivery))));
      expect(settled.every(({ became }) => became === "delivered")).toBe(true);
      expect(await world.store.nextDueAt()).toBeNull();
    });

    test("expiring two accounts in one batch keeps them apart", async () => {
      const world = await World.open(open);
      await world.account("a");
      await world.account("b");
      const [a, b] = [await world.die({}, "a"), await world.die({}, "b")];
      world.clock.now += 1_000;
      const { now } = world.clock;
      const expire = (account: string, kept: number) =>
        world.store.execute("expire", { account, retention: { log: kept, deadLetters: kept }, now, limit: 100 });
      expect(await Promise.all([expire("a", 100), expire("b", 5_000)])).toEqual([
        { removed: 2, more: false },
        { removed: 0, more: false },
      ]);
      expect(await world.store.read.message("a", a.messageId)).toBeNull();
      expect(await world.store.read.deadLetter("b", b.dlqId)).not.toBeNull();
    });

    test("an id that is used anew in the batch that would expire it is kept", async () => {
      const world = await World.open(open);
      await world.account();
      await world.send({ deduplication: "d" });
      world.clock.now += spans.deduplication + 1;
      const retention = { log: 1e9, deadLetters: 1e9 };
      const [again] = await Promise.all([
        world.send({ deduplication: "d" }),
        world.store.execute("expire", { account: "acc", retention, now: world.clock.now, limit: 100 }),
      ]);
      expect(await world.publish([letterTo({ deduplication: "d" })])).toEqual([
        { messageId: again, deduplicated: true, url: letterTo().url },
      ]);
    });
  });

  describe("what falls due", () => {
    test("is told to those who listen, until they stop", async () => {
      const world = await World.open(open);
      await world.account();
      const { now } = world.clock;
      const heard: number[] = [];
      const stop = world.store.onDue((at) => heard.push(at));
      await world.send({ delay: 500 });
      await Promise.all([world.send({ delay: 900 }), world.send({ delay: 700 })]);
      await world.send();
      stop();
      await world.send({ delay: 100 });
      expect(heard).toEqual([now + 500, now + 700, now + spans.lease]);
      expect(world.dues).toEqual([...heard, now + 100]);
      expect(await world.store.nextDueAt()).toBe(now + 100);
    });

    test("is nothing in an empty store, nor after all has ended", async () => {
      const world = await World.open(open);
      expect(await world.store.nextDueAt()).toBeNull();
      await world.account();
      await world.settle(await world.sent());
      expect(await world.store.nextDueAt()).toBeNull();
    });
  });

  test("a dead letter that is sent again under another key finds what that key counts", async () => {
    const world = await World.open(open);
    await world.account();
    const limited = (key: string) => ({ flowControl: { key, parallelism: 1, rate: null, period: null } });
    const { dlqId } = await world.die(limited("old"));
    await world.sent(limited("new"));
    const again = { account: "acc", dlqIds: [dlqId], logRetention: 1e9, overrides: limited("new") };
    const [retried] = await world.store.execute("retryDeadLetters", again);
    expect((await world.store.read.message("acc", retried?.messageId ?? ""))?.state).toMatchObject({ state: "held", line: "key:new" });
    expect(await world.store.read.setUp("flows", "acc", "key:new")).toMatchObject({ running: 1, waiting: 1 });
  });

  test("a store that is closed takes no more, and lets what is under way end", async () => {
    const world = await World.open(open);
    await world.account();
    const underWay = world.send();
    const closed = world.store.close();
    await expect(world.send()).rejects.toMatchObject({ code: "stopping" });
    expect(await underWay).toMatch(/^msg_/);
    await closed;
  });
}
