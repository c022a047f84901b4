import { describe, expect, test } from "vitest";
import { World } from "./world.ts";
import type { OpenStore } from "./world.ts";

/** What is kept of accounts. */
export function describeAccounts(open: OpenStore): void {
  describe("accounts", () => {
    test("have limits of their own that are changed, and taken back, one by one", async () => {
      const world = await World.open(open);
      await world.account();
      const change = (limits: object) => world.store.execute("changeAccount", { account: "acc", change: { limits } });
      await change({ retries: 5, delay: 1_000 });
      await Promise.all([change({ retries: 7 }), change({ queues: 3, delay: null }), change({ groups: 2, tokens: null }), change({})]);
      expect((await world.store.read.account("acc"))?.limits).toEqual({ retries: 7, queues: 3, groups: 2 });
      await world.store.execute("changeAccount", { account: "acc", change: { plan: "paid" } });
      await Promise.all([change({ retries: null }), change({ queues: null }), change({ groups: null })]);
      expect(await world.store.read.account("acc")).toMatchObject({ plan: "paid", limits: {} });
    });
  });
}
