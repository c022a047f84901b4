import { describe, expect, test } from "vitest";
import { makeAccount, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

/** The lifetime and the limits of accounts. */
export function describeAccounts(open: OpenStore): void {
  describe("accounts", () => {
    test("have individual limits that are set and reset one by one", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const change = (limits: object) =>
        fixture.store.execute("changeAccount", { account: "acc", change: { limits } });
      await change({ retries: 5, delay: 1_000 });
      await Promise.all([
        change({ retries: 7 }),
        change({ queues: 3, delay: null }),
        change({ groups: 2, tokens: null }),
        change({}),
      ]);
      expect((await fixture.store.read.account("acc"))?.limits).toEqual({ retries: 7, queues: 3, groups: 2 });
      await fixture.store.execute("changeAccount", { account: "acc", change: { plan: "paid" } });
      await Promise.all([change({ retries: null }), change({ queues: null }), change({ groups: null })]);
      expect(await fixture.store.read.account("acc")).toMatchObject({ plan: "paid", limits: {} });
    });

    test("are removed after their deletion when they have no other rows", async () => {
      const fixture = await StoreFixture.open(open);
      const { store, clock } = fixture;
      for (const id of ["acc", "other"]) await fixture.account(id);
      const isLeft = () => store.read.hasData("acc");
      const remove = () => store.execute("removeAccount", { account: "acc", remaining: "other" });
      expect(await isLeft()).toBe(false);
      await store.execute("upsertQueue", { account: "acc", name: "q", parallelism: 1 });
      expect(await isLeft(), "a queue").toBe(true);
      await store.execute("deleteQueue", { account: "acc", name: "q", slots: [] });
      expect(await isLeft()).toBe(false);
      await fixture.settle(await fixture.sent({}, "other"));
      expect(await isLeft(), "rows of another account").toBe(false);
      const delivery = await fixture.sent();
      expect(await isLeft(), "a message").toBe(true);
      await fixture.settle(delivery);
      await store.execute("changeAccount", { account: "acc", change: { state: "passive" } });
      await store.execute("deleteAccount", { account: "acc", by: { kind: "commandLine", address: null } });
      expect(await remove()).toEqual({ removed: false });
      clock.now += 40 * 86_400_000;
      const expire = async (audit: number) =>
        void (await store.execute("expire", {
          account: "acc",
          retention: { log: 1, deadLetters: 1, audit },
          now: clock.now,
          limit: 100,
        }));
      await expire(1e12);
      expect(await isLeft(), "its audit log").toBe(true);
      await expire(1);
      expect(await isLeft()).toBe(false);
      expect(await remove()).toEqual({ removed: true });
      expect((await store.read.accounts()).map(({ id }) => id)).toEqual(["other"]);
      expect(await store.read.account("acc")).toBeNull();
      expect(await remove()).toEqual({ removed: false });
      // A late outcome leaves no row behind.
      await fixture.settle(delivery);
      expect(await isLeft()).toBe(false);
      expect(await fixture.account("acc")).toMatchObject({ id: "acc", createdAt: clock.now });
    });

    test("stay while all accounts are deleted, even if several commands remove them at once", async () => {
      const { store, clock } = await StoreFixture.open(open);
      const accounts = ["acc", "other"];
      for (const id of accounts) {
        await store.execute("createAccount", makeAccount(id));
        await store.execute("changeAccount", { account: id, change: { state: "passive" } });
        await store.execute("deleteAccount", { account: id });
      }
      clock.now += 40 * 86_400_000;
      const removeAll = (beside: (account: string) => string) =>
        Promise.all(
          accounts.map((account) => store.execute("removeAccount", { account, remaining: beside(account) })),
        );
      const kept = [{ removed: false }, { removed: false }];
      expect(await removeAll((account) => (account === "acc" ? "other" : "acc"))).toEqual(kept);
      expect(await removeAll(() => "new")).toEqual(kept);
      expect((await store.read.accounts()).map(({ id }) => id)).toEqual(accounts);
      await store.execute("createAccount", makeAccount("new"));
      expect(await removeAll(() => "new")).toEqual([{ removed: true }, { removed: true }]);
    });
  });
}
