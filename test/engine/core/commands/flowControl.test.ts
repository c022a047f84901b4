import { beforeEach, describe, expect, test } from "vitest";
import { noon } from "../commandRunner.ts";
import { RecountedCommandRunner, makeFlowControl } from "../recount.ts";

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

describe("a paused key", () => {
  const id = "key:k";

  test("accepts messages and sends none until it is resumed, then the oldest first", async () => {
    await broker.run("pauseLimiter", { account: "acme", id });
    await broker.send("a b c", makeFlowControl("k", { parallelism: 2 }));
    broker.now += minute;
    expect(await broker.listStarted()).toBe("");
    expect(broker.counts(id)).toEqual([0, 3]);
    await broker.run("resumeLimiter", { account: "acme", id });
    expect(await broker.listStarted()).toBe("a b");
  });

  test("holds retries as well, and lets messages in flight finish", async () => {
    await broker.send("a", { ...makeFlowControl("k"), retryDelay: "1000" });
    expect(await broker.listStarted()).toBe("a");
    await broker.run("pauseLimiter", { account: "acme", id });
    await broker.end("a", { status: 500 });
    broker.now += minute;
    expect(await broker.listStarted()).toBe("");
    expect(broker.counts(id)).toEqual([0, 1]);
  });

  test("does not stop its rate window", async () => {
    await broker.send("a b", makeFlowControl("k", { rate: 1, period: minute }));
    await broker.run("pauseLimiter", { account: "acme", id });
    broker.now += minute;
    await broker.run("resumeLimiter", { account: "acme", id });
    await broker.end("a");
    expect(await broker.listStarted()).toBe("a b");
  });
});

describe("a pinned key", () => {
  const pin = { account: "acme", key: "k" };

  test("has the pinned limits at once, regardless of the limits of messages", async () => {
    await broker.send("a b c d", makeFlowControl("k", { parallelism: 1 }));
    expect(await broker.run("pinFlowControl", { ...pin, parallelism: 3 })).toMatchObject({
      parallelism: 3,
      rate: null,
      pinned: { parallelism: true, rate: false },
    });
    expect(await broker.listStarted()).toBe("a b c");
    await broker.send("e", makeFlowControl("k", { parallelism: 100, rate: 5, period: minute }));
    expect(broker.findLimiter("key:k")).toMatchObject({ parallelism: 3, rate: 5, period: minute });
    expect(await broker.listStarted()).toBe("");
  });

  test("starts a new window when its rate is pinned", async () => {
    await broker.send("a b c d", makeFlowControl("k", { rate: 2, period: minute }));
    broker.now += second;
    await broker.run("pinFlowControl", { ...pin, rate: 1 });
    expect(broker.findLimiter("key:k")).toMatchObject({
      rate: 1,
      period: minute,
      windowStart: noon + second,
      windowUsed: 0,
      parallelism: null,
    });
    expect(await broker.listStarted()).toBe("a b c");
    await broker.send("e", makeFlowControl("k", { parallelism: 4, rate: 1000 }));
    expect(broker.findLimiter("key:k")).toMatchObject({ parallelism: 4, rate: 1, windowUsed: 1 });
    expect(await broker.listStarted()).toBe("");
  });

  test("keeps its limits when it is unpinned, until a message sets others", async () => {
    await broker.run("pinFlowControl", { ...pin, parallelism: 3, rate: 7, period: minute });
    await broker.run("unpinFlowControl", { ...pin, parallelism: true, rate: false });
    expect(broker.findLimiter("key:k")).toMatchObject({
      parallelism: 3,
      rate: 7,
      pinned: { parallelism: false, rate: true },
    });
    await broker.send("a", makeFlowControl("k", { parallelism: 9, rate: 9 }));
    expect(broker.findLimiter("key:k")).toMatchObject({ parallelism: 9, rate: 7, period: minute });
    await broker.run("unpinFlowControl", { ...pin, parallelism: false, rate: true });
    await broker.send("b", makeFlowControl("k", { rate: 9 }));
    expect(broker.findLimiter("key:k")).toMatchObject({ parallelism: null, rate: 9, period: second });
  });

  test("accepts only limits that the API allows", async () => {
    await expect(broker.run("pinFlowControl", { ...pin, parallelism: 10_001 })).rejects.toThrow(
      /limit-exceeded/,
    );
    await expect(broker.run("pinFlowControl", { ...pin, rate: 1_000_001 })).rejects.toThrow(/limit-exceeded/);
    await expect(
      broker.run("pinFlowControl", { account: "acme", key: "no rate", period: hour }),
    ).rejects.toThrow(/invalid.*period: requires rate, because this key has none/);
    await expect(broker.run("pinFlowControl", { ...pin, rate: 1, period: 8 * 24 * hour })).rejects.toThrow(
      /invalid.*period: /,
    );
    expect(broker.memory.tables.limiters.size).toBe(0);
  });
});

