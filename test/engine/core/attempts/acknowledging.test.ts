import { beforeEach, describe, expect, test } from "vitest";
import { findHoldEnd } from "../../../../src/engine/core/attempts/acknowledging.ts";
import type { AttemptReport } from "../../../../src/engine/core/commands/reportAttempt.ts";
import type { HeaderList } from "../../../../src/engine/core/values/basics.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import { hour, minute, second } from "../../../../src/engine/core/values/time.ts";
import { bytes, callbackTo, makeInput, noon } from "../commandRunner.ts";
import { RecountedCommandRunner, makeFlowControl } from "../recount.ts";

let broker: RecountedCommandRunner;
beforeEach(async () => {
  broker = await RecountedCommandRunner.open();
});

const later: HeaderList = [["Svc-Ack", "later"]];
const state = (name: string) => broker.state(broker.id(name));

/** Publishes a message, sends it, and lets its receiver take over the first attempt. */
async function hold(name: string, input: Partial<MessageInput> = {}): Promise<void> {
  await broker.send(name, { ackTimeout: hour, ...input });
  await broker.listStarted();
  expect(await broker.settle(broker.id(name), { status: 202, headers: later })).toBe("acknowledging");
}

/** Reports an outcome, and returns what the message became. */
async function report(name: string, status: number, of: Partial<AttemptReport> = {}): Promise<string> {
  const { became } = await broker.run("reportAttempt", {
    ...{ account: "acme", messageId: broker.id(name), attempt: 0, digest: `of ${status}` },
    outcome: { status, headers: [], body: bytes(`result ${status}`) },
    ...of,
  });
  return became;
}

const extend = (name: string, extension: number) =>
  broker.run("extendAttempt", { account: "acme", messageId: broker.id(name), attempt: 0, extension });
const refused = (code: string) => new RegExp(`"refused":"${code}"|${code}`);

describe("the time of a hold", () => {
  const message = { ackTimeout: hour };
  test.each<[string, [status: number, headers: HeaderList], number | null]>([
    ["an answer that asks for it", [202, later], hour],
    ["the other brand", [202, [["Upstash-Ack", "LATER"]]], hour],
    ["a shorter time of the receiver", [202, [...later, ["Svc-Ack-Timeout", "10m"]]], 10 * minute],
    ["a longer time of the receiver", [202, [...later, ["Svc-Ack-Timeout", "3h"]]], hour],
    ["a time that cannot be read", [202, [...later, ["Svc-Ack-Timeout", "soon"]]], hour],
    ["a plain 202", [202, []], null],
    ["another value", [202, [["Svc-Ack", "now"]]], null],
    ["another status", [200, later], null],
    ["a failure", [503, later], null],
  ])("%s", (_, [status, headers], time) => {
    expect(findHoldEnd(message, { status, headers }, noon)).toBe(time === null ? null : noon + time);
  });

  test("without the setting, the answer is an ordinary 202", async () => {
    expect(findHoldEnd({}, { status: 202, headers: later }, noon)).toBeNull();
    await broker.send("a");
    await broker.listStarted();
    expect(await broker.settle(broker.id("a"), { status: 202, headers: later })).toBe("delivered");
  });

  test("a message that hides the headers of the server cannot be held", async () => {
    await broker.send("a", { ackTimeout: hour, hideHeaders: true });
    await broker.listStarted();
    expect(await broker.settle(broker.id("a"), { status: 202, headers: later })).toBe("delivered");
  });
});

test("an attempt that is given back has another number, and uses up neither a retry nor a time", async () => {
  await broker.send("a", { ackTimeout: hour, retries: 0 });
  await broker.listStarted();
  const lease = { account: "acme", messageId: broker.id("a"), attempt: 0, hasToken: true };
  await broker.run("returnLeases", { leases: [lease] });
  expect(state("a")).toMatchObject({ state: "pending", attempts: 1, lostAttempts: 0, endedAttempts: 1 });
  await broker.listStarted();
  expect(await broker.settle(broker.id("a"), { status: 202, headers: later })).toBe("acknowledging");
  await expect(report("a", 500)).rejects.toThrow(refused("attempt-ended"));
  expect(await report("a", 200, { attempt: 1 })).toBe("delivered");
});

