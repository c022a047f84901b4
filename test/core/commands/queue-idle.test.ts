import { beforeEach, describe, expect, test } from "vitest";
import { spans } from "../../../src/core/values/limits.ts";
import { RecountedCommandRunner } from "../recount.ts";

const second = 1000;
const queue = "q";
const of = { account: "acme", name: "q" };

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

const isThere = (): boolean => broker.findLimiter("queue:q") !== undefined;

/** Whether the queue is there when it has been idle for as long as may be. */
async function outlivesIdleness(): Promise<boolean> {
  broker.now += spans.idleQueue - 1;
  await broker.run("claim", { limit: 10 });
  expect(isThere()).toBe(true);
  broker.now += second;
  await broker.run("claim", { limit: 10 });
  return isThere();
}

describe("a queue that was made by its first message", () => {
  test("is forgotten when nothing was sent through it for long, and made again by the next message", async () => {
    await broker.send("a", { queue });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a");
    expect(await outlivesIdleness()).toBe(false);
    await broker.send("b c", { queue });
    expect(await broker.listStarted()).toBe("b");
    expect(broker.counts("queue:q")).toEqual([1, 1]);
  });

  test("is there as long as a message of it is not finished, or its time has not come", async () => {
    await broker.send("a", { queue });
    await broker.send("b", { queue, delay: 3 * spans.idleQueue });
    expect(await broker.listStarted()).toBe("a");
    for (let times = 0; times < 2; times++) {
      broker.now += spans.idleQueue;
      // Sent again, because its lease has run out.
      expect(await broker.listStarted()).toBe("a");
      expect(isThere()).toBe(true);
    }
    await broker.cancel("a");
    broker.now += spans.idleQueue;
    expect(await broker.listStarted()).toBe("b");
    await broker.end("b");
    expect(await outlivesIdleness()).toBe(false);
  });

  test("is kept while it is paused, and until long after it was resumed", async () => {
    await broker.run("pauseLimiter", { account: "acme", id: "queue:q" });
    expect(await outlivesIdleness()).toBe(true);
    await broker.run("resumeLimiter", { account: "acme", id: "queue:q" });
    expect(await outlivesIdleness()).toBe(false);
  });
});

test.each([{}, { parallelism: 1 }, { parallelism: 2 }, { paused: false }])(
  "a queue that somebody has set up as %o stays",
  async (settings) => {
    await broker.run("upsertQueue", { ...of, ...settings });
    expect(await outlivesIdleness()).toBe(true);
    await broker.send("a", { queue });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a");
    expect(await outlivesIdleness()).toBe(true);
  },
);
