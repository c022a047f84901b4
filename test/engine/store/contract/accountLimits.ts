import { describe, expect, test } from "vitest";
import { StoreFixture, makeInput } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

/** The limits of an account's deliveries in flight, in total and per endpoint, on all nodes together. */
export function describeAccountLimits(open: OpenStore): void {
  describeTotalLimit(open);
  describeEndpointLimit(open);
}

const to = (host: string) => ({ url: `https://${host}.example/` });

function describeTotalLimit(open: OpenStore): void {
  describe("the deliveries of an account", () => {
    const allow = (fixture: StoreFixture, globalParallelism: number, account = "acc"): Promise<unknown> =>
      fixture.store.execute("changeAccount", { account, change: { limits: { globalParallelism } } });

    test("never exceed the limit when published together, and accounts have separate limits", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      await allow(fixture, 3);
      const inputs = ["one", "two", "three", "four", "five"].map((host) => makeInput(to(host)));
      await Promise.all([fixture.publish(inputs), fixture.publish(inputs), fixture.publish(inputs, "other")]);
      const started = fixture.delivered().map(({ message }) => message.account);
      expect(started.filter((account) => account === "acc")).toHaveLength(3);
      expect(started.filter((account) => account === "other")).toHaveLength(5);
      expect(await fixture.store.read.findResource("limiters", "acc", "account:")).toMatchObject({
        running: 3,
        waiting: 7,
        parallelism: 3,
      });
      expect(await fixture.store.read.findResource("limiters", "other", "account:")).toBeNull();
    });

    test("start the next ones when they end, until none is left, and leave no count", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await allow(fixture, 2);
      const limited = { flowControl: { key: "k", parallelism: 1, rate: null, period: null } };
      for (const one of [{}, limited, limited, { queue: "q" }, { queue: "q" }]) await fixture.send(one);
      let ended = 0;
      for (
        let under = fixture.delivered();
        under.length > 0;
        under = [...fixture.delivered(), ...(await fixture.claim())]
      ) {
        expect(under.length).toBeLessThanOrEqual(2);
        await Promise.all(under.map((delivery) => fixture.settle(delivery)));
        ended += under.length;
      }
      expect(ended).toBe(5);
      expect(fixture.faults).toEqual([]);
      expect(await fixture.store.read.findResource("limiters", "acc", "account:")).toMatchObject({
        running: 0,
        waiting: 0,
      });
      const key = await fixture.store.read.findResource("limiters", "acc", "key:k");
      expect([key?.running, key?.waiting, key?.waitingDownstream ?? 0]).toEqual([0, 0, 0]);
    });

    test("are shown in the wait state of a held message", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await allow(fixture, 1);
      await fixture.sent();
      const waiting = await fixture.send();
      const standing = await fixture.store.read.waitState("acc", waiting);
      expect(standing).toMatchObject({
        state: { waitlist: "account:" },
        accountLimiter: { running: 1, parallelism: 1 },
        waitingAhead: 0,
      });
    });

    test("count until their leases expire if their node is gone", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await allow(fixture, 1);
      await fixture.sent();
      await fixture.send();
      fixture.clock.now += 29_000;
      expect(await fixture.claim()).toEqual([]);
      fixture.clock.now += 2_000;
      const started = [...(await fixture.claim()), ...(await fixture.claim())];
      expect(started).toHaveLength(1);
      expect(await fixture.store.read.findResource("limiters", "acc", "account:")).toMatchObject({
        running: 1,
        waiting: 1,
      });
    });
  });
}

