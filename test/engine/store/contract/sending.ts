import { describe, expect, test } from "vitest";
import { backoff } from "../../../../src/engine/core/sending/retry.ts";
import { maxLostAttempts, spans } from "../../../../src/engine/core/values/limits.ts";
import {
  bytes,
  makeCallback,
  makeOldestFirstQuery,
  makeOutcome,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

const toLeaseRefOf = ({
  message,
  attempt,
}: {
  message: { account: string; id: string };
  attempt: number;
}) => ({
  account: message.account,
  messageId: message.id,
  attempt,
});

/** Claiming due messages and settling their outcomes. */
export function describeSending(open: OpenStore): void {
  describe("claim", () => {
    test("leases due messages, oldest first, up to the limit, and reports if there are more", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { now } = fixture.clock;
      const third = await fixture.send({ delay: 300 });
      const first = await fixture.send({ delay: 100 });
      const second = await fixture.send({ delay: 200 });
      await fixture.send({ delay: 1_000 });
      expect(await fixture.claim()).toEqual([]);
      fixture.clock.now = now + 300;
      expect(await fixture.store.execute("claim", { limit: 2 })).toMatchObject({ more: true });
      expect(fixture.delivered().map(({ message }) => message.id)).toEqual([first, second]);
      expect(await fixture.store.execute("claim", { limit: 2 })).toMatchObject({ more: false });
      expect(fixture.delivered().map(({ message }) => message.id)).toEqual([third]);
      expect(await fixture.states(third)).toEqual(["CREATED", "ACTIVE"]);
    });

    test("sends a message again after its lease has expired, without using up a retry", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const delivery = await fixture.sent({ retries: 1 });
      fixture.clock.now += spans.lease - 1;
      expect(await fixture.claim()).toEqual([]);
      fixture.clock.now += 1;
      const [again] = await fixture.claim();
      expect(again).toMatchObject({ message: { id: delivery.message.id }, attempt: 1 });
      expect(await fixture.settle(delivery)).toEqual({ became: "late" });
      if (again) expect(await fixture.settle(again, { status: 500 })).toEqual({ became: "retry" });
      expect(await fixture.states(delivery.message.id)).toEqual([
        "CREATED",
        "ACTIVE",
        "ERROR",
        "RETRY",
        "ACTIVE",
        "ERROR",
        "RETRY",
      ]);
    });

    test("fails a message whose leases expire again and again", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.sent();
      for (let lost = 1; lost <= maxLostAttempts; lost++) {
        fixture.clock.now += spans.lease;
        expect(await fixture.claim()).toHaveLength(1);
      }
      fixture.clock.now += spans.lease;
      expect(await fixture.claim()).toEqual([]);
      const { entries } = await fixture.store.read.deadLetters({
        account: "acc",
        filter: {},
        order: "latestFirst",
        cursor: null,
        count: 10,
      });
      expect(entries).toMatchObject([
        { deadLetter: { status: null, retried: 0, error: expect.stringContaining("nod_a") } },
      ]);
      expect(await fixture.store.nextDueAt()).toBeNull();
    });
  });

  describe("settle", () => {
    test("finishes a delivered message", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const delivery = await fixture.sent();
      fixture.clock.now += 10;
      expect(await fixture.settle(delivery, { status: 204 })).toEqual({ became: "delivered" });
      const view = await fixture.store.read.message("acc", delivery.message.id);
      expect(view).toMatchObject({ state: null, finishedAt: fixture.clock.now });
      expect(await fixture.states(delivery.message.id)).toEqual(["CREATED", "ACTIVE", "DELIVERED"]);
      expect(await fixture.store.nextDueAt()).toBeNull();
    });

    test("keeps how long it took to open the connection, with and without other details", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const timing = { startedAt: 1, connect: 30, firstByte: 2_000, duration: 2_040 };
      const openings = [{ lookup: 4, tcp: 12, tls: 14 }, { tcp: 0 }];
      for (const [at, status] of [503, 200].entries()) {
        const opening = openings[at] ?? { tcp: -1 };
        const delivery = await fixture.sent();
        await fixture.settle(delivery, { status, headers: [], timing: { ...timing, opening } });
        const view = await fixture.store.read.message("acc", delivery.message.id);
        expect(view?.outcomes[0]?.attempt).toMatchObject({ ...timing, opening });
        expect(view?.outcomes[0]).not.toHaveProperty("opening");
      }
    });

    test("schedules a retry after the backoff and counts the attempts", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const delivery = await fixture.sent();
      const { now } = fixture.clock;
      expect(await fixture.settle(delivery, { status: 503, error: null })).toEqual({ became: "retry" });
      expect(await fixture.store.nextDueAt()).toBe(now + backoff(1));
      fixture.clock.now = now + backoff(1);
      expect(await fixture.claim()).toMatchObject([{ attempt: 1, message: { id: delivery.message.id } }]);
      const { events } = await fixture.store.read.log({
        account: "acc",
        filter: { states: ["RETRY"] },
        order: "latestFirst",
        cursor: null,
        count: 9,
      });
      expect(events).toMatchObject([
        {
          row: {
            status: 503,
            nextDueAt: now + backoff(1),
            headers: [["X-From", "there"]],
            body: bytes("answer"),
          },
        },
      ]);
    });

    test("moves a failed message to the dead letter queue with its last response", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { messageId, dlqId } = await fixture.publishFailing({ body: bytes("given") });
      const entry = await fixture.store.read.deadLetter("acc", dlqId);
      expect(entry).toMatchObject({
        deadLetter: {
          messageId,
          status: 500,
          headers: [["X-From", "there"]],
          retried: 0,
          failureCallback: null,
        },
      });
      expect(entry?.deadLetter.body).toEqual(bytes("answer"));
      expect(entry?.message.body).toEqual(bytes("given"));
      expect(await fixture.states(messageId)).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
    });

    test("counts an outcome once, even if it arrives several times, in one batch or in two", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const delivery = await fixture.sent();
      const report = makeOutcome(delivery, { status: 500 });
      const became = await Promise.all([
        fixture.store.execute("settle", report),
        fixture.store.execute("settle", report),
      ]);
      expect(became).toEqual([{ became: "retry" }, { became: "late" }]);
      expect(await fixture.store.execute("settle", report)).toEqual({ became: "late" });
      expect(await fixture.states(delivery.message.id)).toEqual(["CREATED", "ACTIVE", "ERROR", "RETRY"]);
    });

    test("finishes a cancelled message once, without consequences", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const callback = makeCallback("https://callback.example/");
      const first = await fixture.sent({ callback, retries: 0 });
      const second = await fixture.sent({ callback });
      const messageIds = [first.message.id, second.message.id];
      await fixture.store.execute("cancel", { account: "acc", messageIds });
      expect(await fixture.settle(first, { status: 500 })).toEqual({ became: "cancelled" });
      expect(await fixture.settle(second)).toEqual({ became: "cancelled" });
      expect(await fixture.settle(first, { status: 500 })).toEqual({ became: "late" });
      expect(fixture.delivered()).toEqual([]);
      const { events } = await fixture.store.read.log(
        makeOldestFirstQuery({ filter: { messageIds, states: ["CANCELLED"] } }),
      );
      expect(events.map(({ row }) => [row?.status, row?.messageId])).toEqual([
        [500, first.message.id],
        [200, second.message.id],
      ]);
      expect(await fixture.store.nextDueAt()).toBeNull();
    });

    test("is late for a cancelled message, an attempt that is not running, and an unknown id", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const delivery = await fixture.sent();
      expect(await fixture.store.execute("settle", makeOutcome({ ...delivery, attempt: 1 }))).toEqual({
        became: "late",
      });
      await fixture.settle(delivery, { status: 500 });
      await fixture.store.execute("cancel", { account: "acc", messageIds: [delivery.message.id] });
      expect(await fixture.settle(delivery)).toEqual({ became: "late" });
      expect(await fixture.store.execute("settle", makeOutcome(delivery, { messageId: "msg_none" }))).toEqual(
        { became: "late" },
      );
      expect(await fixture.store.execute("settle", makeOutcome(delivery, { account: "none" }))).toEqual({
        became: "late",
      });
    });

    test("calls back after each attempt and on failure; the dead letter has the result", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const callback = makeCallback("https://callback.example/");
      const failureCallback = makeCallback("https://failure.example/");
      const delivery = await fixture.sent({ retries: 0, callback, failureCallback });
      expect(await fixture.settle(delivery, { status: 500 })).toEqual({ became: "failed" });
      const [told, failure] = fixture.delivered();
      expect(told?.message).toMatchObject({
        url: callback.url,
        reportsOn: { kind: "callback", messageId: delivery.message.id, dlqId: null },
      });
      const dlqId = failure?.message.reportsOn?.dlqId ?? "";
      expect(JSON.parse(Buffer.from(failure?.message.body ?? []).toString())).toMatchObject({
        dlqId,
        sourceMessageId: delivery.message.id,
        status: 500,
      });
      const infoOf = async () =>
        (await fixture.store.read.deadLetter("acc", dlqId))?.deadLetter.failureCallback;
      expect(await infoOf()).toEqual({ state: "CALLBACK_INPROGRESS" });
      if (failure) await fixture.settle(failure, { status: 201 });
      const answer = { responseStatus: 201, responseBody: "answer", responseHeaders: [["X-From", "there"]] };
      expect(await infoOf()).toEqual({ ...answer, state: "CALLBACK_SUCCESS" });
    });

    test("records a failed failure callback in its dead letter and as a dead letter", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { dlqId } = await fixture.publishFailing({
        failureCallback: { ...makeCallback("https://failure.example/"), retries: 0 },
      });
      const [failure] = fixture.delivered();
      if (failure)
        await fixture.settle(failure, {
          status: null,
          error: "no route",
          body: new Uint8Array(0),
          headers: [],
        });
      const deadLetter = (await fixture.store.read.deadLetter("acc", dlqId))?.deadLetter;
      expect(deadLetter?.failureCallback).toMatchObject({ state: "CALLBACK_FAIL" });
      const { entries } = await fixture.store.read.deadLetters({
        account: "acc",
        filter: {},
        order: "earliestFirst",
        cursor: null,
        count: 9,
      });
      expect(entries.map(({ deadLetter }) => deadLetter.error)).toEqual([null, "no route"]);
    });
  });

  describe("leases", () => {
    test("are renewed only by the node that holds them", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const delivery = await fixture.sent();
      const delayed = await fixture.send({ delay: 90_000 });
      fixture.clock.now += spans.lease - 1;
      const unknownName = { account: "acc", messageId: delayed, attempt: 0 };
      expect(
        await fixture.store.execute("renew", {
          leases: [toLeaseRefOf(delivery), { ...toLeaseRefOf(delivery), attempt: 1 }, unknownName],
        }),
      ).toEqual({
        renewed: 1,
      });
      fixture.clock.now += spans.lease - 1;
      expect(await fixture.claim()).toEqual([]);
      expect(await fixture.settle(delivery)).toEqual({ became: "delivered" });
    });

    test("of cancelled messages are aborted by their node, at once or on the next renewal", async () => {
      const clock = new TestClock();
      const fixture = await StoreFixture.open(open, { clock });
      await fixture.account();
      const delivery = await fixture.sent();
      await fixture.store.execute("cancel", { account: "acc", messageIds: [delivery.message.id] });
      expect(fixture.calledOff.splice(0)).toEqual([toLeaseRefOf(delivery)]);
      clock.now += spans.lease - 1;
      expect(
        await fixture.store.execute("renew", {
          leases: [toLeaseRefOf(delivery), { ...toLeaseRefOf(delivery), attempt: 1 }],
        }),
      ).toEqual({ renewed: 1 });
      expect(fixture.calledOff).toEqual([toLeaseRefOf(delivery)]);
      clock.now += spans.lease - 1;
      expect(await fixture.claim()).toEqual([]);
      expect(await fixture.store.execute("returnLeases", { leases: [toLeaseRefOf(delivery)] })).toEqual({
        returned: 1,
      });
      expect(await fixture.claim()).toEqual([]);
      expect(await fixture.states(delivery.message.id)).toEqual([
        "CREATED",
        "ACTIVE",
        "CANCEL_REQUESTED",
        "CANCELLED",
      ]);
    });

    test("are returned, so that a message is due at once and no attempt is counted", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const delivery = await fixture.sent();
      expect(await fixture.store.execute("returnLeases", { leases: [toLeaseRefOf(delivery)] })).toEqual({
        returned: 1,
      });
      expect(await fixture.settle(delivery)).toEqual({ became: "late" });
      expect(await fixture.claim()).toMatchObject([{ attempt: 0, message: { id: delivery.message.id } }]);
      expect(
        await fixture.store.execute("returnLeases", { leases: [{ ...toLeaseRefOf(delivery), attempt: 3 }] }),
      ).toEqual({ returned: 0 });
    });

    test("of other nodes are reclaimed, oldest first, and not those of this node", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.sent();
      expect(await fixture.store.execute("reclaim", { node: "nod_a", limit: 10 })).toEqual({ reclaimed: 0 });
      fixture.clock.now += 1;
      await fixture.sent();
      // The next process has a different node id.
      expect(await fixture.store.execute("reclaim", { node: "nod_b", limit: 1 })).toEqual({ reclaimed: 1 });
      expect(await fixture.claim()).toMatchObject([{ attempt: 1 }]);
    });
  });
}
