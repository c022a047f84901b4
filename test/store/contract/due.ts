import { monthOf } from "../../../src/core/accounts/statistics.ts";
import { describe, expect, test } from "vitest";
import { spans } from "../../../src/core/values/limits.ts";
import { turn } from "../../../src/core/fairness/turns.ts";
import type { Delivery } from "../../../src/core/model/message.ts";
import { letterTo, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

const idsOf = (deliveries: readonly Delivery[]): string[] => deliveries.map(({ message }) => message.id);
const limited = (key: string, over: { parallelism?: number; rate?: number; period?: number } = {}) => ({
  flowControl: { key, parallelism: null, rate: null, period: null, ...over },
});

async function sendAll(world: World, count: number, over: Parameters<World["send"]>[0]): Promise<string[]> {
  const results = await world.publish(Array.from({ length: count }, () => letterTo(over)));
  return results.flatMap((result) => ("messageId" in result ? [result.messageId] : []));
}

/** What a claim finds: lines that have opened, and schedules whose time has come. */
export function describeDue(open: OpenStore): void {
  describe("what comes due by itself", () => {
    test("is the line of a key when its window ends, as many of it as the rate lets through, oldest first", async () => {
      const world = await World.open(open);
      await world.account();
      const ids = await sendAll(world, 7, limited("k", { rate: 2, period: 10_000 }));
      const sent = world.delivered();
      expect(idsOf(sent)).toEqual(ids.slice(0, 2));
      const start = world.clock.now;
      for (const [round, from] of [2, 4, 6].entries()) {
        expect(await world.claim()).toEqual([]);
        expect(await world.store.nextDueAt()).toBe(Math.min(start + (round + 1) * 10_000, start + spans.lease));
        world.clock.now = start + (round + 1) * 10_000;
        // Leases that run out now are not at issue.
        for (const delivery of sent.splice(0)) await world.settle(delivery);
        sent.push(...(await world.claim()));
        expect(idsOf(sent)).toEqual(ids.slice(from, from + 2));
      }
    });

    test("is, when more is due than is asked for, also what other accounts have, in turn", async () => {
      const world = await World.open(open);
      await Promise.all(["acc", "b", "c"].map((id) => world.account(id)));
      const all = { messages: "", lines: "", flows: "", schedules: "", waiters: "" };
      const send = (account: string, count: number) =>
        world.publish(
          Array.from({ length: count }, () => letterTo({ delay: 1_000, url: `https://${account}.example/` })),
          account,
        );
      await send("acc", 30);
      world.clock.now += 1;
      for (const account of ["b", "c"]) await send(account, 3);
      world.clock.now += 1_000;
      const first = await world.store.execute("claim", { limit: 4, turns: { ...all, messages: "b" } });
      // Four of the oldest, and those of the only account after b.
      expect(world.delivered().map(({ message }) => message.account)).toEqual(["acc", "c", "acc", "c", "acc", "c", "acc"]);
      expect(first).toMatchObject({ more: true, turns: { messages: "" } });
      const second = await world.store.execute("claim", { limit: 4, turns: first.turns });
      const sent = world.delivered().map(({ message }) => message.account);
      expect(sent.filter((id) => id === "b")).toHaveLength(3);
      expect(sent.filter((id) => id === "acc")).toHaveLength(turn.rows);
      expect(second.behind).toEqual(["acc"]);
    });

    test("is no more than is asked for: the flow that opened first, then the others", async () => {
      const world = await World.open(open);
      await world.account();
      const [first, second] = [await sendAll(world, 2, { queue: "b" }), await sendAll(world, 2, { queue: "a" })];
      const running = world.delivered();
      expect(idsOf(running)).toEqual([first[0], second[0]]);
      for (const delivery of running) {
        await world.store.execute("giveBack", { held: [{ account: "acc", messageId: delivery.message.id, attempt: 0 }] });
        await world.store.execute("cancel", { account: "acc", messageIds: [delivery.message.id] });
        world.clock.now += 1;
      }
      expect(await world.store.execute("claim", { limit: 10, flows: 1 })).toMatchObject({ more: true });
      expect(idsOf(world.delivered())).toEqual(first.slice(1));
      expect(idsOf(await world.claim())).toEqual(second.slice(1));
      expect(await world.store.execute("claim", { limit: 10 })).toMatchObject({ more: false });
    });

    test("is one line for each account and name: a queue is no key, and no queue of others", async () => {
      const world = await World.open(open);
      await Promise.all([world.account("acc"), world.account("other")]);
      await sendAll(world, 1, { queue: "x" });
      await world.publish([letterTo({ queue: "x" })], "other");
      await sendAll(world, 1, limited("x", { parallelism: 1 }));
      expect(world.delivered()).toHaveLength(3);
      const [next] = await sendAll(world, 1, { queue: "x" });
      await world.store.execute("cancel", { account: "other", messageIds: next ? [next] : [] });
      expect(world.delivered()).toEqual([]);
      expect((await world.store.read.message("acc", next ?? ""))?.state).toMatchObject({ state: "held", line: "queue:x", dueAt: null });
    });

    test("lets those in line go on in the order in which they were accepted, whenever they came to stand in it", async () => {
      const world = await World.open(open);
      await world.account();
      const [running] = [await world.sent({ queue: "q" })];
      const early = await world.send({ queue: "q", delay: 5_000 });
      const late = await world.send({ queue: "q" });
      world.clock.now += 5_000;
      expect(await world.claim()).toEqual([]);
      await world.settle(running);
      const [next] = await world.claim();
      expect(next?.message.id).toBe(early);
      if (next) await world.settle(next);
      expect(idsOf(await world.claim())).toEqual([late]);
    });

    test("is a schedule, first the one that has waited longest, no more than are asked for", async () => {
      const world = await World.open(open);
      await world.account();
      const { body, ...letter } = letterTo();
      const make = (id: string, cron: string) => world.store.execute("createSchedule", { account: "acc", id, cron, letter, body });
      const minute = 60_000;
      world.clock.now = Math.ceil(world.clock.now / (3 * minute)) * 3 * minute;
      // In the order of their names the one that is due later comes first.
      await make("a", "*/3 * * * *");
      await make("b", "* * * * *");
      const dueAt = (Math.floor(world.clock.now / minute) + 1) * minute;
      expect(await world.store.nextDueAt()).toBe(dueAt);
      world.clock.now = dueAt + 4 * minute;
      await world.store.execute("claim", { limit: 10, schedules: 1 });
      expect(world.delivered().map(({ message }) => message.scheduleId)).toEqual(["b"]);
      expect((await world.claim()).map(({ message }) => message.scheduleId)).toEqual(["a"]);
      expect(await world.claim()).toEqual([]);
      const next = await world.store.read.setUp("schedules", "acc", "b");
      expect(next).toMatchObject({ dueAt: dueAt + 5 * minute, lastAt: dueAt + 4 * minute });
    });

    test("schedules fire in the order in which they came due", async () => {
      const world = await World.open(open);
      await world.account();
      const { body, ...letter } = letterTo();
      await world.store.execute("createSchedule", { account: "acc", id: "b", cron: "* * * * *", letter, body });
      world.clock.now += 60_000;
      await world.store.execute("createSchedule", { account: "acc", id: "a", cron: "* * * * *", letter, body });
      world.clock.now += 60_000;
      expect((await world.claim()).map(({ message }) => message.scheduleId)).toEqual(["b", "a"]);
    });

    test("is a schedule whose account has spent its budget: it passes over the time, and says why", async () => {
      const world = await World.open(open);
      await world.account();
      const { body, ...letter } = letterTo();
      await world.store.execute("createSchedule", { account: "acc", id: "a", cron: "* * * * *", letter, body });
      await world.store.execute("changeAccount", { account: "acc", change: { budget: 20 } });
      const { from: month } = monthOf(world.clock.now + 120_000);
      await world.store.execute("noteSpending", { account: "acc", dollars: 20, month });
      const read = () => world.store.read.setUp("schedules", "acc", "a");
      world.clock.now = Math.max((await read())?.dueAt ?? 0, month);
      expect(await world.claim()).toEqual([]);
      const passed = await read();
      expect(passed).toMatchObject({ lastAt: world.clock.now, lastMessages: [], passedOver: expect.stringContaining("budget: 20.00") });
      await world.store.execute("changeAccount", { account: "acc", change: { budget: 0 } });
      world.clock.now = passed?.dueAt ?? 0;
      expect(await world.claim()).toMatchObject([{ message: { scheduleId: "a" } }]);
      expect(await read()).not.toHaveProperty("passedOver");
    });

    test("is a key that nobody has used for an hour, which is forgotten then", async () => {
      const world = await World.open(open);
      await world.account();
      await world.settle(await world.sent(limited("k", { parallelism: 1 })));
      expect(await world.store.nextDueAt()).toBe(world.clock.now + spans.idleKey);
      world.clock.now += spans.idleKey;
      await world.claim();
      expect(await world.store.read.setUp("flows", "acc", "key:k")).toBeNull();
      expect(await world.store.nextDueAt()).toBeNull();
    });

    test("a key is not forgotten before its window has ended", async () => {
      const world = await World.open(open);
      await world.account();
      const period = 5 * spans.idleKey;
      const delivery = await world.sent(limited("k", { rate: 1, period }));
      const start = world.clock.now;
      await world.settle(delivery);
      world.clock.now = start + period - 1;
      await world.claim();
      await world.send(limited("k", { rate: 1, period }));
      expect([...world.delivered(), ...(await world.claim())]).toEqual([]);
      world.clock.now = start + period;
      expect(await world.claim()).toHaveLength(1);
    });
  });
}
