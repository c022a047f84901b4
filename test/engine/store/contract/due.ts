import { toMonthRange } from "../../../../src/engine/core/accounts/statistics.ts";
import { describe, expect, test } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import { turnLimits } from "../../../../src/engine/core/node/turns.ts";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import { makeInput, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

const listIds = (deliveries: readonly Delivery[]): string[] => deliveries.map(({ message }) => message.id);
const makeFlowControl = (
  key: string,
  over: { parallelism?: number; rate?: number; period?: number } = {},
) => ({
  flowControl: { key, parallelism: null, rate: null, period: null, ...over },
});

async function sendAll(
  fixture: StoreFixture,
  count: number,
  over: Parameters<StoreFixture["send"]>[0],
): Promise<string[]> {
  const results = await fixture.publish(Array.from({ length: count }, () => makeInput(over)));
  return results.flatMap((result) => ("messageId" in result ? [result.messageId] : []));
}

/** Rows that a claim finds: waitlists whose gate has opened, and due schedules. */
export function describeDue(open: OpenStore): void {
  describe("a claim finds", () => {
    test("the waitlist of a key at the end of its window, oldest first, up to its rate", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const ids = await sendAll(fixture, 7, makeFlowControl("k", { rate: 2, period: 10_000 }));
      const sent = fixture.delivered();
      expect(listIds(sent)).toEqual(ids.slice(0, 2));
      const start = fixture.clock.now;
      for (const [round, from] of [2, 4, 6].entries()) {
        expect(await fixture.claim()).toEqual([]);
        expect(await fixture.store.nextDueAt()).toBe(
          Math.min(start + (round + 1) * 10_000, start + spans.lease),
        );
        fixture.clock.now = start + (round + 1) * 10_000;
        // Expired leases are not part of this test.
        for (const delivery of sent.splice(0)) await fixture.settle(delivery);
        sent.push(...(await fixture.claim()));
        expect(listIds(sent)).toEqual(ids.slice(from, from + 2));
      }
    });

    test("what is due, by its kind", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const nothing = {
        ...{ messages: null, leases: null, hostWaitlists: null },
        ...{ limiters: null, schedules: null, waiters: null },
      };
      expect(await fixture.store.read.oldestDue()).toEqual(nothing);
      const start = fixture.clock.now;
      await fixture.send({ delay: 5_000 });
      await fixture.send({ delay: 3_000 });
      await fixture.sent({});
      expect(await fixture.store.read.oldestDue()).toEqual({
        ...nothing,
        messages: start + 3_000,
        leases: start + spans.lease,
      });
    });

    test("the pulled destinations at which messages wait, and those that are pulled no more", async () => {
      const fixture = await StoreFixture.open(open);
      const { store } = fixture;
      await Promise.all(["acc", "b"].map((id) => fixture.account(id)));
      const pulled = (host: string, account = "acc") => ({ account, host });
      const name = (host: string) => `https://${host}`;
      const hosts = ["one.internal", "two.internal", "three.internal"];
      for (const account of ["acc", "b"])
        for (const host of hosts) await store.execute("addPulledOrigin", { account, name: name(host) });
      const all = ["acc", "b"].flatMap((account) => hosts.map((host) => pulled(host, account)));
      const look = () => store.read.pulledWork([...all, pulled("other.internal", "gone")]);
      const gone = pulled("other.internal", "gone");
      expect(await look()).toEqual([gone]);
      await fixture.publish([makeInput({ url: `${name("two.internal")}/work` })], "b");
      await fixture.claim();
      expect(await look()).toEqual([pulled("two.internal", "b"), gone]);
      await store.execute("removePulledOrigin", { account: "acc", name: name("one.internal") });
      // The waitlist of a removed origin is served by a claim, and then a pull for it must still end.
      expect(await look()).toEqual([pulled("one.internal"), pulled("two.internal", "b"), gone]);
      await fixture.claim();
      expect(await look()).toEqual([pulled("one.internal"), pulled("two.internal", "b"), gone]);
      expect(await store.read.pulledWork([])).toEqual([]);
    });

    test("rows of other accounts in turn if more is due than the limit", async () => {
      const fixture = await StoreFixture.open(open);
      await Promise.all(["acc", "b", "c"].map((id) => fixture.account(id)));
      const all = { messages: "", hostWaitlists: "", limiters: "", schedules: "", waiters: "" };
      const send = (account: string, count: number) =>
        fixture.publish(
          Array.from({ length: count }, () =>
            makeInput({ delay: 1_000, url: `https://${account}.example/` }),
          ),
          account,
        );
      await send("acc", 30);
      fixture.clock.now += 1;
      for (const account of ["b", "c"]) await send(account, 3);
      fixture.clock.now += 1_000;
      const first = await fixture.store.execute("claim", { limit: 4, turns: { ...all, messages: "b" } });
      // These are four of the oldest messages, and those of the only account after b.
      expect(fixture.delivered().map(({ message }) => message.account)).toEqual([
        "acc",
        "c",
        "acc",
        "c",
        "acc",
        "c",
        "acc",
      ]);
      expect(first).toMatchObject({ more: true, turns: { messages: "" } });
      const second = await fixture.store.execute("claim", { limit: 4, turns: first.turns });
      const sent = fixture.delivered().map(({ message }) => message.account);
      expect(sent.filter((id) => id === "b")).toHaveLength(3);
      expect(sent.filter((id) => id === "acc")).toHaveLength(turnLimits.rows);
      expect(second.backlogged).toEqual(["acc"]);
    });

    test("at most as many limiters as requested, first the one that opened first", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const first = await sendAll(fixture, 2, { queue: "b" });
      const second = await sendAll(fixture, 2, { queue: "a" });
      const running = fixture.delivered();
      expect(listIds(running)).toEqual([first[0], second[0]]);
      for (const delivery of running) {
        await fixture.store.execute("returnLeases", {
          leases: [{ account: "acc", messageId: delivery.message.id, attempt: 0 }],
        });
        await fixture.store.execute("cancel", { account: "acc", messageIds: [delivery.message.id] });
        fixture.clock.now += 1;
      }
      expect(await fixture.store.execute("claim", { limit: 10, limiters: 1 })).toMatchObject({ more: true });
      expect(listIds(fixture.delivered())).toEqual(first.slice(1));
      expect(listIds(await fixture.claim())).toEqual(second.slice(1));
      expect(await fixture.store.execute("claim", { limit: 10 })).toMatchObject({ more: false });
    });

    test("one waitlist per account and name: a queue is not a key or another account's queue", async () => {
      const fixture = await StoreFixture.open(open);
      await Promise.all([fixture.account("acc"), fixture.account("other")]);
      await sendAll(fixture, 1, { queue: "x" });
      await fixture.publish([makeInput({ queue: "x" })], "other");
      await sendAll(fixture, 1, makeFlowControl("x", { parallelism: 1 }));
      expect(fixture.delivered()).toHaveLength(3);
      const [next] = await sendAll(fixture, 1, { queue: "x" });
      await fixture.store.execute("cancel", { account: "other", messageIds: next ? [next] : [] });
      expect(fixture.delivered()).toEqual([]);
      expect((await fixture.store.read.message("acc", next ?? ""))?.state).toMatchObject({
        state: "held",
        waitlist: "queue:x",
        dueAt: null,
      });
    });

    test("held messages in order of acceptance, regardless of when they became due", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const running = await fixture.sent({ queue: "q" });
      const early = await fixture.send({ queue: "q", delay: 5_000 });
      const late = await fixture.send({ queue: "q" });
      fixture.clock.now += 5_000;
      expect(await fixture.claim()).toEqual([]);
      await fixture.settle(running);
      const [next] = await fixture.claim();
      expect(next?.message.id).toBe(early);
      if (next) await fixture.settle(next);
      expect(listIds(await fixture.claim())).toEqual([late]);
    });

    test("schedules, the most overdue first, up to the limit", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { body, ...input } = makeInput();
      const make = (id: string, cron: string) =>
        fixture.store.execute("createSchedule", { account: "acc", id, cron, messageInput: input, body });
      const minute = 60_000;
      fixture.clock.now = Math.ceil(fixture.clock.now / (3 * minute)) * 3 * minute;
      // The order of names would put the later one first.
      await make("a", "*/3 * * * *");
      await make("b", "* * * * *");
      const dueAt = (Math.floor(fixture.clock.now / minute) + 1) * minute;
      expect(await fixture.store.nextDueAt()).toBe(dueAt);
      fixture.clock.now = dueAt + 4 * minute;
      await fixture.store.execute("claim", { limit: 10, schedules: 1 });
      expect(fixture.delivered().map(({ message }) => message.scheduleId)).toEqual(["b"]);
      expect((await fixture.claim()).map(({ message }) => message.scheduleId)).toEqual(["a"]);
      expect(await fixture.claim()).toEqual([]);
      const next = await fixture.store.read.findResource("schedules", "acc", "b");
      expect(next).toMatchObject({ dueAt: dueAt + 5 * minute, lastAt: dueAt + 4 * minute });
    });

    test("schedules in the order of their due times", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { body, ...input } = makeInput();
      await fixture.store.execute("createSchedule", {
        account: "acc",
        id: "b",
        cron: "* * * * *",
        messageInput: input,
        body,
      });
      fixture.clock.now += 60_000;
      await fixture.store.execute("createSchedule", {
        account: "acc",
        id: "a",
        cron: "* * * * *",
        messageInput: input,
        body,
      });
      fixture.clock.now += 60_000;
      expect((await fixture.claim()).map(({ message }) => message.scheduleId)).toEqual(["b", "a"]);
    });

    test("a schedule that was run by hand at its usual time", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const endpoints = ["https://one.example/", "https://two.example/"].map((url) => ({ name: null, url }));
      await fixture.store.execute("addEndpoints", { account: "acc", name: "g", endpoints });
      const { body, ...input } = makeInput({ url: "", group: "g", queue: "q" });
      await fixture.store.execute("createSchedule", {
        ...{ account: "acc", id: "a", cron: "* * * * *", messageInput: input, body },
      });
      const read = () => fixture.store.read.findResource("schedules", "acc", "a");
      const before = await read();
      const { messages } = await fixture.store.execute("runSchedule", { account: "acc", id: "a" });
      expect(messages.map(({ url }) => url)).toEqual(endpoints.map(({ url }) => url));
      expect(fixture.delivered().map(({ message }) => message.id)).toEqual([messages[0]?.messageId]);
      expect(await read()).toEqual(before);
      fixture.clock.now = before?.dueAt ?? 0;
      await fixture.claim();
      expect((await read())?.lastMessages).toHaveLength(2);
      expect((await fixture.store.read.waitState("acc", messages[1]?.messageId ?? ""))?.waitingAhead).toBe(0);
    });

    test("a schedule whose messages belong to the trace of the request that created it", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const trace = { parent: `00-${"a".repeat(32)}-${"b".repeat(16)}-01`, state: "vendor=1" };
      const { body, ...input } = makeInput({ trace });
      const schedule = { account: "acc", id: "a", cron: "* * * * *", messageInput: input, body };
      await fixture.store.execute("createSchedule", schedule);
      fixture.clock.now += 60_000;
      const [fired] = await fixture.claim();
      expect(fired?.message.trace).toEqual(trace);
      const stored = await fixture.store.read.message("acc", fired?.message.id ?? "");
      expect(stored?.message.trace).toEqual(trace);
    });

    test("a schedule of an account over its budget, which skips the time and reports why", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { body, ...input } = makeInput();
      await fixture.store.execute("createSchedule", {
        account: "acc",
        id: "a",
        cron: "* * * * *",
        messageInput: input,
        body,
      });
      await fixture.store.execute("changeAccount", { account: "acc", change: { budget: 20 } });
      const { from: month } = toMonthRange(fixture.clock.now + 120_000);
      await fixture.store.execute("recordSpending", { account: "acc", dollars: 20, month });
      const read = () => fixture.store.read.findResource("schedules", "acc", "a");
      fixture.clock.now = Math.max((await read())?.dueAt ?? 0, month);
      expect(await fixture.claim()).toEqual([]);
      const passed = await read();
      expect(passed).toMatchObject({
        lastAt: fixture.clock.now,
        lastMessages: [],
        passedOver: expect.stringContaining("budget: 20.00"),
      });
      await fixture.store.execute("changeAccount", { account: "acc", change: { budget: 0 } });
      fixture.clock.now = passed?.dueAt ?? 0;
      expect(await fixture.claim()).toMatchObject([{ message: { scheduleId: "a" } }]);
      expect(await read()).not.toHaveProperty("passedOver");
    });

    test("a key that was unused for an hour, which is then removed", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.settle(await fixture.sent(makeFlowControl("k", { parallelism: 1 })));
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + spans.idleKey);
      fixture.clock.now += spans.idleKey;
      await fixture.claim();
      expect(await fixture.store.read.findResource("limiters", "acc", "key:k")).toBeNull();
      expect(await fixture.store.nextDueAt()).toBeNull();
    });

    test("no key to remove before its window has ended", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const period = 5 * spans.idleKey;
      const delivery = await fixture.sent(makeFlowControl("k", { rate: 1, period }));
      const start = fixture.clock.now;
      await fixture.settle(delivery);
      fixture.clock.now = start + period - 1;
      await fixture.claim();
      await fixture.send(makeFlowControl("k", { rate: 1, period }));
      expect([...fixture.delivered(), ...(await fixture.claim())]).toEqual([]);
      fixture.clock.now = start + period;
      expect(await fixture.claim()).toHaveLength(1);
    });
  });
}
