import { beforeEach, expect, test } from "vitest";
import { pickRunning } from "../../../../src/engine/core/commands/endAttempts.ts";
import { maxLostAttempts } from "../../../../src/engine/core/values/limits.ts";
import { callbackTo, noon } from "../commandRunner.ts";
import { RecountedCommandRunner, makeFlowControl } from "../recount.ts";

const second = 1000;
let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

const ending = (name: string, attempt = 0) =>
  broker.run("endAttempts", { account: "acme", attempts: [{ messageId: broker.id(name), attempt }] });
const state = (name: string) => broker.state(broker.id(name));
const lastRow = (name: string) => broker.logRows(broker.id(name)).at(-1);
const aborted = { status: null, error: "aborted" };

test("an ended attempt keeps its lease and its places, and is sent again after its retry delay", async () => {
  await broker.send("a b", { queue: "q", ...makeFlowControl("k", { parallelism: 1 }), retries: 0 });
  expect(await broker.listStarted()).toBe("a");
  expect(await ending("a")).toEqual({ ended: 1 });
  expect(broker.calledOff).toEqual([{ account: "acme", messageId: broker.id("a"), attempt: 0 }]);
  expect(state("a")).toMatchObject({ state: "ending", leasedBy: "nod_a", dueAt: noon + 30 * second });
  expect(broker.counts("queue:q")).toEqual([1, 1]);
  expect(await broker.listStarted()).toBe("");
  broker.now += second;
  expect(await broker.settle(broker.id("a"), aborted)).toBe("ended");
  expect(state("a")).toMatchObject({ state: "pending", attempts: 1, lostAttempts: 0, endedAttempts: 1 });
  // The default delay of the first retry: the attempt does not count as one.
  expect(state("a")?.dueAt).toBe(broker.now + 12_182);
  expect(lastRow("a")).toMatchObject({
    states: ["ERROR", "RETRY"],
    error: "ended by operator",
    status: null,
    nextDueAt: broker.now + 12_182,
  });
  // It keeps its place in the queue: the next message waits for it.
  broker.now += 12_000;
  expect(await broker.listStarted()).toBe("");
  broker.now += 182;
  expect(await broker.listStarted()).toBe("a");
  expect(await broker.settle(broker.id("a"), { status: 500 })).toBe("failed");
});

test("a press ends the attempt that it names, once", async () => {
  await broker.send("a", { retryDelay: "1000" });
  await broker.listStarted();
  expect(await ending("a", 1)).toEqual({ ended: 0 });
  expect(await ending("a")).toEqual({ ended: 1 });
  expect(await ending("a")).toEqual({ ended: 0 });
  expect(broker.calledOff).toEqual([]);
  await broker.settle(broker.id("a"), aborted);
  broker.now += second;
  expect(await broker.listStarted()).toBe("a");
  expect(await ending("a")).toEqual({ ended: 0 });
  expect(state("a")).toMatchObject({ state: "active", attempts: 1 });
  expect(
    await broker.run("endAttempts", { account: "acme", attempts: [{ messageId: "msg_x", attempt: 0 }] }),
  ).toEqual({
    ended: 0,
  });
});

test.each([
  ["a response", { status: 200 }],
  ["a failure", { status: 500 }],
])("%s that arrives after the press changes nothing", async (_, outcome) => {
  await broker.send("a", { callback: callbackTo("https://told.example"), retries: 0 });
  await broker.listStarted();
  await ending("a");
  expect(await broker.settle(broker.id("a"), outcome)).toBe("ended");
  expect(lastRow("a")).toMatchObject({ states: ["ERROR", "RETRY"], status: null });
  expect([...broker.memory.tables.messages.values()]).toHaveLength(1);
});

test("a response that is stored before the press counts", async () => {
  await broker.send("a");
  await broker.listStarted();
  await broker.settle(broker.id("a"), { status: 200 });
  expect(await ending("a")).toEqual({ ended: 0 });
  expect(broker.log(broker.id("a"))).toBe("DELIVERED");
});

