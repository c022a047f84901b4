import { beforeEach, describe, expect, test } from "vitest";
import { normalizeOrigin } from "../../../../src/engine/core/accounts/pulledOrigins.ts";
import { limits } from "../../../../src/engine/core/values/limits.ts";
import { hour, minute, second } from "../../../../src/engine/core/values/time.ts";
import type { Account } from "../../../../src/engine/core/model/account.ts";
import { ampleCapacity, makeInput, noon } from "../commandRunner.ts";
import { RecountedCommandRunner, makeFlowControl } from "../recount.ts";

let broker: RecountedCommandRunner;
const origin = "https://worker.internal";
const host = "worker.internal";
const lane = `acme ${host}`;

/** Lets pullers on this node wait for a number of messages. */
const letWait = (pulls: number): void => {
  broker.capacity = { ...ampleCapacity, ...(pulls > 0 && { pulls: new Map([[lane, pulls]]) }) };
};

beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
  await broker.run("addPulledOrigin", { account: "acme", name: origin });
});

const send = (names: string, input: object = {}) => broker.send(names, { url: `${origin}/work`, ...input });
const state = (name: string) => broker.state(broker.id(name));
const serve = (limit = 10) => broker.run("servePullers", { account: "acme", host, limit });
const hold = (name: string, heldFor: number = minute) =>
  broker.settle(broker.id(name), { status: null, heldFor });
const report = (name: string, status: number, attempt = 0) =>
  broker.run("reportAttempt", {
    ...{ account: "acme", messageId: broker.id(name), attempt, digest: `of ${status}` },
    outcome: { status, headers: [], body: new Uint8Array() },
  });

test("a message to a pulled origin is not sent, and waits for a puller in order", async () => {
  await send("a b c");
  expect(await broker.listStarted()).toBe("");
  expect(["a", "b", "c"].map((name) => state(name)?.waitlist)).toEqual(Array(3).fill(`capacity:${host}`));
  letWait(2);
  expect(await serve()).toEqual({ areLeft: true, isPulled: true });
  expect(broker.deliveries.map(({ message, pullKey }) => [message.labels[0], typeof pullKey])).toEqual([
    ["a", "string"],
    ["b", "string"],
  ]);
  expect(await serve()).toEqual({ areLeft: false, isPulled: true });
});

test("a waiting puller gets a new message at once, and no other host is affected", async () => {
  letWait(1);
  await send("a");
  letWait(0);
  await send("b");
  expect(await broker.listStarted()).toBe("a");
  await broker.send("other");
  expect(await broker.listStarted()).toBe("other");
  expect(broker.deliveries.every(({ pullKey }) => pullKey === undefined)).toBe(true);
});

test("the same origin is not pulled for another account, even while a puller waits", async () => {
  const { pulled: _none, ...account } = broker.memory.tables.accounts.get("acme") ?? {};
  await broker.run("createAccount", { ...(account as Account), id: "other", tokenHash: "o" });
  await broker.run("publish", { account: "other", inputs: [makeInput({ url: `${origin}/work` })] });
  expect(broker.deliveries.map(({ pullKey }) => pullKey)).toEqual([undefined]);
  await expect(broker.run("servePullers", { account: "other", host, limit: 1 })).resolves.toEqual({
    ...{ areLeft: false, isPulled: false },
  });
});

test("a message keeps its slots until the report, and holds none while it waits for a puller", async () => {
  const limited = { queue: "q", ...makeFlowControl("k", { parallelism: 1 }) };
  await send("a b", limited);
  await broker.listStarted();
  expect([broker.counts("queue:q"), broker.counts("key:k")]).toEqual([
    [1, 1],
    [0, 0],
  ]);
  letWait(5);
  await serve();
  expect(broker.deliveries).toHaveLength(1);
  expect(await hold("a")).toBe("acknowledging");
  expect(state("a")).toMatchObject({ state: "acknowledging", leasedBy: "puller", dueAt: noon + minute });
  expect([broker.counts("queue:q"), broker.counts("key:k")]).toEqual([
    [1, 1],
    [1, 0],
  ]);
  expect(await broker.listStarted()).toBe("a");
  expect(await report("a", 200)).toEqual({ became: "delivered" });
  expect(broker.log(broker.id("a"))).toBe("ACTIVE ACKNOWLEDGING DELIVERED");
  expect(await broker.listStarted()).toBe("b");
});

