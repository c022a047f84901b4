import { beforeEach, describe, expect, test } from "vitest";
import { CommandRunner, callbackTo, noCapacity, noon } from "../commandRunner.ts";
import { RecountedCommandRunner, findDisagreements, makeFlowControl } from "../recount.ts";

const second = 1000;
const minute = 60 * second;
const queue = "q";

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

describe("a queue of parallelism 1", () => {
  test("sends one message after another, in order of acceptance", async () => {
    await broker.send("a b c", { queue });
    expect(await broker.listStarted()).toBe("a");
    expect(broker.counts("queue:q")).toEqual([1, 2]);
    await broker.end("a");
    expect(await broker.listStarted()).toBe("b");
    await broker.send("d", { queue });
    await broker.end("b");
    expect(await broker.listStarted()).toBe("c");
    await broker.end("c");
    expect(await broker.listStarted()).toBe("d");
    await broker.end("d");
    expect(await broker.listStarted()).toBe("");
    expect(broker.counts("queue:q")).toEqual([0, 0]);
    expect(broker.memory.tables.queueSlots.size).toBe(0);
  });

  test("waits for all retries of a message, and continues when it has failed", async () => {
    await broker.send("a b", { queue, retries: 2, retryDelay: "10000" });
    for (const attempt of [0, 1]) {
      expect(await broker.listStarted()).toBe("a");
      expect(await broker.settle(broker.id("a"), { attempt })).toBe("retry");
      expect(await broker.listStarted()).toBe("");
      expect(broker.counts("queue:q")).toEqual([1, 1]);
      broker.now += 10 * second;
    }
    expect(await broker.listStarted()).toBe("a");
    expect(await broker.settle(broker.id("a"))).toBe("failed");
    expect(await broker.listStarted()).toBe("b");
  });

  test("waits for the callback, its retries, and the callback of the callback", async () => {
    const callback = {
      ...callbackTo("https://told.example/"),
      callback: callbackTo("https://toldtoo.example/"),
      retryDelay: "1000",
    };
    await broker.send("a", { queue, callback });
    await broker.send("b", { queue });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("https://told.example/");
    await broker.end("https://told.example/", { status: 500 });
    expect(await broker.listStarted()).toBe("https://toldtoo.example/");
    await broker.end("https://toldtoo.example/");
    expect(await broker.listStarted()).toBe("");
    expect(broker.counts("queue:q")).toEqual([1, 1]);
    broker.now += second;
    expect(await broker.listStarted()).toBe("https://told.example/");
    await broker.end("https://told.example/");
    expect(await broker.listStarted()).toBe("https://toldtoo.example/");
    await broker.end("https://toldtoo.example/");
    expect(await broker.listStarted()).toBe("b");
  });

  test("does not wait for a callback with a delay, which is sent when it is due", async () => {
    const callback = {
      ...callbackTo("https://told.example/"),
      delay: minute,
      callback: callbackTo("https://toldtoo.example/"),
    };
    await broker.send("a", {
      queue,
      callback,
      retries: 0,
      failureCallback: { ...callbackTo("https://sad.example/"), delay: 2 * minute },
    });
    await broker.send("b", { queue });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a", { status: 500 });
    expect(await broker.listStarted()).toBe("b");
    await broker.end("b");
    expect(broker.counts("queue:q")).toEqual([0, 0]);
    expect(broker.memory.tables.queueSlots.size).toBe(0);
    broker.now += minute;
    expect(await broker.listStarted()).toBe("https://told.example/");
    await broker.end("https://told.example/");
    expect(await broker.listStarted()).toBe("https://toldtoo.example/");
    await broker.end("https://toldtoo.example/");
    broker.now += minute;
    expect(await broker.listStarted()).toBe("https://sad.example/");
  });

  test("waits for the failure callback, even when that fails as well", async () => {
    await broker.send("a", {
      queue,
      retries: 0,
      failureCallback: { ...callbackTo("https://sad.example/"), retries: 0 },
    });
    await broker.send("b", { queue });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a", { status: 500 });
    expect(await broker.listStarted()).toBe("https://sad.example/");
    await broker.end("https://sad.example/", { status: 500 });
    expect(await broker.listStarted()).toBe("b");
    expect(broker.deadLetters).toHaveLength(2);
  });

  test("continues when the callback that it waits for is cancelled", async () => {
    await broker.send("a", { queue, callback: callbackTo("https://told.example/") });
    await broker.send("b", { queue });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("https://told.example/");
    await broker.cancel("https://told.example/");
    expect(await broker.listStarted()).toBe("");
    await broker.end("https://told.example/", { status: null });
    expect(await broker.listStarted()).toBe("b");
  });

  test("is not blocked by a message that is not yet due, and sends it when it is", async () => {
    await broker.send("late", { queue, delay: minute });
    expect(broker.counts("queue:q")).toEqual([0, 0]);
    await broker.send("a b", { queue });
    expect(await broker.listStarted()).toBe("a");
    broker.now = noon + minute;
    expect(await broker.listStarted()).toBe("a");
    expect(broker.counts("queue:q")).toEqual([1, 2]);
    await broker.end("a");
    // It was accepted first, and is due now.
    expect(await broker.listStarted()).toBe("late");
  });

  test("keeps its order if capacity is short", async () => {
    broker.capacity = noCapacity;
    await broker.send("a b c", { queue });
    expect(broker.state(broker.id("a"))).toMatchObject({ state: "pending", slot: broker.id("a") });
    expect(broker.counts("queue:q")).toEqual([1, 2]);
    await broker.run("claim", { limit: 10 });
    expect(broker.state(broker.id("a"))).toMatchObject({ state: "held", waitlist: "capacity:shop.example" });
    expect(broker.counts("queue:q")).toEqual([1, 2]);
    broker.capacity = { ...noCapacity, free: 10 };
    broker.now += second;
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("b");
  });
});

