import { beforeEach, describe, expect, test } from "vitest";
import { RecountedCommandRunner, makeFlowControl } from "../recount.ts";

const minute = 60_000;

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

const idOf = (label: string): string => {
  const message = [...broker.memory.tables.storedMessages.values()].find(({ labels }) => labels[0] === label);
  return message?.id ?? "";
};
const sendNow = (label: string, account = "acme") =>
  broker.run("sendNow", { account, messageId: idOf(label) });

describe("a message that is sent now", () => {
  test("is sent before the end of its delay, once", async () => {
    await broker.send("a b", { delay: 60 * minute });
    expect(await sendNow("a")).toEqual({ changed: true });
    expect(await broker.listStarted()).toBe("a");
    expect(await sendNow("a")).toEqual({ changed: false });
    await broker.end("a");
    expect(await sendNow("a")).toBeNull();
    expect(await broker.listStarted()).toBe("");
  });

  test("is retried before its next retry is due, which uses up that retry", async () => {
    await broker.send("a", { retries: 1, retryDelay: String(60 * minute) });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a", { status: 500 });
    expect(await sendNow("a")).toEqual({ changed: true });
    expect(await broker.listStarted()).toBe("a");
    await broker.end("a", { status: 500 });
    expect(await sendNow("a")).toBeNull();
    expect(broker.memory.tables.deadLetters.size).toBe(1);
  });

  test("waits for its key and for earlier messages of its queue", async () => {
    await broker.send("first", { ...makeFlowControl("k", { parallelism: 1 }) });
    await broker.send("a", { ...makeFlowControl("k", { parallelism: 1 }), delay: 60 * minute });
    await broker.send("one two", { queue: "q" });
    await broker.send("three", { queue: "q", delay: 60 * minute });
    expect(await broker.listStarted()).toBe("first one");
    expect(await sendNow("a")).toEqual({ changed: true });
    expect(await sendNow("three")).toEqual({ changed: true });
    expect(await broker.listStarted()).toBe("");
    expect(await sendNow("a")).toEqual({ changed: false });
    await broker.end("one");
    expect(await broker.listStarted()).toBe("two");
    await broker.end("first");
    await broker.end("two");
    expect((await broker.listStarted()).split(" ").toSorted()).toEqual(["a", "three"]);
  });

  test("waits for its paused queue", async () => {
    await broker.run("pauseLimiter", { account: "acme", id: "queue:q" });
    await broker.send("a", { queue: "q", delay: 60 * minute });
    await sendNow("a");
    broker.now += minute;
    expect(await broker.listStarted()).toBe("");
    await broker.run("resumeLimiter", { account: "acme", id: "queue:q" });
    expect(await broker.listStarted()).toBe("a");
  });

  test("must belong to the account, and must not be cancelled", async () => {
    await broker.send("a b", { delay: 60 * minute });
    expect(await sendNow("a", "other")).toBeNull();
    expect(await sendNow("none")).toBeNull();
    await broker.run("cancel", { account: "acme", messageIds: [idOf("b")] });
    expect(await sendNow("b")).toBeNull();
    expect(await broker.listStarted()).toBe("");
  });
});
