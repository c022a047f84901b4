import { describe, expect, test } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import { bucketSizes } from "../../../../src/engine/core/accounts/usage.ts";
import type { Filter } from "../../../../src/engine/core/search/filter.ts";
import type { LogEntry, LogPage } from "../../../../src/engine/store/queries/logs.ts";
import { bytes, makeLogQuery, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

const day = 24 * 60 * 60 * 1_000;

const expire = (fixture: StoreFixture, { log = 1e9, deadLetters = 1e9, limit = 100 }) =>
  fixture.store.execute("expire", {
    account: "acc",
    retention: { log, deadLetters },
    now: fixture.clock.now,
    limit,
  });

const readMessageId = async (fixture: StoreFixture, id: string) =>
  (await fixture.store.read.message("acc", id))?.message.id ?? null;

/** Rows that are removed after their retention. */
export function describeRetention(open: OpenStore): void {
  describe("expire", () => {
    test("removes the log of a finished message, and the message with its last entry", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const done = await fixture.sent();
      fixture.clock.now += 10;
      await fixture.settle(done);
      fixture.clock.now += 1_000;
      expect(await expire(fixture, { log: 1_000 })).toEqual({ removed: 0, more: false });
      fixture.clock.now += 1;
      expect(await expire(fixture, { log: 1_000 })).toEqual({ removed: 1, more: false });
      expect(await readMessageId(fixture, done.message.id)).toBeNull();
      expect((await fixture.store.read.log(makeLogQuery())).events).toEqual([]);
    });

    test("keeps the whole log of an unfinished message regardless of its age", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const delivery = await fixture.sent();
      await fixture.settle(delivery, { status: 500 });
      fixture.clock.now += 10;
      expect(await expire(fixture, { log: 1 })).toEqual({ removed: 0, more: false });
      expect(await readMessageId(fixture, delivery.message.id)).toBe(delivery.message.id);
      expect(await fixture.states(delivery.message.id)).toEqual(["CREATED", "ACTIVE", "ERROR", "RETRY"]);
      expect(await expire(fixture, { log: 1 })).toEqual({ removed: 0, more: false });
    });

    test("removes a cancelled message with its log", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const id = await fixture.send({ delay: 1_000 });
      await fixture.store.execute("cancel", { account: "acc", messageIds: [id] });
      fixture.clock.now += 10;
      await expire(fixture, { log: 1 });
      expect(await readMessageId(fixture, id)).toBeNull();
    });

    test("removes a message that was cancelled in flight with the last entry of its log", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const delivery = await fixture.sent();
      const { id } = delivery.message;
      await fixture.store.execute("cancel", { account: "acc", messageIds: [id] });
      fixture.clock.now += 10;
      expect(await expire(fixture, { log: 1 })).toEqual({ removed: 0, more: false });
      expect(await readMessageId(fixture, id)).toBe(id);
      await fixture.settle(delivery);
      fixture.clock.now += 10;
      expect(await expire(fixture, { log: 1 })).toEqual({ removed: 2, more: false });
      expect(await readMessageId(fixture, id)).toBeNull();
    });

    test("finds kept entries in every list and by every filter, in order and with bodies", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const before = await fixture.sent({ labels: ["eu"] });
      await fixture.settle(before);
      const { messageId } = await fixture.publishFailing({
        labels: ["eu"],
        callerIp: "192.0.2.7",
        body: bytes("hello"),
      });
      const last = await fixture.sent({ labels: ["us"] });
      fixture.clock.now += 10;
      await fixture.settle(last);
      fixture.clock.now += 1;
      const filters: Filter[] = [
        {},
        { messageIds: [messageId] },
        { labels: ["eu"] },
        { callerIps: ["192.0.2.7"] },
        { states: ["FAILED"] },
      ];
      const seen = async (order: "earliestFirst" | "latestFirst", count: number) =>
        Promise.all(
          filters.map(async (filter) => {
            const events: LogEntry[] = [];
            for (let cursor: string | null = null; ;) {
              const page: LogPage = await fixture.store.read.log({
                account: "acc",
                filter,
                order,
                cursor,
                count,
              });
              events.push(...page.events);
              if (page.cursor === null) break;
              ({ cursor } = page);
            }
            return events.filter(({ message }) => message.id !== before.message.id);
          }),
        );
      const whole = [await seen("earliestFirst", 100), await seen("latestFirst", 2)];
      expect(whole[0]?.map((events) => events.length)).toEqual([7, 4, 4, 4, 1]);
      expect(await expire(fixture, { log: 10 })).toEqual({ removed: 1, more: false });
      expect([await seen("earliestFirst", 100), await seen("latestFirst", 2)]).toEqual(whole);
      expect((await fixture.store.read.message("acc", messageId))?.finishedAt).toBe(
        whole[0]?.[1]?.at(-1)?.time,
      );
    });

    test("keeps messages and whole logs of dead letters that are kept longer than the log", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { messageId, dlqId } = await fixture.publishFailing();
      fixture.clock.now += 10;
      expect(await expire(fixture, { log: 1, deadLetters: 100 })).toEqual({ removed: 0, more: false });
      expect((await fixture.store.read.deadLetter("acc", dlqId))?.message.id).toBe(messageId);
      expect(await fixture.states(messageId)).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
      fixture.clock.now += 100;
      expect(await expire(fixture, { log: 1, deadLetters: 100 })).toEqual({ removed: 1, more: false });
      expect(await readMessageId(fixture, messageId)).toBeNull();
      expect((await fixture.store.read.log(makeLogQuery())).events).toEqual([]);
      expect(await fixture.store.read.findOverLimit("log", "acc", 10)).toEqual({ id: null, count: 0 });
    });

    test("keeps messages whose log is kept longer than their dead letter", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { messageId, dlqId } = await fixture.publishFailing();
      fixture.clock.now += 10;
      expect(await expire(fixture, { log: 100, deadLetters: 1 })).toEqual({ removed: 1, more: false });
      expect(await fixture.store.read.deadLetter("acc", dlqId)).toBeNull();
      expect(await fixture.states(messageId)).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
      fixture.clock.now += 100;
      expect(await expire(fixture, { log: 100, deadLetters: 1 })).toEqual({ removed: 1, more: false });
      expect(await readMessageId(fixture, messageId)).toBeNull();
    });

    test("removes a dead letter and its log in one call", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { messageId } = await fixture.publishFailing();
      fixture.clock.now += 10;
      expect(await expire(fixture, { log: 1, deadLetters: 1 })).toEqual({ removed: 2, more: false });
      expect(await readMessageId(fixture, messageId)).toBeNull();
    });

    test("removes up to `limit` rows of each kind, oldest first, and reports if there are more", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const ids: string[] = [];
      for (let index = 0; index < 3; index++) {
        const delivery = await fixture.sent();
        await fixture.settle(delivery);
        ids.push(delivery.message.id);
      }
      fixture.clock.now += 10;
      expect(await expire(fixture, { log: 1, limit: 2 })).toEqual({ removed: 2, more: true });
      expect(await Promise.all(ids.map((id) => readMessageId(fixture, id)))).toEqual([null, null, ids[2]]);
      expect(await expire(fixture, { log: 1, limit: 2 })).toEqual({ removed: 1, more: false });
    });

    test("removes no more than requested, even twice or with a trim in one transaction", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      for (let count = 0; count < 9; count++) await fixture.settle(await fixture.sent());
      fixture.clock.now += 10;
      const few = await Promise.all([
        expire(fixture, { log: 1, limit: 2 }),
        expire(fixture, { log: 1, limit: 3 }),
      ]);
      expect(few).toEqual([
        { removed: 2, more: true },
        { removed: 3, more: true },
      ]);
      const { id } = await fixture.store.read.findOverLimit("log", "acc", 1);
      await fixture.store.execute("changeAccount", { account: "acc", change: { limits: { logEntries: 1 } } });
      const tooMany = { log: { id: id ?? "", limit: 1 }, keptLog: null, deadLetters: null, audit: null };
      const [kept, trimmed] = await Promise.all([
        expire(fixture, {}),
        fixture.store.execute("trim", { account: "acc", tooMany, limit: 100 }),
        expire(fixture, {}),
      ]);
      expect([kept, trimmed]).toEqual([
        { removed: 0, more: false },
        { removed: 3, more: false },
      ]);
    });

    test("removes rows at the time that is returned as the next expiry, and not earlier", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const retention = { log: 2_000_000, deadLetters: 3_000_000 };
      const nextAt = () => fixture.store.read.nextExpiryAt("acc", retention);
      expect(await nextAt()).toBeNull();
      const { span } = bucketSizes["3h"];
      // The test starts three hours before midnight, so that time index entries, which expire by day, expire
      // before the first bucket.
      const start = (fixture.clock.now = Math.ceil(fixture.clock.now / day) * day + day - span);
      await fixture.publishFailing({ deduplication: "opened again" });
      await fixture.settle(await fixture.sent({ deduplication: "kept" }));
      const removed: { at: number; removed: number }[] = [];
      for (let at = await nextAt(); at !== null; at = await nextAt()) {
        fixture.clock.now = at;
        const turn = await expire(fixture, retention);
        expect(turn.removed).toBeGreaterThan(0);
        removed.push({ at: at - start, removed: turn.removed });
      }
      expect(removed).toEqual([
        { at: spans.deduplication + 1, removed: 1 },
        // The log of the other message is kept with its dead letter.
        { at: retention.log + 1, removed: 1 },
        { at: retention.deadLetters + 1, removed: 1 },
        // Its URL, host, path and caller have time index entries, which expire by day.
        { at: Math.ceil(start / day) * day - start + retention.log + 1, removed: 4 },
        // Usage is kept for longer: one bucket of each size, each for its own time. Each removal of stored
        // bytes created a bucket of one minute.
        ...Object.entries(bucketSizes).map(([size, { kept, spare }]) => ({
          at: kept + spare + 1,
          removed: size === "1m" ? 3 : 1,
        })),
      ]);
    });
  });
}
