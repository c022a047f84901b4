import { beforeEach, describe, expect, test } from "vitest";
import { noon } from "../commandRunner.ts";
import { RecountedCommandRunner, makeFlowControl } from "../recount.ts";

const second = 1000;
const minute = 60 * second;
const queue = "q";

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

describe("a paused queue", () => {
  const id = "queue:q";

  test("accepts messages and sends none until it is resumed, then the oldest first", async () => {
    await broker.run("pauseLimiter", { account: "acme", id });
    await broker.send("a b", { queue });
    broker.now += minute;
    expect(await broker.listStarted()).toBe("");
    expect(broker.counts(id)).toEqual([0, 2]);
    await broker.run("resumeLimiter", { account: "acme", id });
    expect(await broker.listStarted()).toBe("a");
  });

  test("lets a delivery end with its callbacks, and retries it first when it is resumed", async () => {
    await broker.send("a b", { queue, retryDelay: "1000" });
    expect(await broker.listStarted()).toBe("a");
    await broker.run("pauseLimiter", { account: "acme", id });
    await broker.end("a", { status: 500 });
    for (let looks = 0; looks < 3; looks++) {
      broker.now += 10 * second;
      expect(await broker.listStarted()).toBe("");
    }
    expect(broker.counts(id)).toEqual([1, 1]);
    await broker.run("resumeLimiter", { account: "acme", id });
    broker.now += 10 * second;
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("b");
  });

  test.each(["key", "host", "account"])(
    "holds a message that has a slot and waits in the waitlist of its %s",
    async (kind) => {
      const { capacity } = broker;
      if (kind === "account")
        await broker.run("changeAccount", { account: "acme", change: { limits: { globalParallelism: 1 } } });
      const input = kind === "key" ? makeFlowControl("k", { parallelism: 1 }) : {};
      await broker.send("first", input);
      expect(await broker.listStarted()).toBe("first");
      if (kind === "host") broker.capacity = { ...capacity, free: 0 };
      await broker.send("a", { ...input, queue });
      expect(await broker.listStarted()).toBe("");
      broker.capacity = capacity;
      await broker.run("pauseLimiter", { account: "acme", id });
      await broker.end("first");
      broker.now += minute;
      expect(await broker.listStarted()).toBe("");
      await broker.run("resumeLimiter", { account: "acme", id });
      broker.now += 10 * second;
      expect(await broker.listStarted()).toBe("a");
      await broker.end("a");
      expect(broker.counts(id)).toEqual([0, 0]);
      expect(broker.memory.tables.queueSlots.size).toBe(0);
    },
  );

  test("holds a message whose lease was lost", async () => {
    await broker.send("a", { queue });
    expect(await broker.listStarted()).toBe("a");
    await broker.run("pauseLimiter", { account: "acme", id });
    broker.now += minute;
    expect(await broker.listStarted()).toBe("");
    await broker.run("resumeLimiter", { account: "acme", id });
    broker.now += 10 * second;
    expect(await broker.listStarted()).toBe("a");
  });

  test("is paused once, and pausing it changes its time of change", async () => {
    broker.now += minute;
    const first = await broker.run("pauseLimiter", { account: "acme", id });
    expect(first).toMatchObject({ paused: true, createdAt: noon + minute, updatedAt: noon + minute });
    broker.now += minute;
    expect(await broker.run("pauseLimiter", { account: "acme", id })).toEqual(first);
    expect(await broker.run("resumeLimiter", { account: "acme", id })).toMatchObject({
      paused: false,
      updatedAt: noon + 2 * minute,
    });
  });
});
