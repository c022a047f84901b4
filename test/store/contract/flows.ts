import { describe, expect, test } from "vitest";
import { World, callbackTo } from "../world.ts";
import type { OpenStore } from "../world.ts";

const key = (name: string) => ({ flowControl: { key: name, parallelism: 1, rate: null, period: null } });

/** What is asked about queues and keys. */
export function describeFlows(open: OpenStore): void {
  describe("queues and keys", () => {
    test("tell of their oldest messages, delayed ones included, and of no others", async () => {
      const world = await World.open(open);
      await world.account();
      await world.account("other");
      const ids = [await world.send({ queue: "q", delay: 60_000 }), await world.send({ queue: "q" }), await world.send({ queue: "q" })];
      await world.send();
      await world.send({ queue: "p" });
      await world.send({ queue: "q" }, "other");
      const of = (limit: number) => world.store.read.messagesOfQueue({ account: "acc", queue: "q", limit });
      expect(await of(10)).toEqual(ids);
      expect(await of(2)).toEqual(ids.slice(0, 2));
      expect(await world.store.read.messagesOfQueue({ account: "acc", queue: "none", limit: 10 })).toEqual([]);
    });

    test("know who holds their places, until the callbacks are finished", async () => {
      const world = await World.open(open);
      await world.account();
      await world.account("other");
      const first = await world.sent({ queue: "q", callback: callbackTo("https://told.example/") });
      await world.sent({ queue: "p" });
      await world.sent({ queue: "q" }, "other");
      await world.settle(first);
      expect(await world.store.read.slotsOf("acc", "q")).toEqual([first.message.id]);
      const [callback] = world.delivered();
      if (callback) await world.settle(callback);
      expect(await world.store.read.slotsOf("acc", "q")).toEqual([]);
    });

    test("send the next message when the one before is finished, and keep what they count", async () => {
      const world = await World.open(open);
      await world.account();
      const first = await world.sent({ queue: "q", ...key("k") });
      const second = await world.send({ queue: "q", ...key("k") });
      const flow = (id: string) => world.store.read.setUp("flows", "acc", id);
      expect(await flow("queue:q")).toMatchObject({ running: 1, waiting: 1 });
      expect(await world.claim()).toEqual([]);
      await world.settle(first);
      expect(world.delivered().map(({ message }) => message.id)).toEqual([second]);
      expect([await flow("queue:q"), await flow("key:k")]).toMatchObject([
        { running: 1, waiting: 0 },
        { running: 1, waiting: 0, windowUsed: 2 },
      ]);
      const range = { account: "acc", after: "key:", before: "key;", limit: 10 };
      expect(await world.store.read.allSetUp("flows", range)).toEqual([await flow("key:k")]);
    });

    test("go on at once when outcomes of one batch have let go all that they looked at", async () => {
      const world = await World.open(open);
      await world.account();
      const limited = { flowControl: { key: "k", parallelism: 2, rate: null, period: null } };
      const running = [await world.sent(limited), await world.sent(limited)];
      for (let count = 0; count < 4; count++) await world.send(limited);
      await world.store.execute("pinFlow", { account: "acc", key: "k", parallelism: 10 });
      await Promise.all(running.map((delivery) => world.settle(delivery)));
      expect(world.delivered()).toHaveLength(2);
      expect(await world.store.read.setUp("flows", "acc", "key:k")).toMatchObject({ running: 2, waiting: 2, dueAt: world.clock.now });
    });

    test("are gone when they are deleted, while callbacks go on", async () => {
      const world = await World.open(open);
      await world.account();
      const first = await world.sent({ queue: "q", callback: callbackTo("https://told.example/") });
      await world.settle(first);
      const [callback] = world.delivered();
      const deleting = { account: "acc", name: "q", slots: [first.message.id] };
      expect(await world.store.execute("deleteQueue", { ...deleting, slots: [] })).toEqual({ deleted: false });
      expect(await world.store.execute("deleteQueue", deleting)).toEqual({ deleted: true });
      expect(await world.store.read.setUp("flows", "acc", "queue:q")).toBeNull();
      if (callback) await world.settle(callback);
      expect(world.faults).toEqual([]);
      expect(await world.store.read.setUp("flows", "acc", "queue:q")).toBeNull();
    });
  });

  test("deliveries under way are counted for an account, as long as their leases last", async () => {
    const world = await World.open(open);
    await world.account();
    await world.account("other");
    const under = (account = "acc") => world.store.read.underWay(account, world.clock.now);
    expect(await under()).toBe(0);
    const sent = await world.sent();
    await world.sent({ url: "https://two.example/" });
    await world.sent({}, "other");
    await world.send({ delay: 10_000 });
    expect([await under(), await under("other"), await under("none")]).toEqual([2, 1, 0]);
    await world.settle(sent);
    expect(await under()).toBe(1);
    world.clock.now += 30_000;
    expect(await under()).toBe(0);
  });
}