test("an attempt that no puller received is due again, and uses up no retry", async () => {
  letWait(1);
  await send("a", { retries: 0 });
  await broker.listStarted();
  expect(await broker.settle(broker.id("a"), { status: null, isReturned: true })).toBe("retry");
  expect(state("a")).toMatchObject({ state: "pending", attempts: 1, endedAttempts: 1, dueAt: noon });
  await expect(report("a", 200)).rejects.toThrow(/attempt-ended/);
  expect(await broker.listStarted()).toBe("a");
  expect(await hold("a")).toBe("acknowledging");
  expect(await report("a", 500, 1)).toEqual({ became: "failed" });
});

const giveBack = (name: string, attempt = 0) =>
  broker.run("reportAttempt", {
    ...{ account: "acme", messageId: broker.id(name), attempt, digest: "returned" },
    outcome: { status: null, headers: [], body: new Uint8Array(), isReturned: true },
  });

test("a puller gives an attempt back, which uses up no retry, and keeps no slot", async () => {
  letWait(1);
  await send("a b", { retries: 0, queue: "q" });
  await broker.listStarted();
  await hold("a");
  for (let turn = 0; turn < 2; turn++) expect(await giveBack("a")).toEqual({ became: "retry" });
  expect(state("a")).toMatchObject({ state: "pending", attempts: 1, endedAttempts: 1, dueAt: noon });
  expect(broker.logRows(broker.id("a")).at(-1)).toMatchObject({
    ...{ states: ["ERROR", "RETRY"], status: null },
    error: "the client that pulled the attempt gave it back",
  });
  await expect(report("a", 200)).rejects.toThrow(/attempt-reported/);
  expect(await broker.listStarted()).toBe("a");
  expect(broker.deliveries).toMatchObject([{ attempt: 1, uncounted: 1 }]);
  await hold("a");
  expect(await report("a", 500, 1)).toEqual({ became: "failed" });
});

test("an attempt that was sent cannot be given back, also if its origin is pulled later", async () => {
  await broker.run("removePulledOrigin", { account: "acme", name: origin });
  await send("a", { ackTimeout: hour });
  expect(await broker.listStarted()).toBe("a");
  const later = { status: 202, headers: [["Svc-Ack", "later"]] } as const;
  expect(await broker.settle(broker.id("a"), later)).toBe("acknowledging");
  await broker.run("addPulledOrigin", { account: "acme", name: origin });
  await expect(giveBack("a")).rejects.toThrow(/conflict.*cannot be returned/);
  expect(state("a")).toMatchObject({ state: "acknowledging", leasedBy: "receiver" });
  expect(await report("a", 200)).toEqual({ became: "delivered" });
});

