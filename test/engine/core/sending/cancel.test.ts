import { beforeEach, describe, expect, test } from "vitest";
import { callbackTo, noon } from "../commandRunner.ts";
import { RecountedCommandRunner, makeFlowControl } from "../recount.ts";

const second = 1000;
const hour = 3_600_000;

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

const cancelling = (names: string) =>
  broker.run("cancel", { account: "acme", messageIds: names.split(" ").map((name) => broker.id(name)) });
const log = (name: string) => broker.log(broker.id(name));
const lastRow = (name: string) => broker.logRows(broker.id(name)).at(-1);
const held = (name: string) => ({ account: "acme", messageId: broker.id(name), attempt: 0 });

test("a message that is not in flight is cancelled at once", async () => {
  await broker.send("a", { delay: hour });
  expect(
    await broker.run("cancel", {
      account: "acme",
      messageIds: [broker.id("a"), broker.id("a"), "msg_unknown"],
    }),
  ).toEqual({
    cancelled: 1,
    failed: [{ id: "msg_unknown", reason: "the message does not exist" }],
  });
  expect(log("a")).toBe("CANCEL_REQUESTED CANCELLED");
  expect(broker.state(broker.id("a"))).toBeUndefined();
  expect(broker.calledOff).toEqual([]);
});

describe("a message in flight", () => {
  const one = { queue: "q", ...makeFlowControl("k", { parallelism: 1 }) };

  test("is cancelled once, and keeps its lease and its places until its request has ended", async () => {
    await broker.send("a b", one);
    expect(await broker.listStarted()).toBe("a");
    expect(await cancelling("a a")).toEqual({ cancelled: 1 });
    expect(broker.calledOff).toEqual([held("a")]);
    expect(log("a")).toBe("CANCEL_REQUESTED");
    expect(broker.state(broker.id("a"))).toMatchObject({
      state: "cancelling",
      leasedBy: "nod_a",
      dueAt: noon + 30 * second,
    });
    expect(await cancelling("a")).toEqual({
      cancelled: 0,
      failed: [
        { id: broker.id("a"), reason: "the message was already cancelled; its request is still running" },
      ],
    });
    expect(log("a")).toBe("CANCEL_REQUESTED");
    expect([broker.counts("queue:q"), broker.counts("key:k")]).toEqual([
      [1, 1],
      [1, 0],
    ]);
    expect(await broker.listStarted()).toBe("");
    expect(await broker.settle(broker.id("a"), { status: null, error: "aborted" })).toBe("cancelled");
    expect(await broker.listStarted()).toBe("b");
    expect(log("a")).toBe("CANCEL_REQUESTED CANCELLED");
    expect(await broker.settle(broker.id("a"))).toBe("late");
  });

  test.each([
    [{ status: 200 }, { status: 200, error: null }],
    [{ status: 500 }, { status: 500, error: null }],
    [
      { status: null, error: "aborted" },
      { status: null, error: "aborted" },
    ],
  ])("ends with the outcome %j, which is logged and has no consequences", async (outcome, row) => {
    const told = {
      callback: callbackTo("https://told.example"),
      failureCallback: callbackTo("https://failed.example"),
    };
    await broker.send("a", { ...told, retries: 0 });
    await cancelling("a");
    expect(await broker.settle(broker.id("a"), outcome)).toBe("cancelled");
    expect(lastRow("a")).toMatchObject({ states: ["CANCELLED"], ...row });
    expect(broker.listReporters(broker.id("a"))).toEqual([]);
    expect(broker.deadLetters).toEqual([]);
    expect(broker.memory.tables.messages.size).toBe(0);
  });

  test("frees its deduplication id at once, and reports to its dead letter", async () => {
    await broker.send("a", { deduplication: "d" });
    await cancelling("a");
    expect(await broker.publish({ deduplication: "d" })).not.toBe(broker.id("a"));
    await broker.send("b", { retries: 0, failureCallback: callbackTo("https://told.example/") });
    await broker.end("b", { status: 500 });
    await cancelling("https://told.example/");
    expect(broker.deadLetters).toMatchObject([{ failureCallback: { state: "CALLBACK_CANCELED" } }]);
    await broker.end("https://told.example/");
    expect(broker.deadLetters).toMatchObject([{ failureCallback: { state: "CALLBACK_CANCELED" } }]);
  });

  test("is aborted by its own node, which also learns of it when it renews the lease", async () => {
    await broker.send("a b");
    broker.node = "nod_b";
    await cancelling("a");
    expect(broker.calledOff).toEqual([]);
    broker.node = "nod_a";
    broker.now += 29 * second;
    expect(await broker.run("renew", { leases: [held("a"), held("b")] })).toEqual({ renewed: 2 });
    expect(broker.calledOff).toEqual([held("a")]);
    expect(broker.state(broker.id("a"))).toMatchObject({ state: "cancelling", dueAt: noon + 59 * second });
  });

  test("ends with its lease, no matter how often its lease was lost before", async () => {
    await broker.send("a b", one);
    for (let lost = 0; lost < 5; lost++) {
      broker.now += 30 * second;
      await broker.listStarted();
    }
    await cancelling("a");
    broker.now += 30 * second;
    expect(await broker.listStarted()).toBe("b");
    expect(lastRow("a")).toMatchObject({
      states: ["CANCELLED"],
      status: null,
      error: "no report: the lease of node nod_a ran out",
    });
    expect(broker.deadLetters).toEqual([]);
  });

  test("ends when its node returns its lease, or is gone", async () => {
    await broker.send("a b c", one);
    await broker.listStarted();
    await cancelling("a");
    expect(await broker.run("returnLeases", { leases: [held("a")] })).toEqual({ returned: 1 });
    expect(lastRow("a")).toMatchObject({ states: ["CANCELLED"], status: null, error: null });
    expect(await broker.listStarted()).toBe("b");
    await cancelling("b");
    broker.node = "nod_b";
    expect(await broker.run("reclaim", { node: "nod_b", limit: 10 })).toEqual({ reclaimed: 1 });
    expect(await broker.listStarted()).toBe("c");
    expect(log("b")).toMatch(/CANCEL_REQUESTED CANCELLED$/);
  });

  test("shares its queue slot with its callbacks, and the last one frees it", async () => {
    await broker.send("a", { queue: "q", retryDelay: "1000", callback: callbackTo("https://told.example/") });
    await broker.send("b", { queue: "q" });
    await broker.end("a", { status: 500 });
    broker.now += second;
    expect(await broker.listStarted()).toBe("a https://told.example/ a");
    await cancelling("a");
    await broker.end("https://told.example/");
    expect(await broker.listStarted()).toBe("");
    await broker.settle(broker.id("a"), { attempt: 1 });
    expect(await broker.listStarted()).toBe("b");
  });
});
