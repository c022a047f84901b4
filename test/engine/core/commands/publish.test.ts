import { beforeEach, describe, expect, test } from "vitest";
import { laneName } from "../../../../src/engine/core/admission/capacity.ts";
import { CommandRunner, callbackTo, makeInput, noCapacity, noon } from "../commandRunner.ts";

const second = 1000;
const minute = 60 * second;

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

describe("a due message", () => {
  test("is leased and delivered by the batch that accepts it, with the account's key", async () => {
    const id = await broker.publish();
    expect(broker.deliveries).toMatchObject([
      {
        message: { id, retries: 3, timeout: 15 * minute, notBefore: noon, startedAtOnce: true },
        attempt: 0,
        signingKey: "sig_1",
      },
    ]);
    expect(broker.state(id)).toMatchObject({
      state: "active",
      leasedBy: "nod_a",
      dueAt: noon + 30 * second,
      attempts: 0,
      lostAttempts: 0,
      size: 5,
      reportsOutcome: false,
    });
    expect(broker.logRows(id)).toEqual([]);
  });

  test("waits for a claim if there is no capacity", async () => {
    broker.capacity = noCapacity;
    const id = await broker.publish();
    expect(broker.deliveries).toEqual([]);
    expect(broker.state(id)).toMatchObject({ state: "pending", leasedBy: null, dueAt: noon });
  });

  describe("while other messages wait for a claim", () => {
    const one = laneName("acme", "shop.example");

    test("does not overtake them if a delivery to its host is running", async () => {
      broker.capacity = { ...broker.capacity, backlog: true, runningByLane: new Map([[one, 1]]) };
      expect(broker.state(await broker.publish())).toMatchObject({ state: "pending", dueAt: noon });
    });

    test("is sent at once if its host has no delivery, and the next one is not", async () => {
      broker.capacity = { ...broker.capacity, backlog: true };
      expect(broker.state(await broker.publish())).toMatchObject({ state: "active" });
      const results = await broker.run("publish", { account: "acme", inputs: [makeInput(), makeInput()] });
      const states = results.map((result) => "messageId" in result && broker.state(result.messageId)?.state);
      expect(states).toEqual(["active", "pending"]);
    });

    test("does not take capacity that others will need", async () => {
      broker.capacity = {
        ...broker.capacity,
        free: 1,
        backlog: true,
        runningByLane: new Map([["acme other.example", 1]]),
      };
      expect(broker.state(await broker.publish())).toMatchObject({ state: "pending" });
      broker.capacity = { ...broker.capacity, free: 2 };
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
])("a message with %j is due at the right time", async (input, dueAt) => {
  broker.capacity = noCapacity;
  expect(broker.state(await broker.publish(input))).toMatchObject({ state: "pending", dueAt });
});

describe("a deduplication key", () => {
  const publish = () =>
    broker.run("publish", { account: "acme", inputs: [makeInput({ deduplication: "key" })] });

  test("creates nothing within ten minutes, and returns the older message", async () => {
    const [first] = await publish();
    broker.now += 10 * minute - 1;
    expect(await publish()).toEqual([{ ...first, deduplicated: true, url: makeInput({}).url }]);
    broker.now += 1;
    const [later] = await publish();
    expect(later).toMatchObject({ deduplicated: false });
    expect(later).not.toEqual(first);
  });

  test("applies within one batch", async () => {
    const inputs = [
      makeInput({ deduplication: "key" }),
      makeInput({ deduplication: "key" }),
      makeInput({ deduplication: "other" }),
    ];
    const results = await broker.run("publish", { account: "acme", inputs });
    expect(results).toMatchObject([{ deduplicated: false }, { deduplicated: true }, { deduplicated: false }]);
    expect(broker.memory.tables.storedMessages.size).toBe(2);
  });

  test("applies after a delivery, but not after a cancellation or a failure", async () => {
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

test("a refused message does not stop the others, and the results are in order", async () => {
  const inputs = [
    makeInput({ retries: 1001 }),
    makeInput(),
    makeInput({ callback: { ...callbackTo("https://a.example"), retries: 1001 } }),
  ];
  expect(await broker.run("publish", { account: "acme", inputs })).toEqual([
    { refused: "limit-exceeded", message: "retries: 1001 exceeds the limit of 1000" },
    { messageId: expect.stringMatching(/^msg_/), deduplicated: false },
    { refused: "limit-exceeded", message: "retries: 1001 exceeds the limit of 1000" },
  ]);
});

test.each([
  [{ body: new Uint8Array(10 * 1024 * 1024 + 1) }, "too-large"],
  [{ delay: 366 * 24 * 60 * minute + second }, "limit-exceeded"],
  [{ timeout: 12 * 60 * minute + second }, "limit-exceeded"],
  [{ headers: [["X-Long", "x".repeat(64 * 1024)] as const] }, "limit-exceeded"],
])("the refusal names the limit that input %# exceeds", async (input, refused) => {
  expect(await broker.run("publish", { account: "acme", inputs: [makeInput(input)] })).toMatchObject([
    { refused },
  ]);
});

test("an account that does not exist may publish nothing", async () => {
  await expect(broker.run("publish", { account: "nobody", inputs: [makeInput()] })).rejects.toThrow(
    "does not exist",
  );
});
