import { describe, expect, test } from "vitest";
import { spans } from "../../../src/core/values/limits.ts";
import { bucketSizes } from "../../../src/core/accounts/usage.ts";
import type { Filter } from "../../../src/core/search/filter.ts";
import type { LogEvent, LogPage } from "../../../src/store/queries/logs.ts";
import { bytes, latest, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

const day = 24 * 60 * 60 * 1_000;

const expire = (world: World, { log = 1e9, deadLetters = 1e9, limit = 100 }) =>
  world.store.execute("expire", { account: "acc", retention: { log, deadLetters }, now: world.clock.now, limit });

const envelopeOf = async (world: World, id: string) => (await world.store.read.message("acc", id))?.envelope.id ?? null;

/** What is removed when its time is over. */
export function describeRetention(open: OpenStore): void {
  describe("expire", () => {
    test("removes the log of a finished message, and with its end the message", async () => {
      const world = await World.open(open);
      await world.account();
      const done = await world.sent();
      world.clock.now += 10;
      await world.settle(done);
      world.clock.now += 1_000;
      expect(await expire(world, { log: 1_000 })).toEqual({ removed: 0, more: false });
      world.clock.now += 1;
      expect(await expire(world, { log: 1_000 })).toEqual({ removed: 1, more: false });
      expect(await envelopeOf(world, done.message.id)).toBeNull();
      expect((await world.store.read.log(latest())).events).toEqual([]);
    });

    test("keeps the whole log of a message that is not finished, however old it is", async () => {
      const world = await World.open(open);
      await world.account();
      const delivery = await world.sent();
      await world.settle(delivery, { status: 500 });
      world.clock.now += 10;
      expect(await expire(world, { log: 1 })).toEqual({ removed: 0, more: false });
      expect(await envelopeOf(world, delivery.message.id)).toBe(delivery.message.id);
      expect(await world.states(delivery.message.id)).toEqual(["CREATED", "ACTIVE", "ERROR", "RETRY"]);
      expect(await expire(world, { log: 1 })).toEqual({ removed: 0, more: false });
    });

    test("a cancelled message goes with its log", async () => {
      const world = await World.open(open);
      await world.account();
      const id = await world.send({ delay: 1_000 });
      await world.store.execute("cancel", { account: "acc", messageIds: [id] });
      world.clock.now += 10;
      await expire(world, { log: 1 });
      expect(await envelopeOf(world, id)).toBeNull();
    });

    test("a message that was cancelled while it was sent goes with the last line of its log", async () => {
      const world = await World.open(open);
      await world.account();
      const delivery = await world.sent();
      const { id } = delivery.message;
      await world.store.execute("cancel", { account: "acc", messageIds: [id] });
      world.clock.now += 10;
      expect(await expire(world, { log: 1 })).toEqual({ removed: 0, more: false });
      expect(await envelopeOf(world, id)).toBe(id);
      await world.settle(delivery);
      world.clock.now += 10;
      expect(await expire(world, { log: 1 })).toEqual({ removed: 2, more: false });
      expect(await envelopeOf(world, id)).toBeNull();
    });

    test("a log that is kept longer than its time is found in every list, by every filter, with its bodies, and in its place", async () => {
      const world = await World.open(open);
      await world.account();
      const before = await world.sent({ labels: ["eu"] });
      await world.settle(before);
      const { messageId } = await world.die({ labels: ["eu"], callerIp: "192.0.2.7", body: bytes("hello") });
      const last = await world.sent({ labels: ["us"] });
      world.clock.now += 10;
      await world.settle(last);
      world.clock.now += 1;
      const filters: Filter[] = [{}, { messageIds: [messageId] }, { labels: ["eu"] }, { callerIps: ["192.0.2.7"] }, { states: ["FAILED"] }];
      const seen = async (order: "earliestFirst" | "latestFirst", count: number) =>
        Promise.all(
          filters.map(async (filter) => {
            const events: LogEvent[] = [];
            for (let cursor: string | null = null; ;) {
              const page: LogPage = await world.store.read.log({ account: "acc", filter, order, cursor, count });
              events.push(...page.events);
              if (page.cursor === null) break;
              ({ cursor } = page);
            }
            return events.filter(({ envelope }) => envelope.id !== before.message.id);
          }),
        );
      const whole = [await seen("earliestFirst", 100), await seen("latestFirst", 2)];
      expect(whole[0]?.map((events) => events.length)).toEqual([7, 4, 4, 4, 1]);
      expect(await expire(world, { log: 10 })).toEqual({ removed: 1, more: false });
      expect([await seen("earliestFirst", 100), await seen("latestFirst", 2)]).toEqual(whole);
      expect((await world.store.read.message("acc", messageId))?.finishedAt).toBe(whole[0]?.[1]?.at(-1)?.time);
    });

    test("dead letters kept longer than the log keep their message and its whole log", async () => {
      const world = await World.open(open);
      await world.account();
      const { messageId, dlqId } = await world.die();
      world.clock.now += 10;
      expect(await expire(world, { log: 1, deadLetters: 100 })).toEqual({ removed: 0, more: false });
      expect((await world.store.read.deadLetter("acc", dlqId))?.envelope.id).toBe(messageId);
      expect(await world.states(messageId)).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
      world.clock.now += 100;
      expect(await expire(world, { log: 1, deadLetters: 100 })).toEqual({ removed: 1, more: false });
      expect(await envelopeOf(world, messageId)).toBeNull();
      expect((await world.store.read.log(latest())).events).toEqual([]);
      expect(await world.store.read.tooMany("log", "acc", 10)).toEqual({ id: null, count: 0 });
    });

    test("a log kept longer than dead letters keeps their message", async () => {
      const world = await World.open(open);
      await world.account();
      const { messageId, dlqId } = await world.die();
      world.clock.now += 10;
      expect(await expire(world, { log: 100, deadLetters: 1 })).toEqual({ removed: 1, more: false });
      expect(await world.store.read.deadLetter("acc", dlqId)).toBeNull();
      expect(await world.states(messageId)).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
      world.clock.now += 100;
      expect(await expire(world, { log: 100, deadLetters: 1 })).toEqual({ removed: 1, more: false });
      expect(await envelopeOf(world, messageId)).toBeNull();
    });

    test("both at once", async () => {
      const world = await World.open(open);
      await world.account();
      const { messageId } = await world.die();
      world.clock.now += 10;
      expect(await expire(world, { log: 1, deadLetters: 1 })).toEqual({ removed: 2, more: false });
      expect(await envelopeOf(world, messageId)).toBeNull();
    });

    test("removes so many of each kind at most, oldest first, and says that there is more", async () => {
      const world = await World.open(open);
      await world.account();
      const ids: string[] = [];
      for (let index = 0; index < 3; index++) {
        const delivery = await world.sent();
        await world.settle(delivery);
        ids.push(delivery.message.id);
      }
      world.clock.now += 10;
      expect(await expire(world, { log: 1, limit: 2 })).toEqual({ removed: 2, more: true });
      expect(await Promise.all(ids.map((id) => envelopeOf(world, id)))).toEqual([null, null, ids[2]]);
      expect(await expire(world, { log: 1, limit: 2 })).toEqual({ removed: 1, more: false });
    });

    test("removes no more than it was asked to, also where it is asked twice in one transaction, or beside what is too many", async () => {
      const world = await World.open(open);
      await world.account();
      for (let count = 0; count < 9; count++) await world.settle(await world.sent());
      world.clock.now += 10;
      const few = await Promise.all([expire(world, { log: 1, limit: 2 }), expire(world, { log: 1, limit: 3 })]);
      expect(few).toEqual([
        { removed: 2, more: true },
        { removed: 3, more: true },
      ]);
      const { id } = await world.store.read.tooMany("log", "acc", 1);
      await world.store.execute("changeAccount", { account: "acc", change: { limits: { logEntries: 1 } } });
      const tooMany = { log: { id: id ?? "", most: 1 }, keptLog: null, deadLetters: null, audit: null };
      const [kept, trimmed] = await Promise.all([
        expire(world, {}),
        world.store.execute("trim", { account: "acc", tooMany, limit: 100 }),
        expire(world, {}),
      ]);
      expect([kept, trimmed]).toEqual([
        { removed: 0, more: false },
        { removed: 3, more: false },
      ]);
    });

    test("the time it is next needed is the time from which it removes something", async () => {
      const world = await World.open(open);
      await world.account();
      const retention = { log: 2_000_000, deadLetters: 3_000_000 };
      const nextAt = () => world.store.read.nextExpiryAt("acc", retention);
      expect(await nextAt()).toBeNull();
      const { span } = bucketSizes["3h"];
      // Three hours before midnight, so that sightings, which go by days, go before the first bucket.
      const start = (world.clock.now = Math.ceil(world.clock.now / day) * day + day - span);
      await world.die({ deduplication: "opened again" });
      await world.settle(await world.sent({ deduplication: "kept" }));
      const removed: { at: number; removed: number }[] = [];
      for (let at = await nextAt(); at !== null; at = await nextAt()) {
        world.clock.now = at;
        const turn = await expire(world, retention);
        expect(turn.removed).toBeGreaterThan(0);
        removed.push({ at: at - start, removed: turn.removed });
      }
      expect(removed).toEqual([
        { at: spans.deduplication + 1, removed: 1 },
        // The log of the other one is kept with its dead letter.
        { at: retention.log + 1, removed: 1 },
        { at: retention.deadLetters + 1, removed: 1 },
        // Its URL, host, path and caller were sighted, which goes by days.
        { at: Math.ceil(start / day) * day - start + retention.log + 1, removed: 4 },
        // What was used is known for longer: one bucket of each size, each for its time. Each removal of stored bytes made one of a minute.
        ...Object.entries(bucketSizes).map(([size, { kept, spare }]) => ({ at: kept + spare + 1, removed: size === "1m" ? 3 : 1 })),
      ]);
    });
  });
}