test("a message that is returned again and again waits longer each time, up to a minute", async () => {
  letWait(1);
  await send("a", { retries: 0 });
  const waits: number[] = [];
  for (let attempt = 0; attempt < 10; attempt++) {
    await broker.listStarted();
    await hold("a");
    await giveBack("a", attempt);
    const { dueAt } = state("a") ?? {};
    waits.push(((dueAt ?? 0) - broker.now) / second);
    broker.now = dueAt ?? 0;
  }
  expect(waits).toEqual([0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
});

test("an attempt that was pulled is given back, also if its origin is sent to again", async () => {
  letWait(1);
  await send("a", { ackTimeout: hour });
  await hold("a");
  await broker.run("removePulledOrigin", { account: "acme", name: origin });
  expect(await giveBack("a")).toEqual({ became: "retry" });
});

test("without a report in time, the attempt has failed", async () => {
  letWait(1);
  await send("a", { retryDelay: "1000" });
  await hold("a", 10 * second);
  broker.now += 10 * second;
  await broker.listStarted();
  expect(state("a")).toMatchObject({ state: "pending", attempts: 1, dueAt: broker.now + second });
  await expect(report("a", 200)).rejects.toThrow(/attempt-ended/);
  expect(broker.logRows(broker.id("a")).at(-1)).toMatchObject({
    ...{ states: ["ERROR", "RETRY"], status: null },
    error: "timed out: the holder of the attempt reported no outcome in time",
  });
});

test("a puller holds no attempt for longer than a receiver may", async () => {
  letWait(1);
  await send("a");
  await hold("a", 100 * hour);
  expect(state("a")?.dueAt).toBe(noon + limits.ackTimeout);
});

test("a cancelled message is not held, and is not due again", async () => {
  letWait(2);
  await send("a b");
  await broker.run("cancel", { account: "acme", messageIds: [broker.id("a")] });
  expect(await hold("a")).toBe("cancelled");
  await hold("b");
  await broker.run("cancel", { account: "acme", messageIds: [broker.id("b")] });
  expect([state("a"), state("b")]).toEqual([undefined, undefined]);
  await expect(report("b", 200)).rejects.toThrow(/attempt-ended/);
});

test("an operator ends an attempt that a puller holds, or that is on its way to it", async () => {
  letWait(2);
  await send("a b", { retryDelay: "1000" });
  await hold("b");
  const attempts = ["a", "b"].map((name) => ({ messageId: broker.id(name), attempt: 0 }));
  expect(await broker.run("endAttempts", { account: "acme", attempts })).toEqual({ ended: 2 });
  expect(await hold("a")).toBe("ended");
  expect([state("a")?.state, state("b")?.state]).toEqual(["pending", "pending"]);
});

test("after the origin is removed, waiting messages are sent, and held attempts stay held", async () => {
  letWait(1);
  await send("a");
  letWait(0);
  await send("b");
  await broker.listStarted();
  await hold("a");
  expect(await broker.run("removePulledOrigin", { account: "acme", name: origin })).toEqual({
    deleted: true,
  });
  expect(await broker.listStarted()).toBe("b");
  expect(broker.deliveries[0]?.pullKey).toBeUndefined();
  expect(await report("a", 200)).toEqual({ became: "delivered" });
  expect(await broker.run("removePulledOrigin", { account: "acme", name: origin })).toEqual({
    deleted: false,
  });
});

test("an attempt whose token was shown has another number after its lease was given back", async () => {
  letWait(1);
  await send("a");
  await broker.listStarted();
  // Whether the origin is still pulled does not matter.
  await broker.run("removePulledOrigin", { account: "acme", name: origin });
  const lease = { account: "acme", messageId: broker.id("a"), attempt: 0 };
  await broker.run("returnLeases", { leases: [{ ...lease, hasToken: true }] });
  expect(state("a")).toMatchObject({ state: "pending", attempts: 1, endedAttempts: 1 });
});

test("an attempt that nobody has seen keeps its number after its lease was given back", async () => {
  letWait(1);
  await send("a");
  await broker.listStarted();
  await broker.run("returnLeases", { leases: [{ account: "acme", messageId: broker.id("a"), attempt: 0 }] });
  expect(state("a")).toMatchObject({ state: "pending", attempts: 0 });
});

test("the key of the tokens stays when origins change", async () => {
  const key = () => broker.memory.tables.accounts.get("acme")?.pulled?.key;
  const first = key();
  await broker.run("removePulledOrigin", { account: "acme", name: origin });
  await broker.run("addPulledOrigin", { account: "acme", name: origin });
  expect([typeof first, key()]).toEqual(["string", first]);
});

test("the number of origins is limited, and both schemes of a host are one", async () => {
  for (let at = 1; at < limits.pulledOrigins; at++)
    await broker.run("addPulledOrigin", { account: "acme", name: `https://h${at}.internal` });
  const add = (name: string) => broker.run("addPulledOrigin", { account: "acme", name });
  await expect(add("https://more.internal")).rejects.toThrow(/limit-exceeded/);
  await expect(add(`http://${host}`)).rejects.toThrow(/conflict/);
  expect(await add(origin)).toEqual({ origin });
});

describe("an origin", () => {
  test.each([
    ["https://Worker.internal", "https://worker.internal"],
    ["https://worker.internal/", "https://worker.internal"],
    ["https://worker.internal:443", "https://worker.internal"],
    ["http://10.0.0.7:8080", "http://10.0.0.7:8080"],
    ["http://[::1]:80", "http://[::1]"],
  ])("%s is stored as %s", (text, stored) => {
    expect(normalizeOrigin(text)).toBe(stored);
  });

  test.each([
    ...["", "worker.internal", "ftp://worker.internal", "https://worker.internal/x"],
    ...["https://worker.internal?x", "https://worker.internal#x", "https://u:p@worker.internal"],
    ...["https://@worker.internal", "https://worker.internal?", "javascript:alert(1)", "https://*.internal/"],
    `https://${"a".repeat(300)}.internal`,
    `https://worker.internal${" ".repeat(1000)}`,
  ])("is not %j", (text) => {
    expect(() => normalizeOrigin(text)).toThrow(/origin: .* is not an origin/);
  });
});