test("resetting the rate starts a new window, and keeps the count of messages in flight", async () => {
  await broker.send("a b c", makeFlowControl("k", { rate: 2, period: minute, parallelism: 3 }));
  expect(await broker.listStarted()).toBe("a b");
  broker.now += second;
  expect(await broker.run("resetRate", { account: "acme", key: "k" })).toMatchObject({
    windowStart: noon + second,
    running: 2,
  });
  expect(await broker.listStarted()).toBe("c");
  expect(broker.findLimiter("key:k")).toMatchObject({ running: 3, windowUsed: 1 });
});

test("resuming, unpinning or resetting an unknown key creates nothing", async () => {
  const named = { account: "acme", key: "k" };
  expect(await broker.run("resumeLimiter", { account: "acme", id: "key:k" })).toBeNull();
  expect(await broker.run("unpinFlowControl", { ...named, parallelism: true, rate: true })).toBeNull();
  expect(await broker.run("resetRate", named)).toBeNull();
  expect(broker.memory.tables.limiters.size).toBe(0);
});

describe("an unused key", () => {
  test("is removed after an hour, and not before", async () => {
    await broker.send("a", makeFlowControl("k", { parallelism: 1 }));
    await broker.end("a");
    broker.now = noon + hour - 1;
    await broker.listStarted();
    expect(broker.findLimiter("key:k")).toBeDefined();
    broker.now += 1;
    await broker.listStarted();
    expect(broker.findLimiter("key:k")).toBeUndefined();
  });

  test.each([
    ["paused", "pauseLimiter", { account: "acme", id: "key:k" }],
    ["pinned", "pinFlowControl", { account: "acme", key: "k", parallelism: 1 }],
  ] as const)("stays when it is %s", async (_, command, input) => {
    await broker.run(command, input);
    broker.now += 100 * hour;
    await broker.listStarted();
    expect(broker.findLimiter("key:k")).toBeDefined();
  });

  test("is removed an hour after it is resumed or unpinned", async () => {
    await broker.run("pauseLimiter", { account: "acme", id: "key:k" });
    await broker.run("pinFlowControl", { account: "acme", key: "k", rate: 1 });
    await broker.run("resumeLimiter", { account: "acme", id: "key:k" });
    broker.now += 2 * hour;
    await broker.listStarted();
    await broker.run("unpinFlowControl", { account: "acme", key: "k", parallelism: false, rate: true });
    broker.now += hour;
    await broker.listStarted();
    expect(broker.findLimiter("key:k")).toBeUndefined();
  });

  test("is not removed before its period has passed", async () => {
    await broker.send("a", makeFlowControl("k", { rate: 1, period: 3 * hour }));
    await broker.end("a");
    broker.now = noon + 3 * hour - 1;
    await broker.listStarted();
    await broker.send("b", makeFlowControl("k", { rate: 1, period: 3 * hour }));
    expect(await broker.listStarted()).toBe("");
    broker.now += 1;
    expect(await broker.listStarted()).toBe("b");
  });

  test("keeps its limits for messages with a long delay", async () => {
    await broker.send("a b c", { ...makeFlowControl("k", { parallelism: 1 }), delay: 5 * hour });
    for (let passed = 1; passed < 5; passed++) {
      broker.now += hour;
      expect(await broker.listStarted()).toBe("");
    }
    broker.now += hour;
    expect(await broker.listStarted()).toBe("a");
    expect(broker.counts("key:k")).toEqual([1, 2]);
  });

  test("keeps its limits for messages with a late retry", async () => {
    await broker.send("a b", { ...makeFlowControl("k", { parallelism: 2 }), retryDelay: String(5 * hour) });
    expect(await broker.listStarted()).toBe("a b");
    await broker.end("a b", { status: 500 });
    await broker.run("pinFlowControl", { account: "acme", key: "k", parallelism: 1 });
    await broker.run("unpinFlowControl", { account: "acme", key: "k", parallelism: true, rate: false });
    broker.now += 2 * hour;
    expect(await broker.listStarted()).toBe("");
    broker.now += 3 * hour;
    expect(await broker.listStarted()).toBe("a");
  });
});
