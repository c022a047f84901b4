import { describe, expect, test } from "vitest";
import type { OutboxSetting } from "../../../src/operations/outbox/outbox.ts";
import type { OpenStore } from "../../engine/store/storeFixture.ts";
import { makeAccount, makeInput, StoreFixture } from "../../engine/store/storeFixture.ts";

const setting: OutboxSetting = {
  ...{ name: "shop", url: "postgres://user:secret@db.example/shop", schema: "waypost", isPooled: false },
  ...{ owner: "own_1", createdAt: 1, tokenId: null, tokenHash: makeAccount("acc").tokenHash },
};
const named = { account: "acc", name: "shop" };
const rows = [
  ["1", "key-1"],
  ["2", "key-2"],
] as const;
const inputs = [makeInput({ url: "https://one.example/" }), makeInput({ url: "https://two.example/" })];

async function openWithOutbox(open: OpenStore, more: Partial<OutboxSetting> = {}) {
  const fixture = await StoreFixture.open(open);
  await fixture.account();
  await fixture.store.execute("setOutbox", { account: "acc", ...setting, ...more });
  const { execute, read } = fixture.store;
  const take = () => execute("takeOutbox", { ...named, isAlone: true });
  return {
    fixture,
    take,
    publish: (number: number, done: readonly (readonly [string, string])[] = []) =>
      execute("publishRows", { ...named, number, inputs, rows, done }),
    state: async () => (await read.outboxes("acc"))[0],
  };
}

/** Outboxes. */
export function describeOutboxes(open: OpenStore): void {
  describe("outboxes", () => {
    test("publish each row once, until its mark is removed", async () => {
      const { fixture, take, publish, state } = await openWithOutbox(open);
      const taken = await take();
      const number = taken?.lease?.number ?? 0;
      expect(await publish(number)).toEqual(["taken", "taken"]);
      expect(await state()).toMatchObject({ marks: rows, taken: 2, takenAt: fixture.clock.now });
      expect(await publish(number)).toEqual(["taken", "taken"]);
      expect(await state()).toMatchObject({ marks: rows, taken: 2 });
      const done = [rows[0]];
      const empty = { ...named, number, inputs: [], rows: [], done };
      expect(await fixture.store.execute("publishRows", empty)).toEqual([]);
      expect(await state()).toMatchObject({ marks: [rows[1]] });
      expect(await publish(number)).toEqual(["taken", "taken"]);
      expect(await state()).toMatchObject({ marks: [rows[1], rows[0]], taken: 3 });
    });

    test("have one lease at a time, and refuse work under an earlier one", async () => {
      const { fixture, take, publish, state } = await openWithOutbox(open);
      const [first, second] = [await take(), await take()];
      expect([first?.lease?.number, second?.lease?.number]).toEqual([1, 2]);
      expect(await publish(1)).toBe(null);
      const note = (number: number, isEnd = false) =>
        fixture.store.execute("noteOutbox", { ...named, number, status: { error: `${number}` }, isEnd });
      expect(await note(1)).toEqual({ isKept: false });
      expect(await note(2)).toEqual({ isKept: true });
      expect(await state()).toMatchObject({ error: "2", lease: { number: 2 } });
      await note(2, true);
      expect((await take())?.lease?.number).toBe(3);
    });

    test("are encrypted with their account, listed for all accounts, and deleted", async () => {
      const { fixture, state, take } = await openWithOutbox(open);
      const { execute, read } = fixture.store;
      expect((await read.account("acc"))?.outboxes).toEqual([setting]);
      expect(await read.allOutboxes(2 ** 50, 10)).toMatchObject([{ account: "acc", id: "shop" }]);
      expect(await execute("deleteOutbox", named)).toEqual({ deleted: true });
      expect(await execute("deleteOutbox", named)).toEqual({ deleted: false });
      expect((await read.account("acc"))?.outboxes).toBe(undefined);
      expect(await state()).toBe(undefined);
      expect(await take()).toBe(null);
    });

    test("are limited in number", async () => {
      const { fixture } = await openWithOutbox(open);
      const add = (name: string) => fixture.store.execute("setOutbox", { account: "acc", ...setting, name });
      for (let number = 1; number < 10; number++) await add(`shop-${number}`);
      await expect(add("another")).rejects.toThrow("outboxes: there are 10, and the limit is 10");
      await add("shop");
    });

    test("obey the rights of their token for every row", async () => {
      const { fixture, take, publish } = await openWithOutbox(open);
      const { store } = fixture;
      const token = await store.execute("createToken", {
        ...{ account: "acc", hash: "hash-1", scope: null, name: "", expiresAt: fixture.clock.now + 1_000 },
        ...{ verbs: ["publish"], destinations: ["https://one.example/*"] },
      });
      await store.execute("setOutbox", {
        account: "acc",
        ...{ ...setting, tokenId: token.id, tokenHash: "hash-1" },
      });
      const number = (await take())?.lease?.number ?? 0;
      expect(await publish(number)).toEqual([
        "taken",
        { isPassing: false, reason: expect.stringContaining("token: not valid for https://two.example/") },
      ]);
      fixture.clock.now += 1_000;
      await expect(publish(number)).rejects.toThrow("token: revoked or expired");
      await store.execute("revokeToken", { account: "acc", id: token.id });
      await expect(publish(number)).rejects.toThrow("token: revoked or expired");
    });

    test("stop when the token of the account is replaced, and when it is disabled", async () => {
      const { fixture, take, publish } = await openWithOutbox(open, { tokenHash: "another" });
      const number = (await take())?.lease?.number ?? 0;
      await expect(publish(number)).rejects.toThrow("token: revoked or expired");
      await fixture.store.execute("setOutbox", { account: "acc", ...setting });
      await fixture.store.execute("changeAccount", { account: "acc", change: { state: "passive" } });
      await expect(publish(number)).rejects.toThrow("disabled");
    });
  });
}