test("a queue exists from its first message, even if that is not yet due", async () => {
  await broker.send("late", { queue, delay: minute });
  expect(broker.findLimiter("queue:q")).toMatchObject({
    parallelism: 1,
    running: 0,
    waiting: 0,
    paused: false,
    createdAt: noon,
  });
});

test("a queue of parallelism 3 has three messages in flight while there are three", async () => {
  await broker.run("upsertQueue", { account: "acme", name: queue, parallelism: 3 });
  await broker.send("a b c d e", { queue });
  expect(await broker.listStarted()).toBe("a b c");
  await broker.end("b");
  expect(await broker.listStarted()).toBe("d");
  await broker.end("c a");
  expect(await broker.listStarted()).toBe("e");
  expect(broker.counts("queue:q")).toEqual([2, 0]);
});

describe("a queue whose limits change", () => {
  test("sends more messages at once", async () => {
    await broker.send("a b c d", { queue });
    expect(await broker.listStarted()).toBe("a");
    await broker.run("upsertQueue", { account: "acme", name: queue, parallelism: 3 });
    expect(await broker.listStarted()).toBe("b c");
  });

  test("sends nothing until fewer messages are in flight than the new limit", async () => {
    await broker.run("upsertQueue", { account: "acme", name: queue, parallelism: 3 });
    await broker.send("a b c d", { queue });
    expect(await broker.listStarted()).toBe("a b c");
    await broker.run("upsertQueue", { account: "acme", name: queue, parallelism: 1 });
    await broker.end("a b");
    expect(await broker.listStarted()).toBe("");
    await broker.end("c");
    expect(await broker.listStarted()).toBe("d");
  });

  test("keeps the settings that are not given", async () => {
    await broker.run("upsertQueue", { account: "acme", name: queue, parallelism: 4, paused: true });
    broker.now += minute;
    expect(await broker.run("upsertQueue", { account: "acme", name: queue })).toMatchObject({
      parallelism: 4,
      paused: true,
      createdAt: noon,
      updatedAt: noon + minute,
    });
    expect(await broker.run("upsertQueue", { account: "acme", name: queue, paused: false })).toMatchObject({
      parallelism: 4,
      paused: false,
    });
  });

  test("refuses a parallelism above the limit", async () => {
    await expect(
      broker.run("upsertQueue", { account: "acme", name: queue, parallelism: 10_001 }),
    ).rejects.toThrow(/limit-exceeded.*parallelism: 10001 exceeds the limit of 10000/);
    expect(broker.findLimiter("queue:q")).toBeUndefined();
  });
});

