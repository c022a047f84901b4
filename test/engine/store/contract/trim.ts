import { describe, expect, test } from "vitest";
import type { Outcome } from "../../../../src/engine/core/model/attempt.ts";
import { makeLogQuery, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

const failing = { status: 489, headers: [["Svc-Nonretryable-Error", "true"]] } as const;

/** Sends messages one after another that end with this outcome, within one millisecond. */
async function endMessages(
  fixture: StoreFixture,
  count: number,
  outcome: Partial<Outcome> = {},
): Promise<string[]> {
  const ids: string[] = [];
  for (let at = 0; at < count; at++) {
    const delivery = await fixture.sent();
    await fixture.settle(delivery, outcome);
    ids.push(delivery.message.id);
  }
  return ids;
}

async function trim(
  fixture: StoreFixture,
  { log = 1e6, deadLetters = 1e6, limit = 100 },
  account = "acc",
): Promise<number[]> {
  const { findOverLimit } = fixture.store.read;
  await fixture.store.execute("changeAccount", {
    account,
    change: { limits: { logEntries: log, deadLetters } },
  });
  const of = async (table: "log" | "keptLog" | "deadLetters", max: number) => {
    const { id } = await findOverLimit(table, account, max);
    return id === null ? null : { id, limit: max };
  };
  const ids = {
    log: await of("log", log),
    keptLog: await of("keptLog", log),
    deadLetters: await of("deadLetters", deadLetters),
    audit: null,
  };
  const counts: number[] = [];
  for (let more = true; more;) {
    const { removed, more: left } = await fixture.store.execute("trim", { account, tooMany: ids, limit });
    counts.push(removed);
    more = left;
  }
  return counts;
}

/** Rows that are removed because an account exceeds a limit. */
export function describeTrim(open: OpenStore): void {
  describe("trim", () => {
    test("counts the rows of an account up to its limit and finds the newest excess row", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      const { findOverLimit } = fixture.store.read;
      expect(await findOverLimit("deadLetters", "acc", 3)).toEqual({ id: null, count: 0 });
      await endMessages(fixture, 3, failing);
      expect(await findOverLimit("deadLetters", "acc", 3)).toEqual({ id: null, count: 3 });
      await endMessages(fixture, 2, failing);
      const inputs = (await fixture.store.read.deadLetters(makeLogQuery())).entries.map(
        ({ deadLetter }) => deadLetter.id,
      );
      expect(await findOverLimit("deadLetters", "acc", 3)).toEqual({ id: inputs[3], count: 3 });
      expect(await findOverLimit("deadLetters", "other", 3)).toEqual({ id: null, count: 0 });
    });

    test("removes the oldest dead letters in portions, counts them, and keeps the others", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.account("other");
      const ids = await endMessages(fixture, 7, failing);
      const theirs = await fixture.sent({}, "other");
      await fixture.settle(theirs, failing);
      expect(await trim(fixture, { deadLetters: 2, limit: 2 })).toEqual([2, 2, 1]);
      const left = (await fixture.store.read.deadLetters(makeLogQuery())).entries.map(
        ({ deadLetter }) => deadLetter.messageId,
      );
      expect(left.toReversed()).toEqual(ids.slice(-2));
      expect((await fixture.store.read.account("acc"))?.dropped).toEqual({ log: 0, deadLetters: 5 });
      expect(
        (await fixture.store.read.deadLetters({ ...makeLogQuery(), account: "other" })).entries,
      ).toHaveLength(1);
      expect((await fixture.store.read.account("other"))?.dropped).toBeUndefined();
      expect(await trim(fixture, { deadLetters: 2 })).toEqual([0]);
      // The log still has entries of the removed dead letters.
      expect(await fixture.states(ids[0] ?? "")).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
    });

    test.each(["deleted", "sent again"])(
      "keeps a dead letter if another one was %s after the look, or is in the same batch",
      async (how) => {
        const fixture = await StoreFixture.open(open);
        await fixture.account();
        await endMessages(fixture, 5, failing);
        const { store } = fixture;
        await store.execute("changeAccount", { account: "acc", change: { limits: { deadLetters: 4 } } });
        const listIds = async () =>
          (await store.read.deadLetters(makeLogQuery())).entries.map(({ deadLetter }) => deadLetter.id);
        const [newest = "", second = "", ...others] = await listIds();
        const { id } = await store.read.findOverLimit("deadLetters", "acc", 4);
        const deadLetters = { id: id ?? "", limit: 4 };
        const trimAll = () =>
          store.execute("trim", {
            account: "acc",
            tooMany: { log: null, keptLog: null, deadLetters, audit: null },
            limit: 10,
          });
        const remove = (dlqId: string): Promise<unknown> => {
          const named = { account: "acc", dlqIds: [dlqId], logRetention: 1e9 };
          return how === "deleted"
            ? store.execute("bulk", makeDeletion(named))
            : store.execute("retryDeadLetters", { ...named, overrides: {} });
        };
        const [, trimmed] = await Promise.all([remove(newest), trimAll()]);
        expect(trimmed).toEqual({ removed: 0, more: false });
        await remove(second);
        expect(await trimAll()).toEqual({ removed: 0, more: false });
        expect(await listIds()).toEqual(others);
      },
    );

    test("removes nothing if the limit was raised in the meantime", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await endMessages(fixture, 3);
      await fixture.store.execute("changeAccount", { account: "acc", change: { limits: { logEntries: 2 } } });
      const { id } = await fixture.store.read.findOverLimit("log", "acc", 2);
      const input = {
        account: "acc",
        tooMany: { log: { id: id ?? "", limit: 2 }, keptLog: null, deadLetters: null, audit: null },
        limit: 10,
      };
      await fixture.store.execute("changeAccount", { account: "acc", change: { limits: { logEntries: 3 } } });
      expect(await fixture.store.execute("trim", input)).toEqual({ removed: 0, more: false });
      await fixture.store.execute("changeAccount", { account: "acc", change: { limits: { logEntries: 1 } } });
      expect(await fixture.store.execute("trim", input)).toEqual({ removed: 1, more: false });
    });

    test("removes the oldest log entries, and messages with their last entry", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const ids = await endMessages(fixture, 5);
      const waiting = await fixture.send({ delay: 60_000 });
      expect(await trim(fixture, { log: 2 })).toEqual([3]);
      const there = await Promise.all([...ids, waiting].map((id) => fixture.store.read.message("acc", id)));
      expect(there.map((view) => view !== null)).toEqual([false, false, false, true, true, true]);
      expect((await fixture.store.read.account("acc"))?.dropped).toEqual({ log: 3, deadLetters: 0 });
    });

    test("limits the kept log of unfinished messages and dead letters separately", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const waiting = await fixture.sent();
      await fixture.settle(waiting, { status: 500 });
      const dead = await fixture.publishFailing();
      const [first = "", second = "", third = ""] = await endMessages(fixture, 3);
      const lost = async (): Promise<string[]> => {
        const all = [waiting.message.id, dead.messageId, first, second, third];
        const left = await Promise.all(
          all.map(async (id) => ((await fixture.states(id)).length > 2 ? [] : [id])),
        );
        return left.flat();
      };
      // The two oldest entries are moved, not removed.
      expect(await trim(fixture, { log: 3 })).toEqual([0]);
      expect(await lost()).toEqual([]);
      expect(await fixture.store.read.findOverLimit("log", "acc", 3)).toEqual({ id: null, count: 3 });
      expect(await fixture.store.read.findOverLimit("keptLog", "acc", 3)).toEqual({ id: null, count: 2 });
      expect(await trim(fixture, { log: 1 })).toEqual([3]);
      expect(await lost()).toEqual([waiting.message.id, first, second]);
      expect((await fixture.store.read.account("acc"))?.dropped).toEqual({ log: 3, deadLetters: 0 });
      expect(await fixture.store.read.findOverLimit("keptLog", "acc", 1)).toEqual({ id: null, count: 1 });
      expect(await fixture.store.read.findOverLimit("log", "acc", 1)).toEqual({ id: null, count: 1 });
    });

    test.each(["deleted", "sent again", "expired"])(
      "removes a message of which only the dead letter exists when that is %s",
      async (how) => {
        const fixture = await StoreFixture.open(open);
        await fixture.account();
        const [id = ""] = await endMessages(fixture, 1, failing);
        await endMessages(fixture, 1);
        await trim(fixture, { log: 1 });
        expect(await fixture.store.read.message("acc", id)).not.toBeNull();
        const [entry] = (await fixture.store.read.deadLetters(makeLogQuery())).entries;
        const named = { account: "acc", dlqIds: [entry?.deadLetter.id ?? ""], logRetention: 1e9 };
        if (how === "deleted") await fixture.store.execute("bulk", makeDeletion(named));
        else if (how === "sent again")
          await fixture.store.execute("retryDeadLetters", { ...named, overrides: {} });
        else {
          fixture.clock.now += 1_000;
          const retention = { log: 1e9, deadLetters: 10 };
          await fixture.store.execute("expire", {
            account: "acc",
            retention,
            now: fixture.clock.now,
            limit: 10,
          });
        }
        expect(await fixture.store.read.message("acc", id)).toBeNull();
      },
    );
  });
}