function describeEndpointLimit(open: OpenStore): void {
  describe("the deliveries of an account to one endpoint", () => {
    const opened = async (limits: {
      parallelism?: number;
      globalParallelism?: number;
    }): Promise<StoreFixture> => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      await fixture.store.execute("changeAccount", { account: "acc", change: { limits } });
      return fixture;
    };
    const limiter = (fixture: StoreFixture, id: string, account = "acc") =>
      fixture.store.read.findResource("limiters", account, id);
    /** Returns the endpoints that have a limiter row. */
    const endpoints = async (fixture: StoreFixture): Promise<string[]> =>
      (await fixture.store.read.listResources("limiters", { account: "acc", limit: 99 })).flatMap(
        ({ id }) => /endpoint:.+/.exec(id) ?? [],
      );

    test("never exceed the limit when published together, per endpoint and account", async () => {
      const fixture = await opened({ parallelism: 2 });
      const inputs = ["one", "one", "two", "one"].map((host) => makeInput(to(host)));
      await Promise.all([fixture.publish(inputs), fixture.publish(inputs), fixture.publish(inputs, "other")]);
      const started = fixture.delivered().map(({ message }) => `${message.account} ${message.url}`);
      const count = (account: string, host: string): number =>
        started.filter((one) => one === `${account} ${to(host).url}`).length;
      expect([
        count("acc", "one"),
        count("acc", "two"),
        count("other", "one"),
        count("other", "two"),
      ]).toEqual([2, 2, 3, 1]);
      expect(await limiter(fixture, "endpoint:https://one.example/")).toMatchObject({
        running: 2,
        waiting: 4,
        parallelism: 2,
      });
      expect(await limiter(fixture, "endpoint:https://two.example/")).toMatchObject({
        running: 2,
        waiting: 0,
      });
      expect([
        await limiter(fixture, "account:"),
        await limiter(fixture, "endpoint:https://one.example/", "other"),
      ]).toEqual([null, null]);
    });

    test("start the next ones when they end, until none is left, and leave no count", async () => {
      const fixture = await opened({ parallelism: 2, globalParallelism: 3 });
      const limited = { flowControl: { key: "k", parallelism: 1, rate: null, period: null } };
      for (const one of [
        {},
        limited,
        limited,
        { queue: "q" },
        { queue: "q" },
        to("two"),
        to("two"),
        to("three"),
      ])
        await fixture.send(one);
      let ended = 0;
      for (
        let under = fixture.delivered();
        under.length > 0;
        under = [...fixture.delivered(), ...(await fixture.claim())]
      ) {
        expect(under.length).toBeLessThanOrEqual(3);
        for (const host of new Set(under.map(({ message }) => message.url)))
          expect(under.filter(({ message }) => message.url === host).length).toBeLessThanOrEqual(2);
        await Promise.all(under.map((delivery) => fixture.settle(delivery)));
        ended += under.length;
      }
      expect(ended).toBe(8);
      expect(fixture.faults).toEqual([]);
      for (const id of ["account:", "key:k"]) {
        const {
          running,
          waiting,
          waitingDownstream = 0,
        } = (await limiter(fixture, id)) ?? { running: -1, waiting: -1 };
        expect([id, running, waiting, waitingDownstream]).toEqual([id, 0, 0, 0]);
      }
      expect(await endpoints(fixture)).toEqual([]);
    });

    test("are counted per path of any length, without the query, and leave no row at zero", async () => {
      const fixture = await opened({ parallelism: 1 });
      const long = `https://one.example/${"x".repeat(16_000)}`;
      const urls = ["https://one.example/a", "https://one.example/b?x", long, `${long}y`];
      await fixture.publish(
        [...urls, ...urls.map((url) => `${url}?${url.length}`)].map((url) => makeInput({ url })),
      );
      const first = fixture.delivered();
      expect(first.map(({ message }) => message.url)).toEqual(urls);
      expect(await endpoints(fixture)).toEqual([
        expect.stringMatching(/^endpoint:https:\/\/one\.example \w{1,11}$/),
        expect.stringMatching(/^endpoint:https:\/\/one\.example \w{1,11}$/),
        "endpoint:https://one.example/a",
        "endpoint:https://one.example/b",
      ]);
      await Promise.all(first.map((delivery) => fixture.settle(delivery)));
      const second = [...fixture.delivered(), ...(await fixture.claim())];
      expect(new Set(second.map(({ message }) => message.url.split("?")[0]))).toEqual(
        new Set(urls.map((url) => url.split("?")[0])),
      );
      expect(await endpoints(fixture)).toHaveLength(4);
      await Promise.all(second.map((delivery) => fixture.settle(delivery)));
      expect([await endpoints(fixture), fixture.faults]).toEqual([[], []]);
    });

    test("are shown in the wait state of a held message", async () => {
      const fixture = await opened({ parallelism: 1 });
      await fixture.send(to("one"));
      await fixture.send(to("one"));
      const waiting = await fixture.send(to("one"));
      const standing = await fixture.store.read.waitState("acc", waiting);
      expect(standing).toMatchObject({
        state: { waitlist: "endpoint:https://one.example/" },
        accountLimiter: { running: 1, parallelism: 1 },
        waitingAhead: 1,
      });
    });

    test("count until their leases expire if their node is gone", async () => {
      const fixture = await opened({ parallelism: 1 });
      await fixture.sent();
      await fixture.send();
      fixture.clock.now += 29_000;
      expect(await fixture.claim()).toEqual([]);
      fixture.clock.now += 2_000;
      const started = [...(await fixture.claim()), ...(await fixture.claim())];
      expect(started).toHaveLength(1);
      expect(await limiter(fixture, `endpoint:${makeInput().url}`)).toMatchObject({ running: 1, waiting: 1 });
    });
  });
}
