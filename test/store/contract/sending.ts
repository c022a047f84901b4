import { describe, expect, test } from "vitest";
import { backoff } from "../../../src/core/sending/retry.ts";
import { maxLost, spans } from "../../../src/core/values/limits.ts";
import { bytes, callbackTo, earliest, outcomeOf, TestClock, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

const held = ({ message, attempt }: { message: { account: string; id: string }; attempt: number }) => ({
  ...{ account: message.account, messageId: message.id, attempt },
});

/** Claiming what is due, and reporting what came of it. */
export function describeSending(open: OpenStore): void {
  describe("claim", () => {
    test("takes what is due, oldest first, as many as asked for, and says whether there may be more", async () => {
      const world = await World.open(open);
      await world.account();
      const { now } = world.clock;
      const [third, first, second] = [await world.send({ delay: 300 }), await world.send({ delay: 100 }), await world.send({ delay: 200 })];
      await world.send({ delay: 1_000 });
      expect(await world.claim()).toEqual([]);
      world.clock.now = now + 300;
      expect(await world.store.execute("claim", { limit: 2 })).toMatchObject({ more: true });
      expect(world.delivered().map(({ message }) => message.id)).toEqual([first, second]);
      expect(await world.store.execute("claim", { limit: 2 })).toMatchObject({ more: false });
      expect(world.delivered().map(({ message }) => message.id)).toEqual([third]);
      expect(await world.states(third)).toEqual(["CREATED", "ACTIVE"]);
    });

    test("sends a message again whose lease ran out, without a charge on its retries", async () => {
      const world = await World.open(open);
      await world.account();
      const delivery = await world.sent({ retries: 1 });
      world.clock.now += spans.lease - 1;
      expect(await world.claim()).toEqual([]);
      world.clock.now += 1;
      const [again] = await world.claim();
      expect(again).toMatchObject({ message: { id: delivery.message.id }, attempt: 1 });
      expect(await world.settle(delivery)).toEqual({ became: "late" });
      if (again) expect(await world.settle(again, { status: 500 })).toEqual({ became: "retry" });
      expect(await world.states(delivery.message.id)).toEqual(["CREATED", "ACTIVE", "ERROR", "RETRY", "ACTIVE", "ERROR", "RETRY"]);
    });

    test("gives a message up whose leases run out again and again", async () => {
      const world = await World.open(open);
      await world.account();
      await world.sent();
      for (let lost = 1; lost <= maxLost; lost++) {
        world.clock.now += spans.lease;
        expect(await world.claim()).toHaveLength(1);
      }
      world.clock.now += spans.lease;
      expect(await world.claim()).toEqual([]);
      const { entries } = await world.store.read.deadLetters({ account: "acc", filter: {}, order: "latestFirst", cursor: null, count: 10 });
      expect(entries).toMatchObject([{ letter: { status: null, retried: 0, error: expect.stringContaining("nod_a") } }]);
      expect(await world.store.nextDueAt()).toBeNull();
    });
  });

  describe("settle", () => {
    test("delivered: the message is finished", async () => {
      const world = await World.open(open);
      await world.account();
      const delivery = await world.sent();
      world.clock.now += 10;
      expect(await world.settle(delivery, { status: 204 })).toEqual({ became: "delivered" });
      const view = await world.store.read.message("acc", delivery.message.id);
      expect(view).toMatchObject({ state: null, finishedAt: world.clock.now });
      expect(await world.states(delivery.message.id)).toEqual(["CREATED", "ACTIVE", "DELIVERED"]);
      expect(await world.store.nextDueAt()).toBeNull();
    });

    test("retry: it is due again after the backoff, and its number tells the attempts", async () => {
      const world = await World.open(open);
      await world.account();
      const delivery = await world.sent();
      const { now } = world.clock;
      expect(await world.settle(delivery, { status: 503, error: null })).toEqual({ became: "retry" });
      expect(await world.store.nextDueAt()).toBe(now + backoff(1));
      world.clock.now = now + backoff(1);
      expect(await world.claim()).toMatchObject([{ attempt: 1, message: { id: delivery.message.id } }]);
      const { events } = await world.store.read.log({
        account: "acc",
        filter: { states: ["RETRY"] },
        order: "latestFirst",
        cursor: null,
        count: 9,
      });
      expect(events).toMatchObject([
        { row: { status: 503, nextDueAt: now + backoff(1), headers: [["X-From", "there"]], body: bytes("answer") } },
      ]);
    });

    test("failed: it goes to the dead letter queue with the last answer", async () => {
      const world = await World.open(open);
      await world.account();
      const { messageId, dlqId } = await world.die({ body: bytes("given") });
      const entry = await world.store.read.deadLetter("acc", dlqId);
      expect(entry).toMatchObject({
        letter: { messageId, status: 500, headers: [["X-From", "there"]], retried: 0, failureCallback: null },
      });
      expect(entry?.letter.body).toEqual(bytes("answer"));
      expect(entry?.envelope.body).toEqual(bytes("given"));
      expect(await world.states(messageId)).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
    });

    test("counts a report once, however often it comes, in one batch or in two", async () => {
      const world = await World.open(open);
      await world.account();
      const delivery = await world.sent();
      const report = outcomeOf(delivery, { status: 500 });
      const became = await Promise.all([world.store.execute("settle", report), world.store.execute("settle", report)]);
      expect(became).toEqual([{ became: "retry" }, { became: "late" }]);
      expect(await world.store.execute("settle", report)).toEqual({ became: "late" });
      expect(await world.states(delivery.message.id)).toEqual(["CREATED", "ACTIVE", "ERROR", "RETRY"]);
    });

    test("ends what was cancelled, once, and nothing follows from it", async () => {
      const world = await World.open(open);
      await world.account();
      const callback = callbackTo("https://callback.example/");
      const [first, second] = [await world.sent({ callback, retries: 0 }), await world.sent({ callback })];
      const messageIds = [first.message.id, second.message.id];
      await world.store.execute("cancel", { account: "acc", messageIds });
      expect(await world.settle(first, { status: 500 })).toEqual({ became: "cancelled" });
      expect(await world.settle(second)).toEqual({ became: "cancelled" });
      expect(await world.settle(first, { status: 500 })).toEqual({ became: "late" });
      expect(world.delivered()).toEqual([]);
      const { events } = await world.store.read.log(earliest({ filter: { messageIds, states: ["CANCELLED"] } }));
      expect(events.map(({ row }) => [row?.status, row?.messageId])).toEqual([
        [500, first.message.id],
        [200, second.message.id],
      ]);
      expect(await world.store.nextDueAt()).toBeNull();
    });

    test("is late for what was cancelled before it was sent, for an attempt that is not running, and for what was never there", async () => {
      const world = await World.open(open);
      await world.account();
      const delivery = await world.sent();
      expect(await world.store.execute("settle", outcomeOf({ ...delivery, attempt: 1 }))).toEqual({ became: "late" });
      await world.settle(delivery, { status: 500 });
      await world.store.execute("cancel", { account: "acc", messageIds: [delivery.message.id] });
      expect(await world.settle(delivery)).toEqual({ became: "late" });
      expect(await world.store.execute("settle", outcomeOf(delivery, { messageId: "msg_none" }))).toEqual({ became: "late" });
      expect(await world.store.execute("settle", outcomeOf(delivery, { account: "none" }))).toEqual({ became: "late" });
    });

    test("tells the callback of every attempt, and the failure callback of the end; the dead letter knows what became of it", async () => {
      const world = await World.open(open);
      await world.account();
      const callback = callbackTo("https://callback.example/");
      const failureCallback = callbackTo("https://failure.example/");
      const delivery = await world.sent({ retries: 0, callback, failureCallback });
      expect(await world.settle(delivery, { status: 500 })).toEqual({ became: "failed" });
      const [told, failure] = world.delivered();
      expect(told?.message).toMatchObject({ url: callback.url, tells: { kind: "callback", messageId: delivery.message.id, dlqId: null } });
      const dlqId = failure?.message.tells?.dlqId ?? "";
      expect(JSON.parse(Buffer.from(failure?.message.body ?? []).toString())).toMatchObject({
        dlqId,
        sourceMessageId: delivery.message.id,
        status: 500,
      });
      const infoOf = async () => (await world.store.read.deadLetter("acc", dlqId))?.letter.failureCallback;
      expect(await infoOf()).toEqual({ state: "CALLBACK_INPROGRESS" });
      if (failure) await world.settle(failure, { status: 201 });
      const answer = { responseStatus: 201, responseBody: "answer", responseHeaders: [["X-From", "there"]] };
      expect(await infoOf()).toEqual({ ...answer, state: "CALLBACK_SUCCESS" });
    });

    test("a failure callback that fails is told to its dead letter, and is one itself", async () => {
      const world = await World.open(open);
      await world.account();
      const { dlqId } = await world.die({ failureCallback: { ...callbackTo("https://failure.example/"), retries: 0 } });
      const [failure] = world.delivered();
      if (failure) await world.settle(failure, { status: null, error: "no route", body: new Uint8Array(0), headers: [] });
      const letter = (await world.store.read.deadLetter("acc", dlqId))?.letter;
      expect(letter?.failureCallback).toMatchObject({ state: "CALLBACK_FAIL" });
      const { entries } = await world.store.read.deadLetters({
        account: "acc",
        filter: {},
        order: "earliestFirst",
        cursor: null,
        count: 9,
      });
      expect(entries.map(({ letter }) => letter.error)).toEqual([null, "no route"]);
    });
  });

  describe("leases", () => {
    test("renew keeps a lease; what another holds, or nobody, is not renewed", async () => {
      const world = await World.open(open);
      await world.account();
      const delivery = await world.sent();
      const delayed = await world.send({ delay: 90_000 });
      world.clock.now += spans.lease - 1;
      const stranger = { account: "acc", messageId: delayed, attempt: 0 };
      expect(await world.store.execute("renew", { held: [held(delivery), { ...held(delivery), attempt: 1 }, stranger] })).toEqual({
        renewed: 1,
      });
      world.clock.now += spans.lease - 1;
      expect(await world.claim()).toEqual([]);
      expect(await world.settle(delivery)).toEqual({ became: "delivered" });
    });

    test("of what was cancelled are called off by the node that has them, at once or when it renews them", async () => {
      const clock = new TestClock();
      const world = await World.open(open, { clock });
      await world.account();
      const delivery = await world.sent();
      await world.store.execute("cancel", { account: "acc", messageIds: [delivery.message.id] });
      expect(world.calledOff.splice(0)).toEqual([held(delivery)]);
      clock.now += spans.lease - 1;
      expect(await world.store.execute("renew", { held: [held(delivery), { ...held(delivery), attempt: 1 }] })).toEqual({ renewed: 1 });
      expect(world.calledOff).toEqual([held(delivery)]);
      clock.now += spans.lease - 1;
      expect(await world.claim()).toEqual([]);
      expect(await world.store.execute("giveBack", { held: [held(delivery)] })).toEqual({ returned: 1 });
      expect(await world.claim()).toEqual([]);
      expect(await world.states(delivery.message.id)).toEqual(["CREATED", "ACTIVE", "CANCEL_REQUESTED", "CANCELLED"]);
    });

    test("give back makes a message due at once, and does not count as an attempt", async () => {
      const world = await World.open(open);
      await world.account();
      const delivery = await world.sent();
      expect(await world.store.execute("giveBack", { held: [held(delivery)] })).toEqual({ returned: 1 });
      expect(await world.settle(delivery)).toEqual({ became: "late" });
      expect(await world.claim()).toMatchObject([{ attempt: 0, message: { id: delivery.message.id } }]);
      expect(await world.store.execute("giveBack", { held: [{ ...held(delivery), attempt: 3 }] })).toEqual({ returned: 0 });
    });

    test("reclaim makes due what other nodes had leased, oldest lease first, and nothing of this node's", async () => {
      const world = await World.open(open);
      await world.account();
      await world.sent();
      expect(await world.store.execute("reclaim", { node: "nod_a", limit: 10 })).toEqual({ reclaimed: 0 });
      world.clock.now += 1;
      await world.sent();
      // As the next process would: it has another name.
      expect(await world.store.execute("reclaim", { node: "nod_b", limit: 1 })).toEqual({ reclaimed: 1 });
      expect(await world.claim()).toMatchObject([{ attempt: 1 }]);
    });
  });
}
