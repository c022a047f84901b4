import { describe, expect, test } from "vitest";
import type { OpenStore } from "../world.ts";
import { letterTo, World } from "../world.ts";

/** The requests of a second, as nodes take them from the row that they share. */
export function describeBursts(open: OpenStore): void {
  describe("the requests of a second", () => {
    const take = (world: World, { account = "acc", needed = 1, wanted = 0 } = {}) =>
      world.store.execute("takeBurst", { account, needed, wanted });
    const atBeginning = async (limit: number | null): Promise<World> => {
      const world = await World.open(open);
      world.clock.now = Math.ceil(world.clock.now / 1000) * 1000;
      await world.account();
      await world.store.execute("changeAccount", { account: "acc", change: { limits: { requestsPerSecond: limit } } });
      return world;
    };

    test("are taken up to the limit, and begin anew with the next second", async () => {
      const world = await atBeginning(10);
      const second = world.clock.now / 1000;
      expect(await take(world, { needed: 7 })).toEqual({ granted: 7, left: 3, limit: 10, second, endsIn: 1000 });
      world.clock.now += 400;
      expect(await take(world, { needed: 7 })).toEqual({ granted: 3, left: 0, limit: 10, second, endsIn: 600 });
      expect(await take(world)).toEqual({ granted: 0, left: 0, limit: 10, second, endsIn: 600 });
      world.clock.now += 600;
      expect(await take(world, { needed: 4 })).toEqual({ granted: 4, left: 6, limit: 10, second: second + 1, endsIn: 1000 });
    });

    test("are not given twice to those who ask in one transaction", async () => {
      const world = await atBeginning(10);
      const all = await Promise.all([take(world, { needed: 6 }), world.send({ delay: 1_000 }), take(world, { needed: 6 }), take(world)]);
      expect(all).toMatchObject([{ granted: 6, left: 4 }, expect.any(String), { granted: 4, left: 0 }, { granted: 0 }]);
    });

    test("are those of one account, and go with it", async () => {
      const world = await atBeginning(10);
      await world.account("ac");
      expect(await take(world, { account: "ac" })).toBeNull();
      await world.store.execute("changeAccount", { account: "ac", change: { limits: { requestsPerSecond: 5 }, state: "passive" } });
      await take(world, { needed: 9 });
      expect(await take(world, { account: "ac", needed: 3 })).toMatchObject({ granted: 3, left: 2 });
      await world.store.execute("deleteAccount", { account: "ac" });
      expect(await take(world, { account: "ac" })).toBeNull();
      expect(await world.store.read.isAnythingLeft("ac")).toBe(false);
      expect(await take(world)).toMatchObject({ granted: 1, left: 0 });
    });

    test("are not counted by what publishes", async () => {
      const world = await atBeginning(1);
      await world.publish([letterTo({ delay: 1_000 }), letterTo({ delay: 1_000 })]);
      expect(await take(world)).toMatchObject({ granted: 1, left: 0 });
    });
  });
}
