import { beforeEach, describe, expect, test } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import { RecountedCommandRunner } from "../recount.ts";

const second = 1000;
const queue = "q";
const of = { account: "acme", name: "q" };

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

const isThere = (): boolean => broker.findLimiter("queue:q") !== undefined;

/** Reports whether the queue still exists after the longest idle time. */
async function outlivesIdleness(): Promise<boolean> {
  broker.now += spans.idleQueue - 1;
  await broker.run("claim", { limit: 10 });
  expect(isThere()).toBe(true);
  broker.now += second;
  await broker.run("claim", { limit: 10 });
  return isThere();
}

describe("a queue that was created by its first message", () => {
  test("is removed when it has long been idle, and created again by the next message", async () => {
    await broker.send("a", { queue });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a");
    expect(await outlivesIdleness()).toBe(false);
    await broker.send("b c", { queue });
    expect(await broker.listStarted()).toBe("b");
    expect(broker.counts("queue:q")).toEqual([1, 1]);
  });

  test("exists while one of its messages is unfinished or not yet due", async () => {
    await broker.send("a", { queue });
    await broker.send("b", { queue, delay: 3 * spans.idleQueue });
    expect(await broker.listStarted()).toBe("a");
    for (let times = 0; times < 2; times++) {
      broker.now += spans.idleQueue;
      // The message is sent again, because its lease has expired.
      expect(await broker.listStarted()).toBe("a");
      expect(isThere()).toBe(true);
    }
    await broker.cancel("a");
    broker.now += spans.idleQueue;
    expect(await broker.listStarted()).toBe("b");
    await broker.end("b");
    expect(await outlivesIdleness()).toBe(false);
  });

  test("is kept while it is paused, and for long after it was resumed", async () => {
    await broker.run("pauseLimiter", { account: "acme", id: "queue:q" });
    expect(await outlivesIdleness()).toBe(true);
    await broker.run("resumeLimiter", { account: "acme", id: "queue:q" });
    expect(await outlivesIdleness()).toBe(false);
  });
});

test.each([{}, { parallelism: 1 }, { parallelism: 2 }, { paused: false }])(
  "a queue that a request has configured as %o stays",
  async (settings) => {
    await broker.run("upsertQueue", { ...of, ...settings });
    expect(await outlivesIdleness()).toBe(true);
    await broker.send("a", { queue });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a");
    expect(await outlivesIdleness()).toBe(true);
  },
);
