import { describe, expect, test } from "vitest";
import type { Outcome } from "../../../src/core/model/message.ts";
import { latest, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

const failing = { status: 489, headers: [["Svc-Nonretryable-Error", "true"]] } as const;

/** One message after another that ends with this outcome, in one millisecond. */
async function ended(world: World, count: number, outcome: Partial<Outcome> = {}): Promise<string[]> {
  const ids: string[] = [];
  for (let at = 0; at < count; at++) {
    const delivery = await world.sent();
    await world.settle(delivery, outcome);
    ids.push(delivery.message.id);
  }
  return ids;
}

async function trimmed(world: World, { log = 1e6, deadLetters = 1e6, limit = 100 }, account = "acc"): Promise<number[]> {
  const { tooMany } = world.store.read;
  await world.store.execute("changeAccount", { account, change: { limits: { logEntries: log, deadLetters } } });
  const of = async (table: "log" | "keptLog" | "deadLetters", most: number) => {
    const { id } = await tooMany(table, account, most);
    return id === null ? null : { id, most };
  };
  const ids = {
    log: await of("log", log),
    keptLog: await of("keptLog", log),
    deadLetters: await of("deadLetters", deadLetters),
    audit: null,
  };
  const counts: number[] = [];
  for (let more = true; more;) {
    const { removed, more: left } = await world.store.execute("trim", { account, tooMany: ids, limit });
    counts.push(removed);
    more = left;
  }
  return counts;
}

/** What leaves because an account has more than it may. */
export function describeTrim(open: OpenStore): void {
  describe("trim", () => {
    test("counts rows of an account up to what it may have, and finds the newest one too many", async () => {
      const world = await World.open(open);
      await world.account();
      await world.account("other");
      const { tooMany } = world.store.read;
      expect(await tooMany("deadLetters", "acc", 3)).toEqual({ id: null, count: 0 });
      await ended(world, 3, failing);
      expect(await tooMany("deadLetters", "acc", 3)).toEqual({ id: null, count: 3 });
      await ended(world, 2, failing);
      const letters = (await world.store.read.deadLetters(latest())).entries.map(({ letter }) => letter.id);
      expect(await tooMany("deadLetters", "acc", 3)).toEqual({ id: letters[3], count: 3 });
      expect(await tooMany("deadLetters", "other", 3)).toEqual({ id: null, count: 0 });
    });

    test("lets the oldest dead letters go, portion by portion, counts them, and leaves others alone", async () => {
      const world = await World.open(open);
      await world.account();
      await world.account("other");
      const ids = await ended(world, 7, failing);
      const theirs = await world.sent({}, "other");
      await world.settle(theirs, failing);
      expect(await trimmed(world, { deadLetters: 2, limit: 2 })).toEqual([2, 2, 1]);
      const left = (await world.store.read.deadLetters(latest())).entries.map(({ letter }) => letter.messageId);
      expect(left.toReversed()).toEqual(ids.slice(-2));
      expect((await world.store.read.account("acc"))?.dropped).toEqual({ log: 0, deadLetters: 5 });
      expect((await world.store.read.deadLetters({ ...latest(), account: "other" })).entries).toHaveLength(1);
      expect((await world.store.read.account("other"))?.dropped).toBeUndefined();
      expect(await trimmed(world, { deadLetters: 2 })).toEqual([0]);
      // The log still tells of those that are gone.
      expect(await world.states(ids[0] ?? "")).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
    });

    test("lets nothing go when the account may have more meanwhile", async () => {
      const world = await World.open(open);
      await world.account();
      await ended(world, 3);
      await world.store.execute("changeAccount", { account: "acc", change: { limits: { logEntries: 2 } } });
      const { id } = await world.store.read.tooMany("log", "acc", 2);
      const input = {
        account: "acc",
        tooMany: { log: { id: id ?? "", most: 2 }, keptLog: null, deadLetters: null, audit: null },
        limit: 10,
      };
      await world.store.execute("changeAccount", { account: "acc", change: { limits: { logEntries: 3 } } });
      expect(await world.store.execute("trim", input)).toEqual({ removed: 0, more: false });
      await world.store.execute("changeAccount", { account: "acc", change: { limits: { logEntries: 1 } } });
      expect(await world.store.execute("trim", input)).toEqual({ removed: 1, more: false });
    });

    test("lets the oldest lines of the log go, and messages with their last line", async () => {
      const world = await World.open(open);
      await world.account();
      const ids = await ended(world, 5);
      const waiting = await world.send({ delay: 60_000 });
      expect(await trimmed(world, { log: 2 })).toEqual([3]);
      const there = await Promise.all([...ids, waiting].map((id) => world.store.read.message("acc", id)));
      expect(there.map((view) => view !== null)).toEqual([false, false, false, true, true, true]);
      expect((await world.store.read.account("acc"))?.dropped).toEqual({ log: 3, deadLetters: 0 });
    });

    test("keeps the log of unfinished messages and dead letters apart, with a limit of its own", async () => {
      const world = await World.open(open);
      await world.account();
      const waiting = await world.sent();
      await world.settle(waiting, { status: 500 });
      const dead = await world.die();
      const [first = "", second = "", third = ""] = await ended(world, 3);
      const lost = async (): Promise<string[]> => {
        const all = [waiting.message.id, dead.messageId, first, second, third];
        const left = await Promise.all(all.map(async (id) => ((await world.states(id)).length > 2 ? [] : [id])));
        return left.flat();
      };
      // The two oldest are moved, not removed.
      expect(await trimmed(world, { log: 3 })).toEqual([0]);
      expect(await lost()).toEqual([]);
      expect(await world.store.read.tooMany("log", "acc", 3)).toEqual({ id: null, count: 3 });
      expect(await world.store.read.tooMany("keptLog", "acc", 3)).toEqual({ id: null, count: 2 });
      expect(await trimmed(world, { log: 1 })).toEqual([3]);
      expect(await lost()).toEqual([waiting.message.id, first, second]);
      expect((await world.store.read.account("acc"))?.dropped).toEqual({ log: 3, deadLetters: 0 });
      expect(await world.store.read.tooMany("keptLog", "acc", 1)).toEqual({ id: null, count: 1 });
      expect(await world.store.read.tooMany("log", "acc", 1)).toEqual({ id: null, count: 1 });
    });

    test.each(["deleted", "sent again", "expired"])("a message of which only the dead letter is left goes when that is %s", async (how) => {
      const world = await World.open(open);
      await world.account();
      const [id = ""] = await ended(world, 1, failing);
      await ended(world, 1);
      await trimmed(world, { log: 1 });
      expect(await world.store.read.message("acc", id)).not.toBeNull();
      const [entry] = (await world.store.read.deadLetters(latest())).entries;
      const named = { account: "acc", dlqIds: [entry?.letter.id ?? ""], logRetention: 1e9 };
      if (how === "deleted") await world.store.execute("deleteDeadLetters", named);
      else if (how === "sent again") await world.store.execute("retryDeadLetters", { ...named, overrides: {} });
      else {
        world.clock.now += 1_000;
        const retention = { log: 1e9, deadLetters: 10 };
        await world.store.execute("expire", { account: "acc", retention, now: world.clock.now, limit: 10 });
      }
      expect(await world.store.read.message("acc", id)).toBeNull();
    });
  });
}
