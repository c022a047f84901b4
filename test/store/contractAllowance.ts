import { describe, expect, test } from "vitest";
import { World, letterTo } from "./world.ts";
import type { OpenStore } from "./world.ts";

const to = (host: string) => ({ url: `https://${host}.example/` });

/** What an account may have under way, on every node together. */
export function describeAllowance(open: OpenStore): void {
  describe("the deliveries of an account", () => {
    const allow = (world: World, globalParallelism: number, account = "acc"): Promise<unknown> =>
      world.store.execute("changeAccount", { account, change: { limits: { globalParallelism } } });

    test("are no more at once than it may have, whatever is published together; another account has its own", async () => {
      const world = await World.open(open);
      await world.account();
      await world.account("other");
      await allow(world, 3);
      const letters = ["one", "two", "three", "four", "five"].map((host) => letterTo(to(host)));
      await Promise.all([world.publish(letters), world.publish(letters), world.publish(letters, "other")]);
      const begun = world.delivered().map(({ message }) => message.account);
      expect(begun.filter((account) => account === "acc")).toHaveLength(3);
      expect(begun.filter((account) => account === "other")).toHaveLength(5);
      expect(await world.store.read.setUp("flows", "acc", "under-way:")).toMatchObject({ running: 3, waiting: 7, parallelism: 3 });
      expect(await world.store.read.setUp("flows", "other", "under-way:")).toBeNull();
    });

    test("let the next ones go on when they have ended, until none is left, and leave nothing counted", async () => {
      const world = await World.open(open);
      await world.account();
      await allow(world, 2);
      const limited = { flowControl: { key: "k", parallelism: 1, rate: null, period: null } };
      for (const one of [{}, limited, limited, { queue: "q" }, { queue: "q" }]) await world.send(one);
      let ended = 0;
      for (let under = world.delivered(); under.length > 0; under = [...world.delivered(), ...(await world.claim())]) {
        expect(under.length).toBeLessThanOrEqual(2);
        await Promise.all(under.map((delivery) => world.settle(delivery)));
        ended += under.length;
      }
      expect(ended).toBe(5);
      expect(world.faults).toEqual([]);
      expect(await world.store.read.setUp("flows", "acc", "under-way:")).toMatchObject({ running: 0, waiting: 0 });
      const key = await world.store.read.setUp("flows", "acc", "key:k");
      expect([key?.running, key?.waiting, key?.onward ?? 0]).toEqual([0, 0, 0]);
    });

    test("are told of by whoever waits for them", async () => {
      const world = await World.open(open);
      await world.account();
      await allow(world, 1);
      await world.sent();
      const waiting = await world.send();
      const standing = await world.store.read.standing("acc", waiting);
      expect(standing).toMatchObject({ state: { line: "under-way:" }, allowance: { running: 1, parallelism: 1 }, before: 0 });
    });

    test("keep their places when their node is gone, until their leases are over", async () => {
      const world = await World.open(open);
      await world.account();
      await allow(world, 1);
      await world.sent();
      await world.send();
      world.clock.now += 29_000;
      expect(await world.claim()).toEqual([]);
      world.clock.now += 2_000;
      const begun = [...(await world.claim()), ...(await world.claim())];
      expect(begun).toHaveLength(1);
      expect(await world.store.read.setUp("flows", "acc", "under-way:")).toMatchObject({ running: 1, waiting: 1 });
    });
  });
}
