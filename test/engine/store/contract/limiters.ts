import { describe, expect, test } from "vitest";
import { StoreFixture, makeCallback } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

const makeKey = (name: string) => ({ flowControl: { key: name, parallelism: 1, rate: null, period: null } });

/** Queries of queues and keys. */
export function describeLimiters(open: OpenStore): void {
  describe("queues and keys", () => {
    test("list their oldest messages, including delayed ones, and no others", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      const ids = [
        await fixture.send({ queue: "q", delay: 60_000 }),
        await fixture.send({ queue: "q" }),
        await fixture.send({ queue: "q" }),
      ];
      await fixture.send();
      await fixture.send({ queue: "p" });
      await fixture.send({ queue: "q" }, "other");
      const of = (limit: number) =>
        fixture.store.read.listQueueMessages({ account: "acc", queue: "q", limit });
      expect(await of(10)).toEqual(ids);
      expect(await of(2)).toEqual(ids.slice(0, 2));
      expect(
        await fixture.store.read.listQueueMessages({ account: "acc", queue: "none", limit: 10 }),
      ).toEqual([]);
    });

    test("list the holders of their slots until the callbacks have finished", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      const first = await fixture.sent({ queue: "q", callback: makeCallback("https://told.example/") });
      await fixture.sent({ queue: "p" });
      await fixture.sent({ queue: "q" }, "other");
      await fixture.settle(first);
      expect(await fixture.store.read.listQueueSlots("acc", "q")).toEqual([first.message.id]);
      const [callback] = fixture.delivered();
      if (callback) await fixture.settle(callback);
      expect(await fixture.store.read.listQueueSlots("acc", "q")).toEqual([]);
    });

    test("start the next message when the previous one has finished, and keep their counts", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const first = await fixture.sent({ queue: "q", ...makeKey("k") });
      const second = await fixture.send({ queue: "q", ...makeKey("k") });
      const limiter = (id: string) => fixture.store.read.findResource("limiters", "acc", id);
      expect(await limiter("queue:q")).toMatchObject({ running: 1, waiting: 1 });
      expect(await fixture.claim()).toEqual([]);
      await fixture.settle(first);
      expect(fixture.delivered().map(({ message }) => message.id)).toEqual([second]);
      expect([await limiter("queue:q"), await limiter("key:k")]).toMatchObject([
        { running: 1, waiting: 0 },
        { running: 1, waiting: 0, windowUsed: 2 },
      ]);
      const range = { account: "acc", after: "key:", before: "key;", limit: 10 };
      expect(await fixture.store.read.listResources("limiters", range)).toEqual([await limiter("key:k")]);
    });

    test("become due at once if one batch has sent all waiting messages that it read", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const limited = { flowControl: { key: "k", parallelism: 2, rate: null, period: null } };
      const running = [await fixture.sent(limited), await fixture.sent(limited)];
      for (let count = 0; count < 4; count++) await fixture.send(limited);
      await fixture.store.execute("pinFlowControl", { account: "acc", key: "k", parallelism: 10 });
      await Promise.all(running.map((delivery) => fixture.settle(delivery)));
      expect(fixture.delivered()).toHaveLength(2);
      expect(await fixture.store.read.findResource("limiters", "acc", "key:k")).toMatchObject({
        running: 2,
        waiting: 2,
        dueAt: fixture.clock.now,
      });
    });

    test("are removed when they are deleted, while callbacks continue", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const first = await fixture.sent({ queue: "q", callback: makeCallback("https://told.example/") });
      await fixture.settle(first);
      const [callback] = fixture.delivered();
      const deleting = { account: "acc", name: "q", slots: [first.message.id] };
      expect(await fixture.store.execute("deleteQueue", { ...deleting, slots: [] })).toEqual({
        deleted: false,
      });
      expect(await fixture.store.execute("deleteQueue", deleting)).toEqual({ deleted: true });
      expect(await fixture.store.read.findResource("limiters", "acc", "queue:q")).toBeNull();
      if (callback) await fixture.settle(callback);
      expect(fixture.faults).toEqual([]);
      expect(await fixture.store.read.findResource("limiters", "acc", "queue:q")).toBeNull();
    });
  });

  test("deliveries in flight are counted per account until their leases end", async () => {
    const fixture = await StoreFixture.open(open);
    await fixture.account();
    await fixture.account("other");
    const under = (account = "acc") => fixture.store.read.countInFlight(account, fixture.clock.now);
    expect(await under()).toBe(0);
    const sent = await fixture.sent();
    await fixture.sent({ url: "https://two.example/" });
    await fixture.sent({}, "other");
    await fixture.send({ delay: 10_000 });
    expect([await under(), await under("other"), await under("none")]).toEqual([2, 1, 0]);
    await fixture.settle(sent);
    expect(await under()).toBe(1);
    fixture.clock.now += 30_000;
    expect(await under()).toBe(0);
  });
}
