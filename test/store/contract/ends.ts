import { describe, expect, test } from "vitest";
import { spans } from "../../../src/core/values/limits.ts";
import type { Filter } from "../../../src/core/search/filter.ts";
import { bytes, callbackTo, letterTo, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

const day = 24 * 3_600_000;

/** Cancelling, the dead letter queue, accounts. */
export function describeEnds(open: OpenStore): void {
  describe("cancel", () => {
    test("takes back what waits and what is being sent, once each", async () => {
      const world = await World.open(open);
      await world.account();
      const { message } = await world.sent();
      const waiting = await world.send({ delay: 1_000 });
      const messageIds = [message.id, waiting, waiting, "msg_none"];
      expect(await world.store.execute("cancel", { account: "acc", messageIds })).toEqual({
        cancelled: 2,
        failed: [{ id: "msg_none", reason: "there is no such message" }],
      });
      expect(await world.store.execute("cancel", { account: "acc", messageIds })).toEqual({
        cancelled: 0,
        failed: [
          { id: message.id, reason: "the message was cancelled before, and its request has not ended" },
          { id: waiting, reason: "the message is finished, or was cancelled before" },
          { id: "msg_none", reason: "there is no such message" },
        ],
      });
      expect(await world.states(message.id)).toEqual(["CREATED", "ACTIVE", "CANCEL_REQUESTED"]);
      expect(await world.states(waiting)).toEqual(["CREATED", "CANCEL_REQUESTED", "CANCELLED"]);
      expect((await world.store.read.message("acc", waiting))?.state).toBeNull();
      expect(await world.store.nextDueAt()).toBe(world.clock.now + spans.lease);
      world.clock.now += spans.lease;
      expect(await world.claim()).toEqual([]);
      expect(await world.states(message.id)).toEqual(["CREATED", "ACTIVE", "CANCEL_REQUESTED", "CANCELLED"]);
      expect(await world.store.nextDueAt()).toBeNull();
    });

    test("of what is being sent leaves a row that only its places are counted by", async () => {
      const world = await World.open(open);
      await world.account();
      const flowControl = { key: "k", parallelism: 1, rate: null, period: null };
      const { message } = await world.sent({ queue: "q", flowControl, labels: ["l"] });
      const next = await world.send({ queue: "q" });
      const other = await world.send({ flowControl });
      await world.store.execute("cancel", { account: "acc", messageIds: [message.id] });
      const { read } = world.store;
      expect(await read.message("acc", message.id)).toMatchObject({ state: null, finishedAt: world.clock.now });
      expect(await read.standing("acc", message.id)).toBeNull();
      const listed = async (filter: Filter) => (await read.unfinished({ account: "acc", filter, cursor: null, count: 9 })).messageIds;
      expect(await listed({})).toEqual([next, other]);
      expect([await listed({ labels: ["l"] }), await listed({ messageIds: [message.id, next] })]).toEqual([[], [next]]);
      expect(await read.messagesOfQueue({ account: "acc", queue: "q", limit: 9 })).toEqual([next]);
      expect(await read.underWay("acc", world.clock.now)).toBe(1);
      expect(await read.setUp("flows", "acc", "key:k")).toMatchObject({ running: 1, waiting: 1 });
      const holders = [{ id: message.id, state: "cancelling" }];
      expect(await read.standing("acc", next)).toMatchObject({ places: [{ messageId: message.id, holders }], queue: { running: 1 } });
    });

    test("of a failure callback is told to the dead letter it tells of", async () => {
      const world = await World.open(open);
      await world.account();
      const { dlqId } = await world.die({ failureCallback: callbackTo("https://failure.example/") });
      const [failure] = world.delivered();
      await world.store.execute("cancel", { account: "acc", messageIds: [failure?.message.id ?? ""] });
      expect((await world.store.read.deadLetter("acc", dlqId))?.letter.failureCallback).toEqual({ state: "CALLBACK_CANCELED" });
    });
  });

  describe("the dead letter queue", () => {
    test("a retry makes a new message of the old one, with what it sets anew, and takes the letter out", async () => {
      const world = await World.open(open);
      await world.account();
      const { messageId, dlqId } = await world.die({ deduplication: "d", labels: ["l"], body: bytes("body") });
      const input = { account: "acc", dlqIds: [dlqId, dlqId, "none"], logRetention: day, overrides: { retries: 7 } };
      const retried = await world.store.execute("retryDeadLetters", input);
      expect(retried).toEqual([{ dlqId, messageId: expect.stringMatching(/^msg_/) }]);
      const [delivery] = world.delivered();
      expect(delivery?.message).toMatchObject({ id: retried[0]?.messageId, labels: ["l"], retries: 7, deduplication: null });
      expect(delivery?.message.body).toEqual(bytes("body"));
      expect(delivery?.message.id).not.toBe(messageId);
      expect(await world.store.read.deadLetter("acc", dlqId)).toBeNull();
      expect(await world.store.execute("retryDeadLetters", input)).toEqual([]);
      // Its log is still there, and so is what it tells of.
      expect(await world.states(messageId)).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
    });

    test("deleting takes letters out, and counts those that were there", async () => {
      const world = await World.open(open);
      await world.account();
      const [one, two] = [await world.die(), await world.die()];
      const input = { account: "acc", dlqIds: [one.dlqId, one.dlqId, "none"], logRetention: day };
      expect(await world.store.execute("deleteDeadLetters", input)).toEqual({
        deleted: 1,
        failed: [{ id: "none", reason: "there is no such dead letter" }],
      });
      expect(await world.store.read.deadLetter("acc", one.dlqId)).toBeNull();
      expect(await world.store.read.deadLetter("acc", two.dlqId)).not.toBeNull();
      expect(await world.states(one.messageId)).toContain("FAILED");
    });

    test("a letter whose log is gone takes its envelope along", async () => {
      const world = await World.open(open);
      await world.account();
      const one = await world.die();
      world.clock.now += 1_000;
      const two = await world.die();
      const retention = { log: 500, deadLetters: 1e9 };
      await world.store.execute("expire", { account: "acc", retention, now: world.clock.now, limit: 100 });
      await world.store.execute("deleteDeadLetters", { account: "acc", dlqIds: [one.dlqId, two.dlqId], logRetention: 500 });
      expect(await world.store.read.message("acc", one.messageId)).toBeNull();
      expect(await world.store.read.message("acc", two.messageId)).not.toBeNull();
    });
  });

  describe("accounts", () => {
    test("are made once, and found by their token", async () => {
      const world = await World.open(open);
      const account = await world.account();
      expect(account.createdAt).toBe(world.clock.now);
      world.clock.now += 1;
      expect(await world.account()).toEqual(account);
      const second = await world.account("b");
      expect(await world.store.read.accounts()).toEqual([account, second]);
      expect(await world.store.read.account("b")).toEqual(second);
      expect(await world.store.read.account("none")).toBeNull();
      expect(await world.store.read.accountByToken("hash-acc")).toEqual(account);
      expect(await world.store.read.accountByToken("hash-none")).toBeNull();
    });

    test("rotating keys: next becomes current, in one batch as in two", async () => {
      const world = await World.open(open);
      await world.account();
      const rotate = () => world.store.execute("rotateKeys", { account: "acc", force: true });
      const [first, second] = await Promise.all([rotate(), rotate()]);
      expect(first).toEqual({ current: "sig_acc_2", next: expect.stringMatching(/^sig_/) });
      expect(second.current).toBe(first.next);
      expect((await world.store.read.account("acc"))?.signingKeys).toEqual(second);
      expect((await world.sent()).signingKey).toBe(second.current);
      await expect(world.store.execute("rotateKeys", { account: "none" })).rejects.toMatchObject({ code: "unauthorized" });
    });

    test("rotating keys a second time within a day is refused unless it is forced, in one batch as in two", async () => {
      const world = await World.open(open);
      await world.account();
      const rotate = (force?: true) => world.store.execute("rotateKeys", { account: "acc", ...(force && { force }) });
      const made = world.clock.now;
      const [first, refused] = await Promise.allSettled([rotate(), rotate()]);
      expect([first, refused]).toMatchObject([{ value: { current: "sig_acc_2" } }, { reason: { code: "conflict" } }]);
      world.clock.now = made + 24 * 60 * 60 * 1000 - 1;
      await expect(rotate()).rejects.toMatchObject({ code: "conflict" });
      const before = await world.store.read.account("acc");
      expect(before).toMatchObject({ signingKeys: { current: "sig_acc_2" }, lastRotation: { at: made, key: "sig_acc_1" } });
      world.clock.now++;
      const third = await rotate();
      expect(third.current).toBe(before?.signingKeys.next);
      expect((await rotate(true)).current).toBe(third.next);
    });

    test("that sign by Standard Webhooks hand over the keys for it: for a day after a rotation both", async () => {
      const world = await World.open(open);
      await world.account();
      expect(await world.sent()).not.toHaveProperty("standardKeys");
      await world.store.execute("changeAccount", { account: "acc", change: { signsStandard: true } });
      expect((await world.sent()).standardKeys).toEqual(["sig_acc_1"]);
      await world.store.execute("rotateKeys", { account: "acc" });
      world.clock.now += 24 * 60 * 60 * 1000 - 1;
      expect((await world.sent()).standardKeys).toEqual(["sig_acc_2", "sig_acc_1"]);
      world.clock.now++;
      expect((await world.sent()).standardKeys).toEqual(["sig_acc_2"]);
    });

    test("never meet, though their ids are the same", async () => {
      const world = await World.open(open);
      await world.account("a");
      await world.account("b");
      const mine = await world.send({ deduplication: "d", delay: 1_000 }, "a");
      const [theirs] = await world.publish([letterTo({ deduplication: "d", delay: 1_000 })], "b");
      expect(theirs).toMatchObject({ deduplicated: false });
      expect(await world.store.read.message("b", mine)).toBeNull();
      expect(await world.store.execute("cancel", { account: "b", messageIds: [mine] })).toEqual({
        cancelled: 0,
        failed: [{ id: mine, reason: "there is no such message" }],
      });
      const dead = await world.die({}, "a");
      const dlqIds = [dead.dlqId];
      expect(await world.store.execute("deleteDeadLetters", { account: "b", dlqIds, logRetention: 0 })).toEqual({
        deleted: 0,
        failed: [{ id: dead.dlqId, reason: "there is no such dead letter" }],
      });
      expect(await world.store.execute("retryDeadLetters", { account: "b", dlqIds, logRetention: 0, overrides: {} })).toEqual([]);
      expect(await world.store.read.deadLetter("b", dead.dlqId)).toBeNull();
      expect(await world.states(dead.messageId, "b")).toEqual([]);
      const query = { account: "b", filter: {}, order: "latestFirst", cursor: null, count: 100 } as const;
      expect((await world.store.read.log(query)).events).toHaveLength(1);
      expect((await world.store.read.deadLetters(query)).entries).toEqual([]);
      expect((await world.store.read.unfinished(query)).messageIds).toEqual(theirs && "messageId" in theirs ? [theirs.messageId] : []);
    });
  });
}
