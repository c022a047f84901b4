import { describe, expect, test } from "vitest";
import type { Actor, AuditFilter } from "../../../src/core/model/auditEntry.ts";
import { storeFor } from "../../../src/store/audited.ts";
import type { OpenStore } from "../world.ts";
import { World } from "../world.ts";

const by: Actor = { kind: "token", token: "main", name: "n", address: "192.0.2.1" };
const source = { name: "s", secretHash: "h", destination: "https://one.example/", headers: [], deduplicate: false, paused: false };

/** What is done in somebody's name is kept together with what was done. */
export function describeAudit(open: OpenStore): void {
  describe("the audit log", () => {
    const page = (world: World, { account = "acc", filter = {}, cursor = null, count = 100 }: Partial<Query> = {}) =>
      world.store.read.audit({ account, filter, cursor, count });

    test("loses its oldest entries if the account has more than it may, and is not counted as dropped", async () => {
      const world = await World.open(open);
      await world.account();
      await world.account("other");
      const named = storeFor(world.store, by);
      for (const name of ["a", "b", "c", "d"]) await named.execute("upsertQueue", { account: "acc", name });
      await named.execute("upsertQueue", { account: "other", name: "a" });
      const { id } = await world.store.read.tooMany("audit", "acc", 2);
      const tooMany = { log: null, keptLog: null, deadLetters: null, audit: { id: id ?? "", most: 2 } };
      expect(await world.store.execute("trim", { account: "acc", tooMany, limit: 9 })).toEqual({ removed: 0, more: false });
      await world.store.execute("changeAccount", { account: "acc", change: { limits: { auditEntries: 2 } } });
      expect(await world.store.execute("trim", { account: "acc", tooMany, limit: 9 })).toEqual({ removed: 2, more: false });
      expect((await page(world)).entries.map(({ object }) => object)).toEqual(["d", "c"]);
      expect((await page(world, { account: "other" })).entries).toHaveLength(1);
      expect(await world.store.read.account("acc")).not.toHaveProperty("dropped");
    });

    test("keeps who did what, in the order in which it was done, and only of those who say who they are", async () => {
      const world = await World.open(open);
      await world.account();
      await world.account("other");
      const named = storeFor(world.store, by);
      await world.store.execute("upsertQueue", { account: "acc", name: "silent" });
      const { createdAt } = await named.execute("upsertQueue", { account: "acc", name: "q" });
      world.clock.now += 1;
      await named.execute("createSource", { account: "acc", verification: null, ...source });
      await named.execute("pauseFlow", { account: "other", id: "key:k" });
      await named.execute("changeAccount", { account: "acc", change: { budget: 20, plan: "paid" } });
      const { entries, cursor } = await page(world);
      const [first] = entries.toReversed();
      expect(first).toEqual({ account: "acc", id: expect.stringMatching(/^aud_/), time: createdAt, what: "queue.set", object: "q", by });
      expect(entries.map(({ what, fields }) => [what, fields])).toEqual([
        ["account.change", ["budget", "plan"]],
        ["source.create", undefined],
        ["queue.set", undefined],
      ]);
      expect(cursor).toBeNull();
      expect((await page(world, { account: "other" })).entries).toMatchObject([
        { what: "flowControl.pause", object: "k", account: "other" },
      ]);
      // Nothing of who did it has got into what was done.
      expect(
        JSON.stringify([await world.store.read.account("acc"), await world.store.read.setUp("flows", "acc", "queue:q")]),
      ).not.toContain("192.0.2.1");
    });

    test("has nothing of what was refused, also where it shared a transaction with what was not", async () => {
      const world = await World.open(open);
      await world.account();
      const named = storeFor(world.store, by);
      const answers = await Promise.allSettled([
        named.execute("pauseSchedule", { account: "acc", id: "none" }),
        named.execute("pauseFlow", { account: "acc", id: "queue:q" }),
        named.execute("setGroupHeaders", { account: "acc", name: "none", headers: [] }),
        named.execute("rotateKeys", { account: "nobody" }),
      ]);
      expect(answers.map(({ status }) => status)).toEqual(["rejected", "fulfilled", "rejected", "rejected"]);
      expect((await page(world)).entries).toMatchObject([{ what: "queue.pause", object: "q" }]);
      expect((await page(world, { account: "nobody" })).entries).toEqual([]);
    });

    test("counts what was done to many, and says nothing where there was none", async () => {
      const world = await World.open(open);
      await world.account();
      const named = storeFor(world.store, by);
      const messageIds = [await world.send({ delay: 1_000 }), await world.send({ delay: 1_000 })];
      await named.execute("cancel", { account: "acc", messageIds });
      await named.execute("cancel", { account: "acc", messageIds });
      await named.execute("deleteGroup", { account: "acc", name: "none" });
      await named.execute("deleteQueue", { account: "acc", name: "none", slots: [] });
      await named.execute("deleteDeadLetters", { account: "acc", dlqIds: ["none"], logRetention: 1 });
      expect((await page(world)).entries).toMatchObject([{ what: "message.cancel", object: messageIds[0], count: 2 }]);
    });

    test("is read page by page, by what, by whom, and by time", async () => {
      const world = await World.open(open);
      await world.account();
      const start = world.clock.now;
      const operator = storeFor(world.store, { kind: "operator", address: null });
      for (let n = 0; n < 12; n++) {
        const store = n % 4 === 0 ? operator : storeFor(world.store, by);
        const key = String(n - (n % 3));
        if (n % 3 === 2) await store.execute("pinFlow", { account: "acc", key, parallelism: 2 });
        else await store.execute(n % 3 === 0 ? "pauseFlow" : "resumeFlow", { account: "acc", id: `key:${key}` });
        world.clock.now += 1_000;
      }
      const objects = async (filter: AuditFilter, count: number): Promise<string[]> => {
        const found: string[] = [];
        let cursor: string | null = null;
        do {
          const { entries, cursor: next }: Awaited<ReturnType<typeof page>> = await page(world, { filter, cursor, count });
          found.push(...entries.map(({ object }) => object ?? ""));
          cursor = next;
        } while (cursor !== null);
        return found;
      };
      for (const count of [1, 2, 5, 12, 13]) {
        expect(await objects({}, count)).toEqual(["9", "9", "9", "6", "6", "6", "3", "3", "3", "0", "0", "0"]);
        expect(await objects({ what: ["flowControl.pause"] }, count)).toEqual(["9", "6", "3", "0"]);
        expect(await objects({ by: ["operator"] }, count)).toEqual(["6", "3", "0"]);
        expect(await objects({ object: "3" }, count)).toEqual(["3", "3", "3"]);
        expect(await objects({ from: start + 2_000, to: start + 4_000 }, count)).toEqual(["3", "3", "0"]);
      }
    });

    test("goes when its time is over, and not before", async () => {
      const world = await World.open(open);
      await world.account();
      const retention = { log: 1e9, deadLetters: 1e9, audit: 1_000 };
      const expire = (limit = 100) => world.store.execute("expire", { account: "acc", retention, now: world.clock.now, limit });
      expect(await world.store.read.nextExpiryAt("acc", retention)).toBeNull();
      const named = storeFor(world.store, by);
      for (const name of ["a", "b", "c"]) await named.execute("upsertQueue", { account: "acc", name });
      const made = world.clock.now;
      world.clock.now += 1_000;
      await named.execute("upsertQueue", { account: "acc", name: "d" });
      expect(await world.store.read.nextExpiryAt("acc", retention)).toBe(made + 1_001);
      expect(await expire()).toEqual({ removed: 0, more: false });
      world.clock.now += 1;
      expect(await expire(2)).toEqual({ removed: 2, more: true });
      expect(await expire(2)).toEqual({ removed: 1, more: false });
      expect((await page(world)).entries.map(({ object }) => object)).toEqual(["d"]);
    });
  });
}

type Query = Parameters<World["store"]["read"]["audit"]>[0];
