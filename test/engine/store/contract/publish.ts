import { describe, expect, test } from "vitest";
import { limits, spans } from "../../../../src/engine/core/values/limits.ts";
import { bytes, makeCallback, makeInput, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

/** Publishing messages. */
export function describePublish(open: OpenStore): void {
  describe("publish", () => {
    test("stores a message as it was accepted and delivers it at once if there is capacity", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const headers = [
        ["X-Twice", "1"],
        ["X-Twice", "2"],
        ["X-Odd", "\u00fc \u{1f600} \\ \" '"],
      ] as const;
      const { message, attempt, signingKey } = await fixture.sent({
        headers,
        body: bytes("\0\u00ff{}"),
        labels: ["a", "b"],
        retries: null,
      });
      expect(attempt).toBe(0);
      expect(signingKey).toBe("sig_acc_1");
      const view = await fixture.store.read.message("acc", message.id);
      expect(view?.message).toEqual(message);
      expect(view?.message).toMatchObject({
        headers,
        labels: ["a", "b"],
        retries: 3,
        startedAtOnce: true,
        createdAt: fixture.clock.now,
      });
      expect(view?.message.body).toEqual(bytes("\0\u00ff{}"));
      expect(view?.state).toMatchObject({
        state: "active",
        leasedBy: "nod_a",
        dueAt: fixture.clock.now + spans.lease,
        host: "one.example",
      });
      expect(view?.finishedAt).toBeNull();
    });

    test("stores an empty body and every byte of a large body", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const large = new Uint8Array(300_000).map((_, index) => index % 251);
      const ids = [await fixture.send({ body: new Uint8Array(0) }), await fixture.send({ body: large })];
      const [empty, full] = await Promise.all(ids.map((id) => fixture.store.read.message("acc", id)));
      expect(empty?.message.body).toEqual(new Uint8Array(0));
      expect(Buffer.from(full?.message.body ?? []).equals(Buffer.from(large))).toBe(true);
    });

    test("stores unusual texts: NUL, half a surrogate pair, quotes, a question mark", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const labels = ["nul \0 nul", "half \ud83d", `{"a":"\\\\"}`, "NULL", "$1 ? ?1", "a\nb"];
      const id = await fixture.send({ labels });
      const view = await fixture.store.read.message("acc", id);
      expect(view?.message.labels).toEqual(labels);
    });

    test("finds nothing under an invalid name", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      for (const id of ["\0", "msg_\0", "\ud83d", "'", ""]) {
        expect(await fixture.store.read.message("acc", id)).toBeNull();
        expect(await fixture.store.execute("cancel", { account: "acc", messageIds: [id] })).toEqual({
          cancelled: 0,
          failed: [{ id, reason: "the message does not exist" }],
        });
      }
    });

    test("waits for a delay or for an absolute time, which takes precedence", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { now } = fixture.clock;
      const delayed = await fixture.send({ delay: 5_000 });
      const set = await fixture.send({ delay: 5_000, notBefore: now + 7_000 });
      const past = await fixture.send({ notBefore: now - 1 });
      expect(fixture.delivered().map(({ message }) => message.id)).toEqual([past]);
      expect((await fixture.store.read.message("acc", delayed))?.state).toMatchObject({
        state: "pending",
        dueAt: now + 5_000,
        leasedBy: null,
      });
      expect((await fixture.store.read.message("acc", set))?.state?.dueAt).toBe(now + 7_000);
    });

    test("leases nothing at once without capacity, and with a backlog only for a new host", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      fixture.capacity = { total: 0, perHost: 0 };
      await fixture.send();
      fixture.capacity = { total: 10, perHost: 10 };
      fixture.behind = true;
      const { message } = await fixture.sent({ url: "https://newcomer.example/" });
      await fixture.send({ url: "https://newcomer.example/" });
      await fixture.settle({ message, attempt: 0, signingKey: "" });
      expect(fixture.delivered()).toEqual([]);
      fixture.behind = false;
      expect(await fixture.claim()).toHaveLength(2);
    });

    test("creates one message for a deduplication id within its window", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { now } = fixture.clock;
      const input = makeInput({ deduplication: "d" });
      const [first, second, other] = await fixture.publish([input, input, makeInput({ deduplication: "e" })]);
      const messageId = first && "messageId" in first ? first.messageId : "";
      expect(first).toEqual({ messageId, deduplicated: false });
      expect(second).toEqual({ messageId, deduplicated: true, url: input.url });
      expect(other).toMatchObject({ deduplicated: false });
      fixture.clock.now = now + spans.deduplication - 1;
      expect(await fixture.publish([input])).toEqual([{ messageId, deduplicated: true, url: input.url }]);
      fixture.clock.now = now + spans.deduplication;
      const [later] = await fixture.publish([input]);
      expect(later).toMatchObject({ deduplicated: false });
      expect(later).not.toMatchObject({ messageId });
    });

    test("keeps a deduplication id for the window of its message, and returns its URL", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { now } = fixture.clock;
      const one = makeInput({ deduplication: "d", deduplicationWindow: 1_000 });
      const two = makeInput({ deduplication: "d" });
      const [first] = await fixture.publish([{ ...one, url: "https://first.example/" }]);
      const messageId = first && "messageId" in first ? first.messageId : "";
      fixture.clock.now = now + 999;
      expect(await fixture.publish([two])).toEqual([
        { messageId, deduplicated: true, url: "https://first.example/" },
      ]);
      fixture.clock.now = now + 1_000;
      expect(await fixture.publish([two])).toMatchObject([{ deduplicated: false }]);
      fixture.clock.now = now + 1_000 + spans.deduplication - 1;
      expect(await fixture.publish([one])).toMatchObject([{ deduplicated: true, url: two.url }]);
    });

    test("frees a deduplication id when its message fails or is cancelled, but not on delivery", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const again = async (deduplication: string) =>
        (await fixture.publish([makeInput({ deduplication })]))[0];
      await fixture.publishFailing({ deduplication: "failed" });
      const cancelled = await fixture.send({ deduplication: "cancelled" });
      await fixture.store.execute("cancel", { account: "acc", messageIds: [cancelled] });
      fixture.delivered();
      await fixture.settle(await fixture.sent({ deduplication: "delivered" }));
      expect(await again("failed")).toMatchObject({ deduplicated: false });
      expect(await again("cancelled")).toMatchObject({ deduplicated: false });
      expect(await again("delivered")).toMatchObject({ deduplicated: true });
    });

    test("accepts at most 16 topics per signature, across batches, until their windows end", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { now } = fixture.clock;
      const under = (topic: string) =>
        makeInput({
          deduplication: `d ${topic}`,
          deduplicationWindow: 1_000,
          signed: { key: "signature", topic },
        });
      const topics = (from: number, to: number) =>
        Array.from({ length: to - from }, (_, at) => under(String(from + at)));
      expect(await fixture.publish(topics(0, 9))).toEqual(
        Array.from({ length: 9 }, () => expect.objectContaining({ deduplicated: false })),
      );
      fixture.clock.now = now + 500;
      const refused = { refused: "invalid", message: expect.stringContaining("16 other topics") };
      const taken = Array.from({ length: 7 }, () => expect.objectContaining({ deduplicated: false }));
      expect(await fixture.publish(topics(9, 17))).toEqual([...taken, refused]);
      expect(await fixture.publish([under("3"), under("16")])).toEqual([
        expect.objectContaining({ deduplicated: true }),
        refused,
      ]);
      fixture.clock.now = now + 1_499;
      // The deduplication id of the message is free, but its topic still counts.
      expect(await fixture.publish([under("3"), under("16")])).toEqual([
        expect.objectContaining({ deduplicated: false }),
        refused,
      ]);
      fixture.clock.now = now + 2_499;
      expect(await fixture.publish([under("16")])).toMatchObject([{ deduplicated: false }]);
    });

    test("does not free a deduplication id that a later message has taken", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const old = await fixture.sent({ deduplication: "d", retries: 0 });
      fixture.clock.now += spans.deduplication;
      const newer = await fixture.send({ deduplication: "d" });
      // The lease of the first message has expired, and its outcome arrives before another claim.
      expect(await fixture.settle(old, { status: 500 })).toEqual({ became: "failed" });
      expect(await fixture.publish([makeInput({ deduplication: "d" })])).toEqual([
        { messageId: newer, deduplicated: true, url: makeInput().url },
      ]);
    });

    test("refuses a message that exceeds a limit and accepts the others", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const results = await fixture.publish([
        makeInput({ retries: limits.retries + 1, deduplication: "d" }),
        makeInput(),
        makeInput({ delay: limits.delay + 1 }),
        makeInput({ callback: { ...makeCallback("https://two.example"), timeout: limits.timeout + 1 } }),
        makeInput({ body: new Uint8Array(limits.messageBytes + 1) }),
      ]);
      const codes = results.map((result) => ("refused" in result ? result.refused : "taken"));
      expect(codes).toEqual(["limit-exceeded", "taken", "limit-exceeded", "limit-exceeded", "too-large"]);
      expect(await fixture.publish([makeInput({ deduplication: "d" })])).toMatchObject([
        { deduplicated: false },
      ]);
      expect(fixture.delivered()).toHaveLength(2);
    });

    test("is refused for an account that does not exist", async () => {
      const fixture = await StoreFixture.open(open);
      await expect(fixture.publish([makeInput()])).rejects.toMatchObject({
        name: "Refusal",
        code: "unauthorized",
      });
      expect(await fixture.store.nextDueAt()).toBeNull();
    });
  });
}