test("a held attempt keeps its places until its report, and is bound to no node", async () => {
  await broker.send("a b", { ackTimeout: hour, queue: "q", ...makeFlowControl("k", { parallelism: 1 }) });
  await broker.listStarted();
  expect(await broker.settle(broker.id("a"), { status: 202, headers: later })).toBe("acknowledging");
  expect(state("a")).toMatchObject({
    ...{ state: "acknowledging", leasedBy: "receiver", startedAt: noon, dueAt: noon + hour, attempts: 0 },
  });
  expect(broker.log(broker.id("a"))).toBe("ACKNOWLEDGING");
  expect(broker.counts("queue:q")).toEqual([1, 1]);
  expect(broker.counts("key:k")).toEqual([1, 0]);
  broker.now += 59 * minute;
  expect(await broker.listStarted()).toBe("");
  expect(await report("a", 200)).toBe("delivered");
  expect(broker.log(broker.id("a"))).toBe("ACKNOWLEDGING DELIVERED");
  expect(await broker.listStarted()).toBe("b");
});

test("an outcome counts as if the endpoint had answered with it", async () => {
  await hold("a", { callback: callbackTo("https://told.example/"), retries: 1, retryDelay: "5000" });
  expect(broker.listReporters(broker.id("a"))).toHaveLength(0);
  expect(await report("a", 500)).toBe("retry");
  expect(state("a")).toMatchObject({ state: "pending", attempts: 1, dueAt: noon + 5 * second });
  expect(state("a")).not.toHaveProperty("startedAt");
  expect(broker.listReporters(broker.id("a"))).toHaveLength(1);
  broker.now += 5 * second;
  await broker.listStarted();
  expect(await broker.settle(broker.id("a"), { status: 202, headers: later })).toBe("acknowledging");
  expect(await report("a", 503, { attempt: 1 })).toBe("failed");
  expect(broker.deadLetters).toMatchObject([{ status: 503, body: bytes("result 503") }]);
  expect(broker.listReporters(broker.id("a"))).toHaveLength(2);
});

test("Retry-After of a report decides when the message is sent again", async () => {
  await hold("a");
  const outcome = { status: 500, headers: [["Retry-After", "60"]] as HeaderList, body: bytes("") };
  expect(await report("a", 500, { outcome })).toBe("retry");
  expect(state("a")?.dueAt).toBe(noon + minute);
});

test("an attempt has one outcome, and a repeated report gets the same answer", async () => {
  await hold("a", { retryDelay: "1000" });
  expect(await report("a", 500)).toBe("retry");
  expect(await report("a", 500)).toBe("retry");
  await expect(report("a", 200)).rejects.toThrow(refused("attempt-reported"));
  broker.now += second;
  expect(await broker.listStarted()).toBe("a");
  expect(await report("a", 500)).toBe("retry");
  expect(state("a")).toMatchObject({ state: "active", attempts: 1 });
  await expect(report("a", 200, { attempt: 2 })).rejects.toThrow(refused("attempt-ended"));
});

test("without a report in time, the attempt has failed and is retried like any other", async () => {
  await hold("a", { retries: 1, retryDelay: "5000" });
  broker.now += hour;
  expect(await broker.listStarted()).toBe("");
  expect(state("a")).toMatchObject({
    state: "pending",
    attempts: 1,
    lostAttempts: 0,
    dueAt: broker.now + 5000,
  });
  expect(broker.logRows(broker.id("a")).at(-1)).toMatchObject({
    states: ["ERROR", "RETRY"],
    error: "timed out: the holder of the attempt reported no outcome in time",
  });
  await expect(report("a", 200)).rejects.toThrow(refused("attempt-ended"));
  broker.now += 5000;
  expect(await broker.listStarted()).toBe("a");
  await broker.settle(broker.id("a"), { status: 202, headers: later });
  broker.now += hour;
  await broker.listStarted();
  expect(broker.deadLetters).toHaveLength(1);
});