test("the node that sends the message learns of the press when it renews the lease", async () => {
  await broker.send("a");
  await broker.listStarted();
  broker.node = "nod_b";
  expect(await ending("a")).toEqual({ ended: 1 });
  expect(broker.calledOff).toEqual([]);
  broker.node = "nod_a";
  broker.now += 5 * second;
  await broker.run("renew", { leases: [{ account: "acme", messageId: broker.id("a"), attempt: 0 }] });
  expect(broker.calledOff).toEqual([{ account: "acme", messageId: broker.id("a"), attempt: 0 }]);
  expect(state("a")).toMatchObject({ startedAt: noon });
});

test("a node that dies while it ends an attempt loses it, and the next attempt is not ended", async () => {
  await broker.send("a");
  await broker.listStarted();
  await ending("a");
  broker.node = "nod_b";
  broker.now += 31 * second;
  expect(await broker.listStarted()).toBe("a");
  expect(state("a")).toMatchObject({ state: "active", attempts: 1, lostAttempts: 1, leasedBy: "nod_b" });
  expect(state("a")).not.toHaveProperty("endedAttempts");
});

test("a node that stops gives the message back after its retry delay", async () => {
  await broker.send("a", { retryDelay: "7000" });
  await broker.listStarted();
  await ending("a");
  await broker.run("returnLeases", { leases: [{ account: "acme", messageId: broker.id("a"), attempt: 0 }] });
  expect(state("a")).toMatchObject({
    state: "pending",
    attempts: 1,
    endedAttempts: 1,
    dueAt: noon + 7 * second,
  });
});

test("any number of ended attempts uses up no retry", async () => {
  await broker.send("a", { retries: 1, retryDelay: "1000" });
  await broker.listStarted();
  for (let attempt = 0; attempt < maxLostAttempts + 2; attempt++) {
    expect(await ending("a", attempt)).toEqual({ ended: 1 });
    await broker.settle(broker.id("a"), aborted);
    broker.now += second;
    expect(await broker.listStarted()).toBe("a");
  }
  expect(await broker.settle(broker.id("a"), { status: 500 })).toBe("retry");
  broker.now += second;
  await broker.listStarted();
  expect(await broker.settle(broker.id("a"), { status: 500 })).toBe("failed");
});

test("a message that is cancelled after the press is cancelled", async () => {
  await broker.send("a");
  await broker.listStarted();
  await ending("a");
  await broker.run("cancel", { account: "acme", messageIds: [broker.id("a")] });
  expect(await broker.settle(broker.id("a"), aborted)).toBe("cancelled");
});

test("the audit log names who ended the attempts of a host", async () => {
  await broker.send("a");
  await broker.listStarted();
  const by = { kind: "token" as const, token: "tok_1", address: null };
  const attempts = [{ messageId: broker.id("a"), attempt: 0 }];
  const input = { account: "acme", host: "shop.example", attempts, by };
  await broker.run("endAttempts", input);
  await broker.run("endAttempts", input);
  expect([...broker.memory.tables.audit.values()]).toMatchObject([
    { what: "host.endAttempts", object: "shop.example", count: 1, by },
  ]);
});

test("attempts that began after a time are not picked", () => {
  const running = { account: "acme", state: "active", attempts: 2, leasedBy: "nod_a" } as const;
  const states = [
    { ...running, id: "early", dueAt: noon + 30 * second },
    { ...running, id: "late", dueAt: noon + 31 * second },
    { ...running, id: "long", dueAt: noon + 40 * second, startedAt: noon },
    { ...running, id: "ended", state: "ending", dueAt: noon + 30 * second },
  ] as unknown as Parameters<typeof pickRunning>[0];
  expect(pickRunning(states, noon)).toEqual([
    { messageId: "early", attempt: 2 },
    { messageId: "long", attempt: 2 },
  ]);
});
