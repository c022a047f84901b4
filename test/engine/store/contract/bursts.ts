import { describe, expect, test } from "vitest";
import type { OpenStore } from "../storeFixture.ts";
import { makeInput, StoreFixture } from "../storeFixture.ts";

/** The requests per second, which nodes take from a shared row. */
export function describeBursts(open: OpenStore): void {
  describe("the requests of a second", () => {
    const take = (fixture: StoreFixture, { account = "acc", needed = 1, wanted = 0 } = {}) =>
      fixture.store.execute("takeBurst", { account, needed, recent: wanted });
    const atBeginning = async (limit: number | null): Promise<StoreFixture> => {
      const fixture = await StoreFixture.open(open);
      fixture.clock.now = Math.ceil(fixture.clock.now / 1000) * 1000;
      await fixture.account();
      await fixture.store.execute("changeAccount", {
        account: "acc",
        change: { limits: { requestsPerSecond: limit } },
      });
      return fixture;
    };

    test("are granted up to the limit, and again from zero in the next second", async () => {
      const fixture = await atBeginning(10);
      const second = fixture.clock.now / 1000;
      expect(await take(fixture, { needed: 7 })).toEqual({
        granted: 7,
        left: 3,
        limit: 10,
        second,
        endsIn: 1000,
      });
      fixture.clock.now += 400;
      expect(await take(fixture, { needed: 7 })).toEqual({
        granted: 3,
        left: 0,
        limit: 10,
        second,
        endsIn: 600,
      });
      expect(await take(fixture)).toEqual({ granted: 0, left: 0, limit: 10, second, endsIn: 600 });
      fixture.clock.now += 600;
      expect(await take(fixture, { needed: 4 })).toEqual({
        granted: 4,
        left: 6,
        limit: 10,
        second: second + 1,
        endsIn: 1000,
      });
    });

    test("are not granted twice to calls of one transaction", async () => {
      const fixture = await atBeginning(10);
      const all = await Promise.all([
        take(fixture, { needed: 6 }),
        fixture.send({ delay: 1_000 }),
        take(fixture, { needed: 6 }),
        take(fixture),
      ]);
      expect(all).toMatchObject([
        { granted: 6, left: 4 },
        expect.any(String),
        { granted: 4, left: 0 },
        { granted: 0 },
      ]);
    });

    test("are counted per account and removed with it", async () => {
      const fixture = await atBeginning(10);
      await fixture.account("ac");
      expect(await take(fixture, { account: "ac" })).toBeNull();
      await fixture.store.execute("changeAccount", {
        account: "ac",
        change: { limits: { requestsPerSecond: 5 }, state: "passive" },
      });
      await take(fixture, { needed: 9 });
      expect(await take(fixture, { account: "ac", needed: 3 })).toMatchObject({ granted: 3, left: 2 });
      await fixture.store.execute("deleteAccount", { account: "ac" });
      expect(await take(fixture, { account: "ac" })).toBeNull();
      expect(await fixture.store.read.hasData("ac")).toBe(false);
      expect(await take(fixture)).toMatchObject({ granted: 1, left: 0 });
    });

    test("are not counted for publishing", async () => {
      const fixture = await atBeginning(1);
      await fixture.publish([makeInput({ delay: 1_000 }), makeInput({ delay: 1_000 })]);
      expect(await take(fixture)).toMatchObject({ granted: 1, left: 0 });
    });
  });
}
