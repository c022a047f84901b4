import { describe, expect, test } from "vitest";
import { SeriesCounter } from "../../../src/operations/unpublished/counter.ts";
import { maxSeries } from "../../../src/operations/unpublished/series.ts";
import type { OpenStore } from "../../engine/store/storeFixture.ts";
import { StoreFixture } from "../../engine/store/storeFixture.ts";

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;

const one = { account: "acc", subject: "tok_1", reason: "forbidden", address: "192.0.2.1" } as const;

/** Returns a counter on a node of a fixture. */
const countOn = ({ store, clock }: StoreFixture) => new SeriesCounter({ store, now: () => clock.now });

/** The series of what became no message. */
export function describeUnpublished(open: OpenStore): void {
  describe("series of what became no message", () => {
    test("have the counts of all nodes, by minute and by hour", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const start = fixture.clock.now;
      const counters = [countOn(fixture), countOn(fixture)];
      for (const counter of counters) counter.note(one);
      await Promise.all(counters.map((counter) => counter.store()));
      fixture.clock.now += 2 * hour;
      for (const counter of counters) counter.note({ ...one, address: null });
      for (const counter of counters) await counter.store();
      const now = start + 2 * hour;
      expect(await fixture.store.read.series("acc")).toEqual([
        {
          ...{ account: "acc", id: "tok_1/forbidden", subject: "tok_1", reason: "forbidden" },
          ...{ total: 4, firstAt: start, last: { at: now, address: null }, dueAt: now + 7 * day },
          minutes: [[Math.floor(now / minute), 2]],
          hours: [
            [Math.floor(start / hour), 2],
            [Math.floor(now / hour), 2],
          ],
        },
      ]);
    });

    test("are limited per account, and are not kept for an account that does not exist", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const counter = countOn(fixture);
      for (let at = 0; at < maxSeries; at++) counter.note({ ...one, subject: `tok_${at}` });
      await counter.store();
      for (let at = 0; at < 50; at++) counter.note({ ...one, subject: `tok_9${at + 100}` });
      counter.note({ ...one, subject: "tok_5" });
      counter.note({ ...one, account: "none" });
      await counter.store();
      const series = await fixture.store.read.series("acc");
      expect(series).toHaveLength(maxSeries + 1);
      expect(series.find(({ id }) => id === "other/other")).toMatchObject({ total: 50 });
      expect(series.find(({ id }) => id === "tok_5/forbidden")).toMatchObject({ total: 2 });
      expect(await fixture.store.read.series("none")).toEqual([]);
    });

    test("are removed when they have counted nothing for a week", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const counter = countOn(fixture);
      const task = counter.createTask();
      counter.note(one);
      await task.run();
      fixture.clock.now += 7 * day - 1;
      counter.note({ ...one, subject: "tok_2" });
      await task.run();
      expect((await fixture.store.read.series("acc")).map(({ subject }) => subject)).toEqual([
        "tok_1",
        "tok_2",
      ]);
      fixture.clock.now += 11 * minute;
      counter.note({ ...one, subject: "tok_2" });
      await task.run();
      expect(await fixture.store.read.series("acc")).toMatchObject([{ subject: "tok_2", total: 2 }]);
      const remove = { account: "acc", ids: ["tok_2/forbidden"] };
      expect(await fixture.store.execute("removeSeries", { ...remove, reason: "age" })).toEqual({
        removed: 0,
      });
      expect(await fixture.store.execute("removeSeries", { ...remove, reason: "request" })).toEqual({
        removed: 1,
      });
    });
  });
}
