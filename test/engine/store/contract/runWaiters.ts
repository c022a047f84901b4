import { describe, expect, test } from "vitest";
import { bytes } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";
import {
  listHistory,
  listPositions,
  makeRunStart,
  makeWaiter,
  openWithAccount,
  readActiveRun,
} from "./runs.ts";

/** Steps of runs that wait for a time or an event. */
export function describeRunWaiters(open: OpenStore): void {
  describe("waiters of runs", () => {
    test("are due after their timeout and wake once", async () => {
      const fixture = await openWithAccount(open);
      await fixture.publish([makeRunStart("wfr_1")]);
      for (const delivery of fixture.delivered()) await fixture.settle(delivery);
      const run = await readActiveRun(fixture, "wfr_1");
      await fixture.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: makeWaiter(1) });
      await fixture.store.execute("wait", {
        account: "acc",
        runId: "wfr_1",
        waiter: makeWaiter(2, { wait: 9_000 }),
      });
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + 5_000);
      fixture.clock.now += 4_999;
      expect(await fixture.claim()).toEqual([]);
      fixture.clock.now += 1;
      const woken = await fixture.claim();
      expect(woken.map((delivery) => listHistory(delivery).slice(1).join(""))).toEqual([
        expect.stringContaining('"waitTimeout":true'),
      ]);
      for (const delivery of woken) await fixture.settle(delivery);
      expect(await fixture.claim()).toEqual([]);
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + 4_000);
      expect((await fixture.store.read.listWaiters("acc", run.id)).map(({ id }) => id)).toEqual([
        `${run.id}/2`,
      ]);
    });

    test("are counted by event, in pages, only those of the account", async () => {
      const fixture = await openWithAccount(open);
      await fixture.account("other");
      await fixture.publish([makeRunStart("theirs")], "other");
      const start = fixture.clock.now;
      const waitFor = (event: string, runId: string, { stepId = 1, wait = 5_000, account = "acc" } = {}) =>
        fixture.store.execute("wait", { account, runId, waiter: makeWaiter(stepId, { event, wait }) });
      await waitFor("paid", "theirs", { account: "other" });
      for (const runId of ["one", "two"]) {
        await fixture.publish([makeRunStart(runId)]);
        fixture.clock.now += 10;
      }
      await waitFor("paid", "two", { wait: 1_000 });
      await waitFor("paid", "one");
      await waitFor("paid", "one", { stepId: 2, wait: 9_000 });
      await waitFor("Shipped ü/1", "two", { stepId: 2 });
      await fixture.store.execute("wait", {
        ...{ account: "acc", runId: "one" },
        waiter: makeWaiter(3, { event: "zz", kind: "webhook" }),
      });
      const list = (after = "", count = 10) =>
        fixture.store.read.listWaitedEvents({ account: "acc", after, count });
      const { events, cursor } = await list();
      expect(cursor).toBeNull();
      expect(events).toMatchObject([
        { event: "Shipped ü/1", count: 1, more: false, oldest: { runId: "two", kind: "event" } },
        { event: "paid", count: 3, oldest: { runId: "one", dueAt: start + 5_020 } },
        { event: "zz", count: 1, oldest: { kind: "webhook" } },
      ]);
      const first = await list("", 1);
      expect(first).toEqual({ events: events.slice(0, 1), cursor: "Shipped ü/1" });
      expect(await list(first.cursor ?? "", 1)).toEqual({ events: events.slice(1, 2), cursor: "paid" });
      expect(await list("paid", 1)).toEqual({ events: events.slice(2), cursor: null });
      const theirs = await fixture.store.read.listWaitedEvents({ account: "other", after: "", count: 10 });
      expect(theirs.events).toMatchObject([{ event: "paid", count: 1 }]);
    });

    test("are claimed oldest first, as many as requested", async () => {
      const fixture = await openWithAccount(open);
      await fixture.publish([makeRunStart("wfr_1")]);
      fixture.delivered();
      for (const [index, stepId] of [3, 1, 2].entries())
        await fixture.store.execute("wait", {
          account: "acc",
          runId: "wfr_1",
          waiter: makeWaiter(stepId, { wait: 1_000 + index }),
        });
      fixture.clock.now += 2_000;
      const run = await readActiveRun(fixture, "wfr_1");
      expect(await fixture.store.execute("claim", { limit: 9, waiters: 2 })).toMatchObject({ more: true });
      expect(await listPositions(fixture, run.id)).toEqual(["0 i", "1 r3", "2 r1"]);
      expect(await fixture.store.execute("claim", { limit: 9 })).toMatchObject({ more: false });
      expect(await listPositions(fixture, run.id)).toEqual(["0 i", "1 r3", "2 r1", "3 r2"]);
    });

    test("take earlier events in order, each event once", async () => {
      const fixture = await openWithAccount(open);
      await fixture.publish([makeRunStart("wfr_1")]);
      fixture.delivered();
      const run = await readActiveRun(fixture, "wfr_1");
      for (const text of ["one", "two\0", "three"])
        await fixture.store.execute("notify", {
          account: "acc",
          event: "paid",
          body: bytes(text),
          runId: "wfr_1",
          kind: "event",
        });
      expect((await fixture.store.read.listNotifications("acc", run.id)).map(({ body }) => body)).toEqual(
        ["one", "two\0", "three"].map(bytes),
      );
      for (const stepId of [1, 2])
        await fixture.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: makeWaiter(stepId) });
      const outs = (await fixture.store.read.history("acc", run.id))
        .slice(1)
        .map(({ body }) => JSON.parse(new TextDecoder().decode(body)).out);
      expect(outs.map((out: string) => atob(out))).toEqual(["one", "two\0"]);
      expect(await fixture.store.read.listNotifications("acc", run.id)).toHaveLength(1);
    });

    test("take one event each, in order, if two steps begin to wait for one name at once", async () => {
      const fixture = await openWithAccount(open);
      await fixture.publish([makeRunStart("wfr_1")]);
      const tell = (event: string, text: string) =>
        fixture.store.execute("notify", {
          account: "acc",
          event,
          body: bytes(text),
          runId: "wfr_1",
          kind: "event",
        });
      for (const text of ["one", "two", "three"]) await tell("paid", text);
      await tell("größe", "other");
      fixture.delivered();
      const run = await readActiveRun(fixture, "wfr_1");
      await Promise.all(
        [1, 2].map((stepId) =>
          fixture.store.execute("wait", { account: "acc", runId: "wfr_1", waiter: makeWaiter(stepId) }),
        ),
      );
      const told = (await fixture.store.read.history("acc", run.id))
        .slice(1)
        .map(({ body }) => JSON.parse(new TextDecoder().decode(body)));
      expect(told.map(({ stepId, out }) => [stepId, atob(out)])).toEqual([
        [1, "one"],
        [2, "two"],
      ]);
      expect(
        (await fixture.store.read.listNotifications("acc", run.id)).map(({ body, size }) => [body, size]),
      ).toEqual([
        [bytes("three"), 5],
        [bytes("other"), 5],
      ]);
    });

    test("wake on an event that they wait for, but not in other runs", async () => {
      const fixture = await openWithAccount(open);
      await fixture.publish([makeRunStart("wfr_1")]);
      await fixture.publish([makeRunStart("wfr_2")]);
      for (const runId of ["wfr_1", "wfr_2"]) {
        for (const [stepId, event] of [[1, "paid"] as const, [2, "größe"] as const, [3, "paid"] as const])
          await fixture.store.execute("wait", {
            account: "acc",
            runId,
            waiter: makeWaiter(stepId, { event }),
          });
      }
      const told = await fixture.store.execute("notify", {
        account: "acc",
        event: "paid",
        body: bytes("x"),
        runId: "wfr_1",
        kind: "event",
      });
      expect(told.notified.map(({ waiter: { runId, id } }) => [runId, id.split("/")[1]])).toEqual([
        ["wfr_1", "1"],
        ["wfr_1", "3"],
      ]);
      const going = await fixture.store.read.activeRun("acc", "wfr_1");
      expect([going?.active.waiting, going?.active.steps]).toEqual([1, 3]);
      expect((await fixture.store.read.activeRun("acc", "wfr_2"))?.active.waiting).toBe(3);
    });

    test("are found by event in all runs of the account, page by page", async () => {
      const fixture = await openWithAccount(open);
      await fixture.account("other");
      for (const runId of ["a", "b", "c"]) {
        await fixture.publish([makeRunStart(runId)]);
        await fixture.store.execute("wait", { account: "acc", runId, waiter: makeWaiter(1) });
      }
      await fixture.publish([makeRunStart("a")], "other");
      await fixture.store.execute("wait", { account: "other", runId: "a", waiter: makeWaiter(1) });
      const { read } = fixture.store;
      const first = await read.listEventWaiters("acc", "paid", { limit: 2 });
      const rest = await read.listEventWaiters("acc", "paid", { after: first.at(-1)?.id ?? "", limit: 2 });
      expect([...first, ...rest].map(({ runId }) => runId)).toEqual(["a", "b", "c"]);
      expect(await read.listEventWaiters("acc", "pai", { limit: 2 })).toEqual([]);
    });
  });
}
