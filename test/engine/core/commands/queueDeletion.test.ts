import { beforeEach, describe, expect, test } from "vitest";
import { callbackTo } from "../commandRunner.ts";
import { RecountedCommandRunner } from "../recount.ts";

const queue = "q";

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

describe("deleting a queue", () => {
  const deleting = { account: "acme", name: queue, slots: [] };

  test("removes an empty queue, and the next message creates a new one", async () => {
    await broker.run("upsertQueue", { account: "acme", name: queue, parallelism: 5, paused: true });
    expect(await broker.run("deleteQueue", deleting)).toEqual({ deleted: true });
    expect(broker.findLimiter("queue:q")).toBeUndefined();
    expect(await broker.run("deleteQueue", deleting)).toEqual({ deleted: true });
    await broker.send("a b", { queue });
    expect(await broker.listStarted()).toBe("a");
    expect(broker.findLimiter("queue:q")).toMatchObject({ parallelism: 1, paused: false });
  });

  test("removes no queue in which messages wait or are in flight", async () => {
    await broker.send("a b", { queue });
    const slots = [broker.id("a")];
    expect(await broker.run("deleteQueue", { ...deleting, slots })).toEqual({ deleted: false });
    await broker.cancel("b");
    expect(await broker.run("deleteQueue", { ...deleting, slots })).toEqual({ deleted: false });
    await broker.cancel("a");
    expect(await broker.run("deleteQueue", { ...deleting, slots })).toEqual({ deleted: true });
  });

  test("lets an aborted request end; a new queue of that name ignores it", async () => {
    await broker.send("a", { queue });
    await broker.cancel("a");
    expect(await broker.run("deleteQueue", { ...deleting, slots: [broker.id("a")] })).toEqual({
      deleted: true,
    });
    await broker.send("b c", { queue });
    expect(await broker.listStarted()).toBe("a b");
    await broker.end("a");
    expect(broker.counts("queue:q")).toEqual([1, 1]);
    expect(broker.memory.tables.queueSlots.size).toBe(1);
  });

  test("lets callbacks end that share its slots; a new queue of that name ignores them", async () => {
    await broker.send("a", {
      queue,
      callback: { ...callbackTo("https://told.example/"), callback: callbackTo("https://toldtoo.example/") },
    });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a");
    expect(await broker.listStarted()).toBe("https://told.example/");
    expect(await broker.run("deleteQueue", deleting)).toEqual({ deleted: false });
    expect(await broker.run("deleteQueue", { ...deleting, slots: [broker.id("a"), "msg_unknown"] })).toEqual({
      deleted: true,
    });
    await broker.send("b c", { queue });
    expect(await broker.listStarted()).toBe("b");
    await broker.end("https://told.example/");
    expect(await broker.listStarted()).toBe("https://toldtoo.example/");
    await broker.end("https://toldtoo.example/");
    expect(broker.counts("queue:q")).toEqual([1, 1]);
    expect(await broker.listStarted()).toBe("");
    expect([...broker.memory.tables.queueSlots.keys()]).toEqual([`acme\n${broker.id("b")}`]);
  });
});