test("a report that is stored after the deadline counts, if no claim has ended the attempt", async () => {
  await hold("a");
  broker.now += 2 * hour;
  expect(await report("a", 200)).toBe("delivered");
});

test("a hold can be extended, to at most 12 hours after the answer", async () => {
  await hold("a", { ackTimeout: minute });
  broker.now += 30 * second;
  expect(await extend("a", 10 * minute)).toEqual({ until: broker.now + 10 * minute });
  expect(await extend("a", second)).toEqual({ until: broker.now + 10 * minute });
  broker.now += 9 * minute;
  expect(await extend("a", 12 * hour)).toEqual({ until: noon + 12 * hour });
  broker.now = noon + 12 * hour;
  await broker.listStarted();
  expect(state("a")).toMatchObject({ state: "pending" });
  await expect(extend("a", minute)).rejects.toThrow(refused("attempt-ended"));
});

test("a report that overtakes the response of the endpoint changes nothing yet", async () => {
  await broker.send("a", { ackTimeout: hour });
  await broker.listStarted();
  expect(await report("a", 200)).toBe("early");
  expect(await extend("a", hour)).toEqual({ became: "early" });
  expect(state("a")).toMatchObject({ state: "active" });
  await broker.settle(broker.id("a"), { status: 202, headers: later });
  expect(await report("a", 200)).toBe("delivered");
});

test("a cancel ends a held attempt at once, and its report is refused", async () => {
  await hold("a", { queue: "q" });
  await broker.send("b", { queue: "q" });
  await broker.cancel("a");
  expect(state("a")).toBeUndefined();
  expect(broker.log(broker.id("a"))).toBe("ACKNOWLEDGING CANCEL_REQUESTED CANCELLED");
  expect(await broker.listStarted()).toBe("b");
  await expect(report("a", 200)).rejects.toThrow(refused("attempt-ended"));
});

test("an operator ends a held attempt, which uses up no retry", async () => {
  await hold("a", { retries: 0, retryDelay: "5000" });
  const attempts = [{ messageId: broker.id("a"), attempt: 0 }];
  expect(await broker.run("endAttempts", { account: "acme", attempts })).toEqual({ ended: 1 });
  expect(await broker.run("endAttempts", { account: "acme", attempts })).toEqual({ ended: 0 });
  expect(state("a")).toMatchObject({ state: "pending", attempts: 1, endedAttempts: 1, dueAt: noon + 5000 });
  await expect(report("a", 200)).rejects.toThrow(refused("attempt-ended"));
});

test("a restart and a takeover leave a held attempt alone", async () => {
  await hold("a");
  broker.node = "nod_b";
  expect(await broker.run("reclaim", { node: "nod_b", limit: 10 })).toEqual({ reclaimed: 0 });
  broker.memory.memberships.set("nod_a", 1);
  const gone = { node: "nod_a", membership: 1, now: broker.now, limit: 10 };
  expect(await broker.run("takeOver", gone)).toEqual({ reclaimed: 0 });
  expect(state("a")).toMatchObject({ state: "acknowledging", dueAt: noon + hour });
  expect(await report("a", 200)).toBe("delivered");
});

test("a paused queue does not stop the report, only the retry", async () => {
  await hold("a", { queue: "q", retryDelay: "1000" });
  await broker.run("pauseLimiter", { account: "acme", id: "queue:q" });
  expect(await report("a", 500)).toBe("retry");
  broker.now += minute;
  expect(await broker.listStarted()).toBe("");
  expect(broker.counts("queue:q")).toEqual([1, 0]);
  await broker.run("resumeLimiter", { account: "acme", id: "queue:q" });
  broker.now += minute;
  expect(await broker.listStarted()).toBe("a");
});

