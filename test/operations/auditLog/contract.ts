import { describe, expect, test } from "vitest";
import type { Actor, AuditFilter } from "../../../src/engine/core/model/auditEntry.ts";
import { withAuditActor } from "../../../src/engine/store/auditActor.ts";
import type { OpenStore } from "../../engine/store/storeFixture.ts";
import { StoreFixture } from "../../engine/store/storeFixture.ts";
import { makeDeletion } from "../../makeDeletion.ts";

const by: Actor = { kind: "token", token: "main", name: "n", address: "192.0.2.1" };
const source = {
  name: "s",
  secretHash: "h",
  destination: "https://one.example/",
  headers: [],
  deduplicate: false,
  paused: false,
};

/** An audit entry is stored in the same transaction as the change that it records. */
export function describeAudit(open: OpenStore): void {
  describe("the audit log", () => {
    const page = (
      fixture: StoreFixture,
      { account = "acc", filter = {}, cursor = null, count = 100 }: Partial<Query> = {},
    ) => fixture.store.read.audit({ account, filter, cursor, count });

    test("loses its oldest entries beyond the account's limit, which do not count as dropped", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      const named = withAuditActor(fixture.store, by);
      for (const name of ["a", "b", "c", "d"]) await named.execute("upsertQueue", { account: "acc", name });
      await named.execute("upsertQueue", { account: "other", name: "a" });
      const { id } = await fixture.store.read.findOverLimit("audit", "acc", 2);
      const tooMany = { log: null, keptLog: null, deadLetters: null, audit: { id: id ?? "", limit: 2 } };
      expect(await fixture.store.execute("trim", { account: "acc", tooMany, limit: 9 })).toEqual({
        removed: 0,
        more: false,
      });
      await fixture.store.execute("changeAccount", {
        account: "acc",
        change: { limits: { auditEntries: 2 } },
      });
      expect(await fixture.store.execute("trim", { account: "acc", tooMany, limit: 9 })).toEqual({
        removed: 2,
        more: false,
      });
      expect((await page(fixture)).entries.map(({ object }) => object)).toEqual(["d", "c"]);
      expect((await page(fixture, { account: "other" })).entries).toHaveLength(1);
      expect(await fixture.store.read.account("acc")).not.toHaveProperty("dropped");
    });

    test("records changes in order with their actor, and nothing of callers without one", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      const named = withAuditActor(fixture.store, by);
      await fixture.store.execute("upsertQueue", { account: "acc", name: "silent" });
      const { createdAt } = await named.execute("upsertQueue", { account: "acc", name: "q" });
      fixture.clock.now += 1;
      await named.execute("createSource", { account: "acc", verification: null, ...source });
      await named.execute("pauseLimiter", { account: "other", id: "key:k" });
      await named.execute("changeAccount", { account: "acc", change: { budget: 20, plan: "paid" } });
      const { entries, cursor } = await page(fixture);
      const [first] = entries.toReversed();
      expect(first).toEqual({
        account: "acc",
        id: expect.stringMatching(/^aud_/),
        time: createdAt,
        what: "queue.set",
        object: "q",
        by,
      });
      expect(entries.map(({ what, fields }) => [what, fields])).toEqual([
        ["account.change", ["budget", "plan"]],
        ["source.create", undefined],
        ["queue.set", undefined],
      ]);
      expect(cursor).toBeNull();
      expect((await page(fixture, { account: "other" })).entries).toMatchObject([
        { what: "flowControl.pause", object: "k", account: "other" },
      ]);
      // The changed rows do not contain the actor.
      expect(
        JSON.stringify([
          await fixture.store.read.account("acc"),
          await fixture.store.read.findResource("limiters", "acc", "queue:q"),
        ]),
      ).not.toContain("192.0.2.1");
    });

    test("has no entry of a refused command, even in a transaction with a successful command", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const named = withAuditActor(fixture.store, by);
      const answers = await Promise.allSettled([
        named.execute("pauseSchedule", { account: "acc", id: "none" }),
        named.execute("pauseLimiter", { account: "acc", id: "queue:q" }),
        named.execute("setGroupHeaders", { account: "acc", name: "none", headers: [] }),
        named.execute("rotateKeys", { account: "nobody" }),
      ]);
      expect(answers.map(({ status }) => status)).toEqual(["rejected", "fulfilled", "rejected", "rejected"]);
      expect((await page(fixture)).entries).toMatchObject([{ what: "queue.pause", object: "q" }]);
      expect((await page(fixture, { account: "nobody" })).entries).toEqual([]);
    });

    test("has one entry with a count for many objects, and none if nothing changed", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const named = withAuditActor(fixture.store, by);
      const messageIds = [await fixture.send({ delay: 1_000 }), await fixture.send({ delay: 1_000 })];
      await named.execute("cancel", { account: "acc", messageIds });
      await named.execute("cancel", { account: "acc", messageIds });
      await named.execute("deleteGroup", { account: "acc", name: "none" });
      await named.execute("deleteQueue", { account: "acc", name: "none", slots: [] });
      await named.execute("bulk", makeDeletion({ account: "acc", dlqIds: ["none"], logRetention: 1 }));
      expect((await page(fixture)).entries).toMatchObject([
        { what: "message.cancel", object: messageIds[0], count: 2 },
      ]);
    });

    test("is read page by page, by action, actor and time", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const start = fixture.clock.now;
      const operator = withAuditActor(fixture.store, { kind: "operator", address: null });
      for (let n = 0; n < 12; n++) {
        const store = n % 4 === 0 ? operator : withAuditActor(fixture.store, by);
        const key = String(n - (n % 3));
        if (n % 3 === 2) await store.execute("pinFlowControl", { account: "acc", key, parallelism: 2 });
        else
          await store.execute(n % 3 === 0 ? "pauseLimiter" : "resumeLimiter", {
            account: "acc",
            id: `key:${key}`,
          });
        fixture.clock.now += 1_000;
      }
      const objects = async (filter: AuditFilter, count: number): Promise<string[]> => {
        const found: string[] = [];
        let cursor: string | null = null;
        do {
          const { entries, cursor: next }: Awaited<ReturnType<typeof page>> = await page(fixture, {
            filter,
            cursor,
            count,
          });
          found.push(...entries.map(({ object }) => object ?? ""));
          cursor = next;
        } while (cursor !== null);
        return found;
      };
      for (const count of [1, 2, 5, 12, 13]) {
        expect(await objects({}, count)).toEqual([
          "9",
          "9",
          "9",
          "6",
          "6",
          "6",
          "3",
          "3",
          "3",
          "0",
          "0",
          "0",
        ]);
        expect(await objects({ what: ["flowControl.pause"] }, count)).toEqual(["9", "6", "3", "0"]);
        expect(await objects({ by: ["operator"] }, count)).toEqual(["6", "3", "0"]);
        expect(await objects({ object: "3" }, count)).toEqual(["3", "3", "3"]);
        expect(await objects({ from: start + 2_000, to: start + 4_000 }, count)).toEqual(["3", "3", "0"]);
      }
    });

    test("is removed after its retention and not before", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const retention = { log: 1e9, deadLetters: 1e9, audit: 1_000 };
      const expire = (limit = 100) =>
        fixture.store.execute("expire", { account: "acc", retention, now: fixture.clock.now, limit });
      expect(await fixture.store.read.nextExpiryAt("acc", retention)).toBeNull();
      const named = withAuditActor(fixture.store, by);
      for (const name of ["a", "b", "c"]) await named.execute("upsertQueue", { account: "acc", name });
      const made = fixture.clock.now;
      fixture.clock.now += 1_000;
      await named.execute("upsertQueue", { account: "acc", name: "d" });
      expect(await fixture.store.read.nextExpiryAt("acc", retention)).toBe(made + 1_001);
      expect(await expire()).toEqual({ removed: 0, more: false });
      fixture.clock.now += 1;
      expect(await expire(2)).toEqual({ removed: 2, more: true });
      expect(await expire(2)).toEqual({ removed: 1, more: false });
      expect((await page(fixture)).entries.map(({ object }) => object)).toEqual(["d"]);
    });
  });
}

type Query = Parameters<StoreFixture["store"]["read"]["audit"]>[0];
