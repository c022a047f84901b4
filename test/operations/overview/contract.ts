import { describe, expect, test } from "vitest";
import { minute } from "../../../src/engine/core/values/time.ts";
import { makeScheduleInput } from "../../engine/core/commands/scheduleInput.ts";
import {
  bytes,
  makeAccount,
  makeInput,
  makeLogQuery,
  StoreFixture,
} from "../../engine/store/storeFixture.ts";
import type { OpenStore } from "../../engine/store/storeFixture.ts";
import { makeRunStart, makeRunStep } from "../../engine/store/contract/runs.ts";

const none = { count: 0, more: false };
const one = { count: 1, more: false };

/** The situation of an account, and its hosts. */
export function describeSituation(open: OpenStore): void {
  describe("the situation of an account", () => {
    test("has zeros for an account without activity", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const situation = await fixture.store.read.situation("acc", fixture.clock.now);
      expect(situation).toMatchObject({
        unfinished: none,
        states: { pending: none, retrying: none, held: none, paused: none },
        nextDueAt: null,
        deadLetters: 0,
        pausedGates: [],
        pausedSchedules: [],
        pausedSources: [],
        activeRuns: none,
        failedRuns: none,
        hosts: [],
      });
      expect(situation.minutes).toHaveLength(15);
      expect(situation.held.queue).toEqual({ ...none, oldestAt: null, largest: [] });
      expect(await fixture.store.read.hosts("acc")).toEqual([]);
    });

    test("counts what has ended and is still listed, up to a bound", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { clock, store } = fixture;
      const logFrom = clock.now;
      const counted = (count: number, more = false) => ({ count, more });
      const zero = { delivered: none, failed: none, cancelled: none };
      expect(await store.read.ended("acc", logFrom)).toEqual({
        messages: zero,
        runs: { succeeded: none, cancelled: none },
      });
      for (let at = 0; at < 2; at++) await fixture.settle(await fixture.sent());
      await fixture.publishFailing({ url: "https://bad.example/" });
      const messageId = await fixture.send({ delay: minute });
      await store.execute("cancel", { account: "acc", messageIds: [messageId] });
      expect((await store.read.ended("acc", logFrom)).messages).toEqual({
        delivered: counted(2),
        failed: counted(1),
        cancelled: counted(1),
      });
      expect((await store.read.ended("other", logFrom)).messages).toEqual(zero);
      // The entries of delivered messages have expired.
      expect((await store.read.ended("acc", clock.now + 4 * 60 * minute)).messages.delivered).toEqual(none);
    });

    test("shows since when the oldest message that waits at a gate was due", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { clock, store } = fixture;
      const start = clock.now;
      const readSince = async () =>
        Object.fromEntries(
          (await store.read.conditionFacts("acc", fixture.clock.now)).gates.map(({ gate, dueAt }) => [
            gate.name,
            dueAt,
          ]),
        );
      const retried = await fixture.sent({
        flowControl: { key: "k", parallelism: 1, rate: null, period: null },
      });
      await fixture.settle(retried, { status: 500 });
      const log = await store.read.log(makeLogQuery({ filter: { messageIds: [retried.message.id] } }));
      const retryAt = log.events.find(({ state }) => state === "RETRY")?.row?.nextDueAt ?? 0;
      for (const id of ["queue:q", "key:k"]) await store.execute("pauseLimiter", { account: "acc", id });
      await fixture.send({ queue: "q", delay: 10 * minute });
      expect(await readSince()).toEqual({ k: null, q: null });
      clock.now = Math.max(retryAt, start + 10 * minute) + minute;
      await fixture.claim();
      expect(await readSince()).toEqual({ k: retryAt, q: start + 10 * minute });
    });

    test("has the facts of its conditions, of the own account alone, with who paused what", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { store } = fixture;
      await store.execute("createAccount", makeAccount("other"));
      const start = fixture.clock.now;
      for (const account of ["acc", "other"]) await store.execute("pauseLimiter", { account, id: "queue:q" });
      fixture.clock.now += 1_000;
      await fixture.send({ queue: "q" });
      await fixture.send({ queue: "q" });
      const facts = await store.read.conditionFacts("acc", fixture.clock.now);
      expect(facts).toMatchObject({
        gates: [
          {
            gate: { kind: "queue", name: "q" },
            limiter: { paused: true },
            held: { count: 2, more: false },
            dueAt: start + 1_000,
          },
        ],
        schedules: [],
      });
      expect((await store.read.conditionFacts("other", fixture.clock.now)).gates).toMatchObject([
        { gate: { kind: "queue", name: "q" }, held: { count: 0, more: false }, dueAt: null },
      ]);
    });

    test("has the time at which a message of a queue was last accepted", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { clock, store } = fixture;
      await fixture.settle(await fixture.sent({ queue: "q" }));
      const acceptedAt = clock.now;
      clock.now += minute;
      await fixture.send({ queue: "q" });
      await fixture.send({ queue: "q" });
      await fixture.claim();
      const read = async () =>
        (await store.read.conditionFacts("acc", fixture.clock.now)).gates.map(({ passedAt }) => passedAt);
      expect(await read()).toEqual([acceptedAt]);
      fixture.delivered();
      // The newest part of the log has only entries of others.
      fixture.capacity = { total: 2_000, perHost: 2_000 };
      for (let part = 0; part < 2; part++) {
        await fixture.publish(Array.from({ length: 600 }, () => makeInput()));
        await Promise.all(fixture.delivered().map((delivery) => fixture.settle(delivery)));
      }
      expect(
        (await store.read.conditionFacts("acc", fixture.clock.now)).log.flatMap(({ tags }) => tags),
      ).toEqual([]);
      expect(await read()).toEqual([acceptedAt]);
    });

    test("counts what was published for a key that moves, and what was sent, in each minute", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { clock, store } = fixture;
      const flowControl = { key: "k", parallelism: 1, rate: null, period: null };
      const readFlow = async () =>
        (await store.read.conditionFacts("acc", clock.now)).gates.map(({ flow }) => flow);
      await fixture.publish(Array.from({ length: 9 }, () => makeInput({ flowControl })));
      let sent = await fixture.claim();
      const sendOne = async () => {
        for (const delivery of sent) await fixture.settle(delivery);
        sent = await fixture.claim();
        clock.now += minute;
      };
      for (let times = 0; times < 3; times++) await sendOne();
      expect(await readFlow()).toEqual([null]);
      for (let ago = 2; ago >= 0; ago--) {
        await fixture.publish(Array.from({ length: ago + 2 }, () => makeInput({ flowControl })));
        await sendOne();
      }
      expect(await readFlow()).toEqual([
        [
          { published: 2, ended: 1 },
          { published: 3, ended: 1 },
          { published: 4, ended: 1 },
        ],
      ]);
    });

    test("has the runs that take longer than usual", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { clock, store } = fixture;
      for (let at = 0; at < 5; at++) {
        await fixture.publish([makeRunStart(`wfr_${at}`)]);
        await store.execute("finishRun", { account: "acc", runId: `wfr_${at}`, body: bytes("") });
      }
      await fixture.publish([makeRunStart("wfr_slow")]);
      const since = clock.now;
      const read = async () => (await store.read.conditionFacts("acc", clock.now)).slowRuns;
      expect(await read()).toEqual([]);
      clock.now += 10 * minute;
      expect(await read()).toMatchObject([{ count: 1, since, usual: 0 }]);
    });

    test("has schedules after the first thousand that are paused", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { clock, store } = fixture;
      for (let at = 0; at < 1_000; at += 100)
        await Promise.all(
          Array.from({ length: 100 }, (_, more) =>
            store.execute(
              "createSchedule",
              makeScheduleInput({ account: "acc", id: `a${String(at + more).padStart(4, "0")}` }),
            ),
          ),
        );
      for (const id of ["z-failed", "z-late", "z-paused", "z-quiet"])
        await store.execute("createSchedule", makeScheduleInput({ account: "acc", id }));
      await store.execute("pauseSchedule", { account: "acc", id: "z-paused" });
      const { schedules } = await store.read.conditionFacts("acc", clock.now);
      expect(schedules).toHaveLength(1_001);
      expect(schedules.at(-1)).toMatchObject({ id: "z-paused", paused: true });
    });

    test("has every gate, although the first one holds more messages than one read counts", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      for (const name of ["aaa", "zzz"])
        await fixture.store.execute("pauseLimiter", { account: "acc", id: `queue:${name}` });
      for (let part = 0; part < 2; part++)
        await fixture.publish(Array.from({ length: 600 }, () => makeInput({ queue: "aaa" })));
      await fixture.send({ queue: "zzz" });
      const { gates } = await fixture.store.read.conditionFacts("acc", fixture.clock.now);
      expect(
        Object.fromEntries(gates.map(({ gate, held, dueAt }) => [gate.name, [held.count, dueAt]])),
      ).toEqual({
        aaa: [1_200, fixture.clock.now],
        zzz: [1, fixture.clock.now],
      });
    });

    test("counts a delivery that a step settled as an attempt that has not failed", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.publish([makeRunStart("wfr_1")]);
      const [first] = fixture.delivered();
      fixture.clock.now += 5;
      await fixture.publish([makeRunStep("wfr_1", 1)]);
      const attempts = { attempts: 1, failures: 0, p50: null, p95: null, lastFailure: null };
      const { host } = new URL(first?.message.url ?? "");
      expect(await fixture.store.read.hosts("acc")).toMatchObject([{ host, attempts }]);
    });

    test("counts messages by the state in which lists show them, of due ones only the first", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { store } = fixture;
      const key = { key: "k", parallelism: 1, rate: null, period: null };
      await fixture.settle(await fixture.sent({ queue: "q" }), { status: 500 });
      await fixture.settle(await fixture.sent(), { status: 500 });
      await fixture.sent({ flowControl: key });
      await fixture.send({ flowControl: key });
      await fixture.claim();
      const read = async () => (await store.read.situation("acc", fixture.clock.now)).states;
      expect(await read()).toEqual({
        pending: none,
        retrying: { count: 2, more: false },
        held: one,
        paused: none,
      });
      // A message that waits for its retry holds the slot of its queue.
      await store.execute("pauseLimiter", { account: "acc", id: "queue:q" });
      await store.execute("pauseLimiter", { account: "acc", id: "key:k" });
      expect(await read()).toEqual({
        pending: none,
        retrying: one,
        held: none,
        paused: { count: 2, more: false },
      });
      await fixture.publish(Array.from({ length: 1_000 }, () => makeInput({ delay: minute })));
      const many = await read();
      expect(many.pending).toMatchObject({ more: true });
      expect(many.pending.count + many.retrying.count).toBe(999);
      expect(many.held).toEqual(none);
    });

    test("counts messages by gate, outcomes by minute, and names what is paused", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.store.execute("createAccount", makeAccount("other"));
      const start = fixture.clock.now;
      await fixture.store.execute("pauseLimiter", { account: "acc", id: "queue:q" });
      await fixture.store.execute("pauseLimiter", { account: "acc", id: "key:k" });
      await fixture.store.execute("pauseLimiter", { account: "other", id: "key:theirs" });
      await fixture.send({ queue: "q" });
      fixture.clock.now += 1_000;
      await fixture.send({ queue: "q" });
      await fixture.send({ flowControl: { key: "k", parallelism: 1, rate: null, period: null } });
      await fixture.send({ delay: 60_000 });
      await fixture.send({ delay: 30_000 }, "other");
      await fixture.publishFailing({ url: "https://bad.example/" });
      await fixture.settle(await fixture.sent());
      const running = await fixture.sent();
      fixture.capacity = { total: 0, perHost: 0 };
      await fixture.send({ url: "https://full.example/" });
      await fixture.claim();
      const situation = await fixture.store.read.situation("acc", fixture.clock.now);
      expect(situation).toMatchObject({
        unfinished: { count: 6, more: false },
        states: { pending: one, retrying: none, held: one, paused: { count: 3, more: false } },
        nextDueAt: start + 61_000,
        deadLetters: 1,
        activeRuns: none,
        failedRuns: none,
        held: {
          queue: {
            ...{ count: 2, more: false, oldestAt: start },
            largest: [{ name: "q", count: 2, isPaused: true }],
          },
          key: {
            ...{ count: 1, more: false, oldestAt: start + 1_000 },
            largest: [{ name: "k", count: 1, isPaused: true }],
          },
          endpoint: { count: 0 },
          account: { count: 0 },
          capacity: { count: 1, oldestAt: start + 1_000 },
        },
      });
      expect([...situation.pausedGates].sort()).toEqual(["key:k", "queue:q"]);
      const sum = (name: "delivered" | "failed"): number =>
        situation.minutes.reduce((total, { counts }) => total + counts[name], 0);
      expect([sum("delivered"), sum("failed")]).toEqual([1, 1]);
      const failed = { host: "bad.example", attempts: 1, failures: 1, p50: 7, p95: 7 };
      expect(situation.hosts).toMatchObject([failed, { host: "one.example", attempts: 1, failures: 0 }]);
      expect(await fixture.store.read.hosts("acc")).toMatchObject([
        { host: "bad.example", inFlight: 0, waiting: 0, attempts: { lastFailure: { status: 500 } } },
        { host: "one.example", inFlight: 1, waiting: 0, attempts: { failures: 0 } },
        { host: "full.example", inFlight: 0, waiting: 1, attempts: null },
      ]);
      await fixture.settle(running);
      expect((await fixture.store.read.situation("other", fixture.clock.now)).unfinished.count).toBe(1);
      expect(await fixture.store.read.hosts("other")).toEqual([]);
    });
  });
}
