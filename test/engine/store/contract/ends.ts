import { describe, expect, test } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import type { Filter } from "../../../../src/engine/core/search/filter.ts";
import { bytes, makeCallback, makeInput, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

const day = 24 * 3_600_000;

/** Cancellation, the dead letter queue, and accounts. */
export function describeEnds(open: OpenStore): void {
  describe("a cancellation", () => {
    test("ends waiting messages and messages in flight, once each", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { message } = await fixture.sent();
      const waiting = await fixture.send({ delay: 1_000 });
      const messageIds = [message.id, waiting, waiting, "msg_none"];
      expect(await fixture.store.execute("cancel", { account: "acc", messageIds })).toEqual({
        cancelled: 2,
        failed: [{ id: "msg_none", reason: "the message does not exist" }],
      });
      expect(await fixture.store.execute("cancel", { account: "acc", messageIds })).toEqual({
        cancelled: 0,
        failed: [
          { id: message.id, reason: "the message was already cancelled; its request is still running" },
          { id: waiting, reason: "the message has finished or was already cancelled" },
          { id: "msg_none", reason: "the message does not exist" },
        ],
      });
      expect(await fixture.states(message.id)).toEqual(["CREATED", "ACTIVE", "CANCEL_REQUESTED"]);
      expect(await fixture.states(waiting)).toEqual(["CREATED", "CANCEL_REQUESTED", "CANCELLED"]);
      expect((await fixture.store.read.message("acc", waiting))?.state).toBeNull();
      expect(await fixture.store.nextDueAt()).toBe(fixture.clock.now + spans.lease);
      fixture.clock.now += spans.lease;
      expect(await fixture.claim()).toEqual([]);
      expect(await fixture.states(message.id)).toEqual([
        "CREATED",
        "ACTIVE",
        "CANCEL_REQUESTED",
        "CANCELLED",
      ]);
      expect(await fixture.store.nextDueAt()).toBeNull();
    });

    test("of a message in flight leaves a row that is only counted by its gates", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const flowControl = { key: "k", parallelism: 1, rate: null, period: null };
      const { message } = await fixture.sent({ queue: "q", flowControl, labels: ["l"] });
      const next = await fixture.send({ queue: "q" });
      const other = await fixture.send({ flowControl });
      await fixture.store.execute("cancel", { account: "acc", messageIds: [message.id] });
      const { read } = fixture.store;
      expect(await read.message("acc", message.id)).toMatchObject({
        state: null,
        finishedAt: fixture.clock.now,
      });
      expect(await read.waitState("acc", message.id)).toBeNull();
      const listed = async (filter: Filter) =>
        (await read.unfinished({ account: "acc", filter, cursor: null, count: 9 })).messageIds;
      expect(await listed({})).toEqual([next, other]);
      expect([await listed({ labels: ["l"] }), await listed({ messageIds: [message.id, next] })]).toEqual([
        [],
        [next],
      ]);
      expect(await read.listQueueMessages({ account: "acc", queue: "q", limit: 9 })).toEqual([next]);
      expect(await read.countInFlight("acc", fixture.clock.now)).toBe(1);
      expect(await read.findResource("limiters", "acc", "key:k")).toMatchObject({ running: 1, waiting: 1 });
      const holders = [{ id: message.id, state: "cancelling" }];
      expect(await read.waitState("acc", next)).toMatchObject({
        slotHolders: [{ messageId: message.id, holders }],
        queue: { running: 1 },
      });
    });

    test("of a failure callback is recorded in the dead letter that it reports", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { dlqId } = await fixture.publishFailing({
        failureCallback: makeCallback("https://failure.example/"),
      });
      const [failure] = fixture.delivered();
      await fixture.store.execute("cancel", { account: "acc", messageIds: [failure?.message.id ?? ""] });
      expect((await fixture.store.read.deadLetter("acc", dlqId))?.deadLetter.failureCallback).toEqual({
        state: "CALLBACK_CANCELED",
      });
    });
  });

  describe("the dead letter queue", () => {
    test("retries a dead letter as a new message with overrides and removes the dead letter", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { messageId, dlqId } = await fixture.publishFailing({
        deduplication: "d",
        labels: ["l"],
        body: bytes("body"),
      });
      const input = {
        account: "acc",
        dlqIds: [dlqId, dlqId, "none"],
        logRetention: day,
        overrides: { retries: 7 },
      };
      const retried = await fixture.store.execute("retryDeadLetters", input);
      expect(retried).toEqual([{ dlqId, messageId: expect.stringMatching(/^msg_/) }]);
      const [delivery] = fixture.delivered();
      expect(delivery?.message).toMatchObject({
        id: retried[0]?.messageId,
        labels: ["l"],
        retries: 7,
        deduplication: null,
      });
      expect(delivery?.message.body).toEqual(bytes("body"));
      expect(delivery?.message.id).not.toBe(messageId);
      expect(await fixture.store.read.deadLetter("acc", dlqId)).toBeNull();
      expect(await fixture.store.execute("retryDeadLetters", input)).toEqual([]);
      // The log of the message and the stored message still exist.
      expect(await fixture.states(messageId)).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
    });

    test("replays a dead letter with changes, and both messages name each other", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { messageId, dlqId } = await fixture.publishFailing({ body: bytes("body") });
      const { messageId: replay } = await fixture.store.execute("replayDeadLetter", {
        account: "acc",
        dlqId,
        change: { url: "https://other.example/", headers: [["X-A", "1"]], body: bytes("changed") },
        overrides: { delay: 1_000 },
      });
      expect((await fixture.store.read.message("acc", replay))?.message).toMatchObject({
        url: "https://other.example/",
        headers: [["X-A", "1"]],
        body: bytes("changed"),
        replayOf: { messageId, dlqId },
      });
      expect((await fixture.store.read.deadLetter("acc", dlqId))?.deadLetter).toMatchObject({
        messageId,
        replays: [replay],
      });
    });

    test("deletes dead letters and counts those that existed", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const one = await fixture.publishFailing();
      const two = await fixture.publishFailing();
      const input = { account: "acc", dlqIds: [one.dlqId, one.dlqId, "none"], logRetention: day };
      expect(await fixture.store.execute("bulk", makeDeletion(input))).toEqual({
        done: 1,
        failures: [{ id: "none", reason: "the dead letter does not exist" }],
        results: [],
      });
      expect(await fixture.store.read.deadLetter("acc", one.dlqId)).toBeNull();
      expect(await fixture.store.read.deadLetter("acc", two.dlqId)).not.toBeNull();
      expect(await fixture.states(one.messageId)).toContain("FAILED");
    });

    test("is changed by bulk actions, which say what each entry became, or why it is unchanged", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const one = await fixture.publishFailing();
      const two = await fixture.publishFailing();
      const ask = (action: "dlq.retry" | "dlq.delete", ids: readonly string[]) =>
        fixture.store.execute("bulk", {
          ...{ account: "acc", action, logRetention: day },
          entries: ids.map((id) => ({ id })),
        });
      expect(await ask("dlq.retry", [one.dlqId, "none"])).toEqual({
        done: 1,
        failures: [{ id: "none", reason: "the dead letter does not exist any more" }],
        results: [{ id: one.dlqId, became: expect.stringMatching(/^msg_/) }],
      });
      expect(await ask("dlq.delete", [one.dlqId, two.dlqId])).toEqual({
        done: 1,
        failures: [{ id: one.dlqId, reason: "the dead letter does not exist" }],
        results: [],
      });
      expect(await fixture.store.read.deadLetter("acc", two.dlqId)).toBeNull();
    });

    test("deletes the stored message together with a dead letter whose log is gone", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const one = await fixture.publishFailing();
      fixture.clock.now += 1_000;
      const two = await fixture.publishFailing();
      const retention = { log: 500, deadLetters: 1e9 };
      await fixture.store.execute("expire", {
        account: "acc",
        retention,
        now: fixture.clock.now,
        limit: 100,
      });
      await fixture.store.execute(
        "bulk",
        makeDeletion({
          account: "acc",
          dlqIds: [one.dlqId, two.dlqId],
          logRetention: 500,
        }),
      );
      expect(await fixture.store.read.message("acc", one.messageId)).toBeNull();
      expect(await fixture.store.read.message("acc", two.messageId)).not.toBeNull();
    });
  });

  describe("accounts", () => {
    test("are created once and found by their token", async () => {
      const fixture = await StoreFixture.open(open);
      const account = await fixture.account();
      expect(account.createdAt).toBe(fixture.clock.now);
      fixture.clock.now += 1;
      expect(await fixture.account()).toEqual(account);
      const second = await fixture.account("b");
      expect(await fixture.store.read.accounts()).toEqual([account, second]);
      expect(await fixture.store.read.account("b")).toEqual(second);
      expect(await fixture.store.read.account("none")).toBeNull();
      expect(await fixture.store.read.accountByToken("hash-acc")).toEqual(account);
      expect(await fixture.store.read.accountByToken("hash-none")).toBeNull();
    });

    test("make the next signing key current on rotation, in one batch as in two", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const rotate = () => fixture.store.execute("rotateKeys", { account: "acc", force: true });
      const [first, second] = await Promise.all([rotate(), rotate()]);
      expect(first).toEqual({ current: "sig_acc_2", next: expect.stringMatching(/^sig_/) });
      expect(second.current).toBe(first.next);
      expect((await fixture.store.read.account("acc"))?.signingKeys).toEqual(second);
      expect((await fixture.sent()).signingKey).toBe(second.current);
      await expect(fixture.store.execute("rotateKeys", { account: "none" })).rejects.toMatchObject({
        code: "unauthorized",
      });
    });

    test("refuse a second key rotation within a day unless forced, in one batch as in two", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const rotate = (force?: true) =>
        fixture.store.execute("rotateKeys", { account: "acc", ...(force && { force }) });
      const made = fixture.clock.now;
      const [first, refused] = await Promise.allSettled([rotate(), rotate()]);
      expect([first, refused]).toMatchObject([
        { value: { current: "sig_acc_2" } },
        { reason: { code: "conflict" } },
      ]);
      fixture.clock.now = made + 24 * 60 * 60 * 1000 - 1;
      await expect(rotate()).rejects.toMatchObject({ code: "conflict" });
      const before = await fixture.store.read.account("acc");
      expect(before).toMatchObject({
        signingKeys: { current: "sig_acc_2" },
        lastRotation: { at: made, key: "sig_acc_1" },
      });
      fixture.clock.now++;
      const third = await rotate();
      expect(third.current).toBe(before?.signingKeys.next);
      expect((await rotate(true)).current).toBe(third.next);
    });

    test("that use Standard Webhooks sign with both keys for a day after a rotation", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      expect(await fixture.sent()).not.toHaveProperty("standardKeys");
      await fixture.store.execute("changeAccount", { account: "acc", change: { signsStandard: true } });
      expect((await fixture.sent()).standardKeys).toEqual(["sig_acc_1"]);
      await fixture.store.execute("rotateKeys", { account: "acc" });
      fixture.clock.now += 24 * 60 * 60 * 1000 - 1;
      expect((await fixture.sent()).standardKeys).toEqual(["sig_acc_2", "sig_acc_1"]);
      fixture.clock.now++;
      expect((await fixture.sent()).standardKeys).toEqual(["sig_acc_2"]);
    });

    test("stay separate although their rows have the same ids", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account("a");
      await fixture.account("b");
      const mine = await fixture.send({ deduplication: "d", delay: 1_000 }, "a");
      const [theirs] = await fixture.publish([makeInput({ deduplication: "d", delay: 1_000 })], "b");
      expect(theirs).toMatchObject({ deduplicated: false });
      expect(await fixture.store.read.message("b", mine)).toBeNull();
      expect(await fixture.store.execute("cancel", { account: "b", messageIds: [mine] })).toEqual({
        cancelled: 0,
        failed: [{ id: mine, reason: "the message does not exist" }],
      });
      const dead = await fixture.publishFailing({}, "a");
      const dlqIds = [dead.dlqId];
      expect(
        await fixture.store.execute("bulk", makeDeletion({ account: "b", dlqIds, logRetention: 0 })),
      ).toEqual({
        done: 0,
        failures: [{ id: dead.dlqId, reason: "the dead letter does not exist" }],
        results: [],
      });
      expect(
        await fixture.store.execute("retryDeadLetters", {
          account: "b",
          dlqIds,
          logRetention: 0,
          overrides: {},
        }),
      ).toEqual([]);
      expect(await fixture.store.read.deadLetter("b", dead.dlqId)).toBeNull();
      expect(await fixture.states(dead.messageId, "b")).toEqual([]);
      const query = { account: "b", filter: {}, order: "latestFirst", cursor: null, count: 100 } as const;
      expect((await fixture.store.read.log(query)).events).toHaveLength(1);
      expect((await fixture.store.read.deadLetters(query)).entries).toEqual([]);
      expect((await fixture.store.read.unfinished(query)).messageIds).toEqual(
        theirs && "messageId" in theirs ? [theirs.messageId] : [],
      );
    });
  });
}