describe("a message releases its places", () => {
  test("if it is cancelled while it waits, is in flight, or waits for a retry", async () => {
    await broker.send("a b c d", { queue, retryDelay: "60000" });
    expect(await broker.listStarted()).toBe("a");
    await broker.cancel("b");
    expect(broker.counts("queue:q")).toEqual([1, 2]);
    await broker.cancel("a");
    expect(await broker.listStarted()).toBe("");
    expect(await broker.settle(broker.id("a"), { attempt: 0, status: 200 })).toBe("cancelled");
    expect(await broker.listStarted()).toBe("c");
    await broker.end("c", { status: 500 });
    expect(await broker.listStarted()).toBe("");
    await broker.cancel("c");
    expect(await broker.listStarted()).toBe("d");
    await broker.cancel("d");
    expect(broker.counts("queue:q")).toEqual([1, 0]);
    await broker.end("d");
    expect(broker.counts("queue:q")).toEqual([0, 0]);
  });

  test("if all its leases are lost", async () => {
    await broker.send("a b", { queue });
    expect(await broker.listStarted()).toBe("a");
    for (let lost = 1; lost <= 5; lost++) {
      broker.now += 30 * second;
      expect(await broker.listStarted()).toBe("a");
      expect(broker.counts("queue:q")).toEqual([1, 1]);
    }
    broker.now += 30 * second;
    expect(await broker.listStarted()).toBe("b");
    expect(broker.deadLetters).toMatchObject([{ messageId: broker.id("a") }]);
  });

  test("but not if its node returns its lease", async () => {
    await broker.send("a b", { queue });
    expect(await broker.listStarted()).toBe("a");
    await broker.run("returnLeases", {
      leases: [{ account: "acme", messageId: broker.id("a"), attempt: 0 }],
    });
    expect(broker.counts("queue:q")).toEqual([1, 1]);
    expect(await broker.listStarted()).toBe("a");
  });

  test("but not if its node is gone and another node takes over", async () => {
    await broker.send("a b", { queue });
    expect(await broker.listStarted()).toBe("a");
    broker.node = "nod_b";
    await broker.run("reclaim", { node: "nod_b", limit: 10 });
    expect(await broker.listStarted()).toBe("a");
    expect(broker.counts("queue:q")).toEqual([1, 1]);
  });

  test("even if its stored message is lost", async () => {
    const plain = await CommandRunner.open();
    const callback = callbackTo("https://told.example/");
    const sent = await plain.publish({ queue, callback, ...makeFlowControl("k") });
    const waits = await plain.publish({ queue, callback });
    plain.memory.tables.storedMessages.clear();
    await plain.settle(sent);
    const told = [...plain.faults];
    for (let n = 0; n < 3; n++) {
      await plain.run("claim", { limit: 10 });
      told.push(...plain.faults);
    }
    expect(told).toMatchObject(
      [sent, waits].map((id) => expect.stringContaining(`message ${id} of account acme`)),
    );
    expect(findDisagreements(plain.memory)).toEqual([]);
    expect(plain.memory.tables.queueSlots.size).toBe(0);
  });
});

describe("a retried dead letter", () => {
  test("goes through its queue again, behind waiting messages", async () => {
    await broker.send("a b c", { queue, retries: 0 });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a", { status: 500 });
    const dlqIds = broker.deadLetters.map(({ id }) => id);
    await broker.run("retryDeadLetters", { account: "acme", dlqIds, logRetention: minute, overrides: {} });
    expect(await broker.listStarted()).toBe("b");
    expect(broker.counts("queue:q")).toEqual([1, 2]);
    await broker.end("b");
    expect(await broker.listStarted()).toBe("c");
    await broker.end("c");
    expect(await broker.listStarted()).toBe("a");
  });
});

describe("a message with a queue and a key", () => {
  test("passes both gates, and keeps its slot while it waits for the key", async () => {
    await broker.send("other", { ...makeFlowControl("k", { parallelism: 1 }) });
    await broker.send("a b", { queue, ...makeFlowControl("k", { parallelism: 1 }) });
    await broker.send("c", { queue });
    expect(await broker.listStarted()).toBe("other");
    expect(broker.state(broker.id("a"))).toMatchObject({ waitlist: "key:k", slot: broker.id("a") });
    expect([broker.counts("queue:q"), broker.counts("key:k")]).toEqual([
      [1, 2],
      [1, 1],
    ]);
    await broker.end("other");
    expect(await broker.listStarted()).toBe("a");
    await broker.send("other2", { ...makeFlowControl("k", { parallelism: 1 }) });
    await broker.end("a");
    // The key was open when b was still waiting for the queue.
    expect(await broker.listStarted()).toBe("other2");
    expect(broker.state(broker.id("b"))).toMatchObject({ waitlist: "key:k", slot: broker.id("b") });
    await broker.end("other2");
    expect(await broker.listStarted()).toBe("b");
    await broker.end("b");
    expect(await broker.listStarted()).toBe("c");
  });

  test("releases both places if it is cancelled in the waitlist of the key", async () => {
    await broker.send("other", { ...makeFlowControl("k", { parallelism: 1 }) });
    await broker.send("a", { queue, ...makeFlowControl("k", { parallelism: 1 }) });
    await broker.send("b", { queue });
    expect(await broker.listStarted()).toBe("other");
    await broker.cancel("a");
    expect(await broker.listStarted()).toBe("b");
    expect([broker.counts("queue:q"), broker.counts("key:k")]).toEqual([
      [1, 0],
      [1, 0],
    ]);
  });
});