test("messages of a queue take its time if they set none, and a change applies to later ones", async () => {
  await broker.run("upsertQueue", { account: "acme", name: "q", parallelism: 5, ackTimeout: minute });
  await broker.send("a", { queue: "q" });
  await broker.send("b", { queue: "q", ackTimeout: hour });
  await broker.run("upsertQueue", { account: "acme", name: "q", ackTimeout: null });
  await broker.send("c", { queue: "q" });
  await broker.listStarted();
  for (const name of ["a", "b"]) await broker.settle(broker.id(name), { status: 202, headers: later });
  expect([state("a")?.dueAt, state("b")?.dueAt]).toEqual([noon + minute, noon + hour]);
  expect(await broker.settle(broker.id("c"), { status: 202, headers: later })).toBe("delivered");
  expect(broker.findLimiter("queue:q")).not.toHaveProperty("ackTimeout");
});

test("a retried dead letter has its own key, and a plain message has none", async () => {
  await hold("a", { retries: 0 });
  await report("a", 500);
  const [deadLetter] = broker.deadLetters;
  await broker.run("retryDeadLetters", {
    ...{ account: "acme", dlqIds: [deadLetter?.id ?? ""], logRetention: hour, overrides: {} },
  });
  await broker.send("b");
  const stored = [...broker.memory.tables.storedMessages.values()];
  expect(stored.map(({ ackTimeout, ackKey }) => [ackTimeout, ackKey !== undefined])).toEqual([
    [hour, true],
    [hour, true],
    [undefined, false],
  ]);
});

describe("a message of a workflow run", () => {
  const endpoint = "https://app.example/order";
  const run = { runId: "wfr_1" } as const;

  async function startRun(): Promise<string> {
    const features = { lazyFetch: true, initialBody: true, detect: true, captured: true };
    const post = { ...run, kind: "start", url: endpoint, features, origin: "sdk", invoker: null } as const;
    return broker.publish(makeInput({ url: endpoint, post, ackTimeout: hour }));
  }

  async function holdCall(): Promise<string> {
    await startRun();
    const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 1 };
    const id = await broker.publish({
      ...{ url: "https://third.example/x", callback: callbackTo(endpoint), retries: 0, ackTimeout: hour },
      post: { ...run, kind: "call", head },
    });
    expect(await broker.settle(id, { status: 202, headers: later })).toBe("acknowledging");
    return id;
  }

  test("that calls the endpoint is never held, because the step that it posts settles it", async () => {
    const id = await startRun();
    expect(broker.deliveries[0]?.message).not.toHaveProperty("ackKey");
    expect(await broker.settle(id, { status: 202, headers: later })).not.toBe("acknowledging");
  });

  test("that calls a third party continues the run with the report", async () => {
    const messageId = await holdCall();
    const { became } = await broker.run("reportAttempt", {
      ...{ account: "acme", messageId, attempt: 0, digest: "d" },
      outcome: { status: 200, headers: [], body: bytes("made 7") },
    });
    expect(became).toBe("delivered");
    const told = broker.deliveries.find(({ message }) => message.run?.kind === "result");
    expect(JSON.parse(new TextDecoder().decode(told?.message.body))).toMatchObject({ status: 200 });
  });

  test("that calls a third party ends with its run, and its report is refused", async () => {
    const messageId = await holdCall();
    await broker.run("cancelRuns", { account: "acme", runIds: ["wfr_1"] });
    expect(broker.state(messageId)).toBeUndefined();
    const late = broker.run("reportAttempt", {
      ...{ account: "acme", messageId, attempt: 0, digest: "d" },
      outcome: { status: 200, headers: [], body: bytes("") },
    });
    await expect(late).rejects.toThrow(refused("attempt-ended"));
  });
});
