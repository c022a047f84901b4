import { beforeEach, describe, expect, test } from "vitest";
import { laneOf } from "../../../src/core/admission/capacity.ts";
import { Broker, callbackTo, letterOf, none, noon } from "../broker.ts";

const second = 1000;
const minute = 60 * second;

let broker: Broker;
beforeEach(async () => {
  broker = await Broker.open();
});

describe("a message that is due", () => {
  test("is leased and handed over in the batch that takes it in, with the account's key", async () => {
    const id = await broker.publish();
    expect(broker.deliveries).toMatchObject([
      { message: { id, retries: 3, timeout: 15 * minute, notBefore: noon, startedAtOnce: true }, attempt: 0, signingKey: "sig_1" },
    ]);
    expect(broker.state(id)).toMatchObject({
      state: "active",
      leasedBy: "nod_a",
      dueAt: noon + 30 * second,
      attempts: 0,
      lost: 0,
      size: 5,
      tells: false,
    });
    expect(broker.logRows(id)).toEqual([]);
  });

  test("waits for a claim when there is no hand", async () => {
    broker.hands = none;
    const id = await broker.publish();
    expect(broker.deliveries).toEqual([]);
    expect(broker.state(id)).toMatchObject({ state: "pending", leasedBy: null, dueAt: noon });
  });

  describe("while others wait for a claim", () => {
    const one = laneOf("acme", "shop.example");

    test("does not overtake them if something is running to its host", async () => {
      broker.hands = { ...broker.hands, behind: true, busy: new Map([[one, 1]]) };
      expect(broker.state(await broker.publish())).toMatchObject({ state: "pending", dueAt: noon });
    });

    test("goes at once if nothing is, and the next one does not", async () => {
      broker.hands = { ...broker.hands, behind: true };
      expect(broker.state(await broker.publish())).toMatchObject({ state: "active" });
      const results = await broker.run("publish", { account: "acme", letters: [letterOf(), letterOf()] });
      const states = results.map((result) => "messageId" in result && broker.state(result.messageId)?.state);
      expect(states).toEqual(["active", "pending"]);
    });

    test("does not take a hand that others will miss", async () => {
      broker.hands = { ...broker.hands, free: 1, behind: true, busy: new Map([["acme other.example", 1]]) };
      expect(broker.state(await broker.publish())).toMatchObject({ state: "pending" });
      broker.hands = { ...broker.hands, free: 2 };
      expect(broker.state(await broker.publish())).toMatchObject({ state: "active" });
    });
  });
});

test.each([
  [{ delay: 90 * second }, noon + 90 * second],
  [{ notBefore: noon + minute }, noon + minute],
  [{ notBefore: noon + minute, delay: 5 * minute }, noon + minute],
  [{ notBefore: noon - minute }, noon],
  [{ notBefore: noon - minute, delay: minute }, noon],
  [{ delay: 0 }, noon],
])("of %j follows when it is sent", async (letter, dueAt) => {
  broker.hands = none;
  expect(broker.state(await broker.publish(letter))).toMatchObject({ state: "pending", dueAt });
});

describe("the same deduplication key", () => {
  const publish = () => broker.run("publish", { account: "acme", letters: [letterOf({ deduplication: "key" })] });

  test("within ten minutes makes nothing, and names the older message", async () => {
    const [first] = await publish();
    broker.now += 10 * minute - 1;
    expect(await publish()).toEqual([{ ...first, deduplicated: true, url: letterOf({}).url }]);
    broker.now += 1;
    const [later] = await publish();
    expect(later).toMatchObject({ deduplicated: false });
    expect(later).not.toEqual(first);
  });

  test("counts within one batch", async () => {
    const letters = [letterOf({ deduplication: "key" }), letterOf({ deduplication: "key" }), letterOf({ deduplication: "other" })];
    const results = await broker.run("publish", { account: "acme", letters });
    expect(results).toMatchObject([{ deduplicated: false }, { deduplicated: true }, { deduplicated: false }]);
    expect(broker.memory.tables.envelopes.size).toBe(2);
  });

  test("holds after a delivery, and not after a cancel or a failure", async () => {
    const delivered = await broker.publish({ deduplication: "a" });
    await broker.settle(delivered, { status: 200 });
    expect(await broker.publish({ deduplication: "a" })).toBe(delivered);

    const cancelled = await broker.publish({ deduplication: "b" });
    await broker.run("cancel", { account: "acme", messageIds: [cancelled] });
    expect(await broker.publish({ deduplication: "b" })).not.toBe(cancelled);

    const failed = await broker.publish({ deduplication: "c", retries: 0 });
    await broker.settle(failed);
    expect(await broker.publish({ deduplication: "c" })).not.toBe(failed);
  });
});

test("a letter that is refused does not stop the others, and the answers are in their order", async () => {
  const letters = [letterOf({ retries: 1001 }), letterOf(), letterOf({ callback: { ...callbackTo("https://a.example"), retries: 1001 } })];
  expect(await broker.run("publish", { account: "acme", letters })).toEqual([
    { refused: "limit-exceeded", message: "retries: 1001 asked for, the limit is 1000" },
    { messageId: expect.stringMatching(/^msg_/), deduplicated: false },
    { refused: "limit-exceeded", message: "retries: 1001 asked for, the limit is 1000" },
  ]);
});

test.each([
  [{ body: new Uint8Array(8 * 1024 * 1024 + 1) }, "too-large"],
  [{ delay: 366 * 24 * 60 * minute + second }, "limit-exceeded"],
  [{ timeout: 12 * 60 * minute + second }, "limit-exceeded"],
  [{ headers: [["X-Long", "x".repeat(64 * 1024)] as const] }, "limit-exceeded"],
])("of %# the limit is told", async (letter, refused) => {
  expect(await broker.run("publish", { account: "acme", letters: [letterOf(letter)] })).toMatchObject([{ refused }]);
});

test("an account that is not there may publish nothing", async () => {
  await expect(broker.run("publish", { account: "nobody", letters: [letterOf()] })).rejects.toThrow("does not exist");
});
