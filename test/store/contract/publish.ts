import { describe, expect, test } from "vitest";
import { limits, spans } from "../../../src/core/values/limits.ts";
import { bytes, callbackTo, letterTo, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

/** Taking in messages. */
export function describePublish(open: OpenStore): void {
  describe("publish", () => {
    test("keeps a message as it was accepted, and hands it over at once when a hand is free", async () => {
      const world = await World.open(open);
      await world.account();
      const headers = [
        ["X-Twice", "1"],
        ["X-Twice", "2"],
        ["X-Odd", "\u00fc \u{1f600} \\ \" '"],
      ] as const;
      const { message, attempt, signingKey } = await world.sent({ headers, body: bytes("\0\u00ff{}"), labels: ["a", "b"], retries: null });
      expect(attempt).toBe(0);
      expect(signingKey).toBe("sig_acc_1");
      const view = await world.store.read.message("acc", message.id);
      expect(view?.envelope).toEqual(message);
      expect(view?.envelope).toMatchObject({
        ...{ headers, labels: ["a", "b"], retries: 3, startedAtOnce: true },
        createdAt: world.clock.now,
      });
      expect(view?.envelope.body).toEqual(bytes("\0\u00ff{}"));
      expect(view?.state).toMatchObject({ state: "active", leasedBy: "nod_a", dueAt: world.clock.now + spans.lease, host: "one.example" });
      expect(view?.finishedAt).toBeNull();
    });

    test("keeps an empty body, and every byte of a large one", async () => {
      const world = await World.open(open);
      await world.account();
      const large = new Uint8Array(300_000).map((_, index) => index % 251);
      const ids = [await world.send({ body: new Uint8Array(0) }), await world.send({ body: large })];
      const [empty, full] = await Promise.all(ids.map((id) => world.store.read.message("acc", id)));
      expect(empty?.envelope.body).toEqual(new Uint8Array(0));
      expect(Buffer.from(full?.envelope.body ?? []).equals(Buffer.from(large))).toBe(true);
    });

    test("keeps texts that are hard to write: NUL, half a character, quotes, a question mark", async () => {
      const world = await World.open(open);
      await world.account();
      const labels = ["nul \0 nul", "half \ud83d", `{"a":"\\\\"}`, "NULL", "$1 ? ?1", "a\nb"];
      const id = await world.send({ labels });
      const view = await world.store.read.message("acc", id);
      expect(view?.envelope.labels).toEqual(labels);
    });

    test("does not find what is asked for by a name that cannot be", async () => {
      const world = await World.open(open);
      await world.account();
      for (const id of ["\0", "msg_\0", "\ud83d", "'", ""]) {
        expect(await world.store.read.message("acc", id)).toBeNull();
        expect(await world.store.execute("cancel", { account: "acc", messageIds: [id] })).toEqual({
          cancelled: 0,
          failed: [{ id, reason: "there is no such message" }],
        });
      }
    });

    test("waits for a delay, and for an absolute time, which wins", async () => {
      const world = await World.open(open);
      await world.account();
      const { now } = world.clock;
      const delayed = await world.send({ delay: 5_000 });
      const set = await world.send({ delay: 5_000, notBefore: now + 7_000 });
      const past = await world.send({ notBefore: now - 1 });
      expect(world.delivered().map(({ message }) => message.id)).toEqual([past]);
      expect((await world.store.read.message("acc", delayed))?.state).toMatchObject({
        state: "pending",
        dueAt: now + 5_000,
        leasedBy: null,
      });
      expect((await world.store.read.message("acc", set))?.state?.dueAt).toBe(now + 7_000);
    });

    test("leases nothing at once without a free hand, without a desk's leave, or without a desk", async () => {
      const world = await World.open(open);
      await world.account();
      world.hands = { total: 0, perHost: 0 };
      await world.send();
      world.hands = { total: 10, perHost: 10 };
      world.behind = true;
      const { message } = await world.sent({ url: "https://newcomer.example/" });
      await world.send({ url: "https://newcomer.example/" });
      await world.settle({ message, attempt: 0, signingKey: "" });
      expect(world.delivered()).toEqual([]);
      world.behind = false;
      expect(await world.claim()).toHaveLength(2);
    });

    test("makes one message of those with the same deduplication id within the window", async () => {
      const world = await World.open(open);
      await world.account();
      const { now } = world.clock;
      const letter = letterTo({ deduplication: "d" });
      const [first, second, other] = await world.publish([letter, letter, letterTo({ deduplication: "e" })]);
      const messageId = first && "messageId" in first ? first.messageId : "";
      expect(first).toEqual({ messageId, deduplicated: false });
      expect(second).toEqual({ messageId, deduplicated: true, url: letter.url });
      expect(other).toMatchObject({ deduplicated: false });
      world.clock.now = now + spans.deduplication - 1;
      expect(await world.publish([letter])).toEqual([{ messageId, deduplicated: true, url: letter.url }]);
      world.clock.now = now + spans.deduplication;
      const [later] = await world.publish([letter]);
      expect(later).toMatchObject({ deduplicated: false });
      expect(later).not.toMatchObject({ messageId });
    });

    test("keeps a deduplication id for the window of the message that was taken, and knows its URL", async () => {
      const world = await World.open(open);
      await world.account();
      const { now } = world.clock;
      const [one, two] = [letterTo({ deduplication: "d", deduplicationWindow: 1_000 }), letterTo({ deduplication: "d" })];
      const [first] = await world.publish([{ ...one, url: "https://first.example/" }]);
      const messageId = first && "messageId" in first ? first.messageId : "";
      world.clock.now = now + 999;
      expect(await world.publish([two])).toEqual([{ messageId, deduplicated: true, url: "https://first.example/" }]);
      world.clock.now = now + 1_000;
      expect(await world.publish([two])).toMatchObject([{ deduplicated: false }]);
      world.clock.now = now + 1_000 + spans.deduplication - 1;
      expect(await world.publish([one])).toMatchObject([{ deduplicated: true, url: two.url }]);
    });

    test("opens a deduplication id again when its message failed or was cancelled, not when it was delivered", async () => {
      const world = await World.open(open);
      await world.account();
      const again = async (deduplication: string) => (await world.publish([letterTo({ deduplication })]))[0];
      await world.die({ deduplication: "failed" });
      const cancelled = await world.send({ deduplication: "cancelled" });
      await world.store.execute("cancel", { account: "acc", messageIds: [cancelled] });
      world.delivered();
      await world.settle(await world.sent({ deduplication: "delivered" }));
      expect(await again("failed")).toMatchObject({ deduplicated: false });
      expect(await again("cancelled")).toMatchObject({ deduplicated: false });
      expect(await again("delivered")).toMatchObject({ deduplicated: true });
    });

    test("takes what one signature covers under 16 topics, in the same batch and in others, until the last of them is free again", async () => {
      const world = await World.open(open);
      await world.account();
      const { now } = world.clock;
      const under = (topic: string) =>
        letterTo({ deduplication: `d ${topic}`, deduplicationWindow: 1_000, signed: { key: "signature", topic } });
      const topics = (from: number, to: number) => Array.from({ length: to - from }, (_, at) => under(String(from + at)));
      expect(await world.publish(topics(0, 9))).toEqual(Array.from({ length: 9 }, () => expect.objectContaining({ deduplicated: false })));
      world.clock.now = now + 500;
      const refused = { refused: "invalid", message: expect.stringContaining("16 others") };
      const taken = Array.from({ length: 7 }, () => expect.objectContaining({ deduplicated: false }));
      expect(await world.publish(topics(9, 17))).toEqual([...taken, refused]);
      expect(await world.publish([under("3"), under("16")])).toEqual([expect.objectContaining({ deduplicated: true }), refused]);
      world.clock.now = now + 1_499;
      // Its message is forgotten, and its topic is known still.
      expect(await world.publish([under("3"), under("16")])).toEqual([expect.objectContaining({ deduplicated: false }), refused]);
      world.clock.now = now + 2_499;
      expect(await world.publish([under("16")])).toMatchObject([{ deduplicated: false }]);
    });

    test("a failure does not open an id that a later message has taken", async () => {
      const world = await World.open(open);
      await world.account();
      const old = await world.sent({ deduplication: "d", retries: 0 });
      world.clock.now += spans.deduplication;
      const newer = await world.send({ deduplication: "d" });
      // The lease of the first one has run out; its report comes before anybody noticed.
      expect(await world.settle(old, { status: 500 })).toEqual({ became: "failed" });
      expect(await world.publish([letterTo({ deduplication: "d" })])).toEqual([
        { messageId: newer, deduplicated: true, url: letterTo().url },
      ]);
    });

    test("refuses a letter beyond a limit, and takes in the others", async () => {
      const world = await World.open(open);
      await world.account();
      const results = await world.publish([
        letterTo({ retries: limits.retries + 1, deduplication: "d" }),
        letterTo(),
        letterTo({ delay: limits.delay + 1 }),
        letterTo({ callback: { ...callbackTo("https://two.example"), timeout: limits.timeout + 1 } }),
        letterTo({ body: new Uint8Array(limits.messageBytes + 1) }),
      ]);
      const codes = results.map((result) => ("refused" in result ? result.refused : "taken"));
      expect(codes).toEqual(["limit-exceeded", "taken", "limit-exceeded", "limit-exceeded", "too-large"]);
      expect(await world.publish([letterTo({ deduplication: "d" })])).toMatchObject([{ deduplicated: false }]);
      expect(world.delivered()).toHaveLength(2);
    });

    test("is refused for an account that is not there", async () => {
      const world = await World.open(open);
      await expect(world.publish([letterTo()])).rejects.toMatchObject({ name: "Refusal", code: "unauthorized" });
      expect(await world.store.nextDueAt()).toBeNull();
    });
  });
}
