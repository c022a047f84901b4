import { describe, expect, test } from "vitest";
import { World, letterTo } from "../world.ts";
import type { OpenStore } from "../world.ts";

/** What an account may have under way, in all and to one endpoint, on every node together. */
export function describeAllowances(open: OpenStore): void {
  describeAllowance(open);
  describeEndpointAllowance(open);
}

const to = (host: string) => ({ url: `https://${host}.example/` });

function describeAllowance(open: OpenStore): void {
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
      expect(await world.store.read.setUp("flows", "acc", "account:")).toMatchObject({ running: 3, waiting: 7, parallelism: 3 });
      expect(await world.store.read.setUp("flows", "other", "account:")).toBeNull();
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
      expect(await world.store.read.setUp("flows", "acc", "account:")).toMatchObject({ running: 0, waiting: 0 });
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
      expect(standing).toMatchObject({ state: { line: "account:" }, allowance: { running: 1, parallelism: 1 }, before: 0 });
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
      expect(await world.store.read.setUp("flows", "acc", "account:")).toMatchObject({ running: 1, waiting: 1 });
    });
  });
}

function describeEndpointAllowance(open: OpenStore): void {
  describe("the deliveries of an account to one endpoint", () => {
    const opened = async (limits: { parallelism?: number; globalParallelism?: number }): Promise<World> => {
      const world = await World.open(open);
      await world.account();
      await world.account("other");
      await world.store.execute("changeAccount", { account: "acc", change: { limits } });
      return world;
    };
    const flow = (world: World, id: string, account = "acc") => world.store.read.setUp("flows", account, id);
    /** Those that there is a row of. */
    const endpoints = async (world: World): Promise<string[]> =>
      (await world.store.read.allSetUp("flows", { account: "acc", limit: 99 })).flatMap(({ id }) => /endpoint:.+/.exec(id) ?? []);

    test("are no more at once than it may have, whatever is published together; other endpoints and accounts have their own", async () => {
      const world = await opened({ parallelism: 2 });
      const letters = ["one", "one", "two", "one"].map((host) => letterTo(to(host)));
      await Promise.all([world.publish(letters), world.publish(letters), world.publish(letters, "other")]);
      const begun = world.delivered().map(({ message }) => `${message.account} ${message.url}`);
      const count = (account: string, host: string): number => begun.filter((one) => one === `${account} ${to(host).url}`).length;
      expect([count("acc", "one"), count("acc", "two"), count("other", "one"), count("other", "two")]).toEqual([2, 2, 3, 1]);
      expect(await flow(world, "endpoint:https://one.example/")).toMatchObject({ running: 2, waiting: 4, parallelism: 2 });
      expect(await flow(world, "endpoint:https://two.example/")).toMatchObject({ running: 2, waiting: 0 });
      expect([await flow(world, "account:"), await flow(world, "endpoint:https://one.example/", "other")]).toEqual([null, null]);
    });

    test("let the next ones go on when they have ended, until none is left, and leave nothing counted", async () => {
      const world = await opened({ parallelism: 2, globalParallelism: 3 });
      const limited = { flowControl: { key: "k", parallelism: 1, rate: null, period: null } };
      for (const one of [{}, limited, limited, { queue: "q" }, { queue: "q" }, to("two"), to("two"), to("three")]) await world.send(one);
      let ended = 0;
      for (let under = world.delivered(); under.length > 0; under = [...world.delivered(), ...(await world.claim())]) {
        expect(under.length).toBeLessThanOrEqual(3);
        for (const host of new Set(under.map(({ message }) => message.url)))
          expect(under.filter(({ message }) => message.url === host).length).toBeLessThanOrEqual(2);
        await Promise.all(under.map((delivery) => world.settle(delivery)));
        ended += under.length;
      }
      expect(ended).toBe(8);
      expect(world.faults).toEqual([]);
      for (const id of ["account:", "key:k"]) {
        const { running, waiting, onward = 0 } = (await flow(world, id)) ?? { running: -1, waiting: -1 };
        expect([id, running, waiting, onward]).toEqual([id, 0, 0, 0]);
      }
      expect(await endpoints(world)).toEqual([]);
    });

    test("are counted for each path, of any length, and not for each query; a row is there as long as it counts anything", async () => {
      const world = await opened({ parallelism: 1 });
      const long = `https://one.example/${"x".repeat(16_000)}`;
      const urls = ["https://one.example/a", "https://one.example/b?x", long, `${long}y`];
      await world.publish([...urls, ...urls.map((url) => `${url}?${url.length}`)].map((url) => letterTo({ url })));
      const first = world.delivered();
      expect(first.map(({ message }) => message.url)).toEqual(urls);
      expect(await endpoints(world)).toEqual([
        expect.stringMatching(/^endpoint:https:\/\/one\.example \w{1,11}$/),
        expect.stringMatching(/^endpoint:https:\/\/one\.example \w{1,11}$/),
        "endpoint:https://one.example/a",
        "endpoint:https://one.example/b",
      ]);
      await Promise.all(first.map((delivery) => world.settle(delivery)));
      const second = [...world.delivered(), ...(await world.claim())];
      expect(new Set(second.map(({ message }) => message.url.split("?")[0]))).toEqual(new Set(urls.map((url) => url.split("?")[0])));
      expect(await endpoints(world)).toHaveLength(4);
      await Promise.all(second.map((delivery) => world.settle(delivery)));
      expect([await endpoints(world), world.faults]).toEqual([[], []]);
    });

    test("are told of by whoever waits for them", async () => {
      const world = await opened({ parallelism: 1 });
      await world.send(to("one"));
      await world.send(to("one"));
      const waiting = await world.send(to("one"));
      const standing = await world.store.read.standing("acc", waiting);
      expect(standing).toMatchObject({
        state: { line: "endpoint:https://one.example/" },
        allowance: { running: 1, parallelism: 1 },
        before: 1,
      });
    });

    test("keep their places when their node is gone, until their leases are over", async () => {
      const world = await opened({ parallelism: 1 });
      await world.sent();
      await world.send();
      world.clock.now += 29_000;
      expect(await world.claim()).toEqual([]);
      world.clock.now += 2_000;
      const begun = [...(await world.claim()), ...(await world.claim())];
      expect(begun).toHaveLength(1);
      expect(await flow(world, `endpoint:${letterTo().url}`)).toMatchObject({ running: 1, waiting: 1 });
    });
  });
}
