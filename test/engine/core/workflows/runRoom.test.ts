import { expect, test } from "vitest";
import { limits } from "../../../../src/engine/core/values/limits.ts";
import type { InvokerPost, RunFeatures } from "../../../../src/engine/core/model/runPost.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { WaitPost } from "../../../../src/engine/core/commands/wait.ts";
import { createIdGenerator } from "../../../../src/engine/core/values/ids.ts";
import { memoryStore } from "../../../model/memoryStore.ts";
import {
  CommandRunner,
  bytes,
  callbackTo,
  makeInput,
  noon,
  makeOutcome,
  makeEventWait,
} from "../commandRunner.ts";

// A step that comes from outside never makes the history of a run exceed its limit.

const endpoint = "https://app.example/order";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: false, captured: true };
const stepAt = (stepId: number) => ({ stepId, stepName: "s", stepType: "Wait", concurrent: 1 });

const startOf = (
  runId: string,
  invoker: InvokerPost | null = null,
  more: Partial<RunFeatures> = {},
): MessageInput =>
  makeInput({
    url: endpoint,
    post: { kind: "start", runId, url: endpoint, features: { ...features, ...more }, origin: "sdk", invoker },
  });

const waiterAt = (stepId: number): WaitPost => ({ ...makeEventWait("paid", stepId), step: stepAt(stepId) });

const publish = (broker: CommandRunner, input: MessageInput) =>
  broker.run("publish", { account: "acme", inputs: [input] });

/** Returns a broker with a run whose history has this length. */
async function long(size: number, more: Partial<RunFeatures> = {}): Promise<CommandRunner> {
  const broker = await CommandRunner.open();
  await publish(broker, startOf("wfr_1", null, more));
  resize(broker, { size });
  return broker;
}

function resize({ memory: { tables } }: CommandRunner, change: { size?: number; steps?: number }): void {
  for (const [key, active] of tables.activeRuns)
    if (active.runId === "wfr_1") tables.activeRuns.set(key, { ...active, ...change });
}

const event = new Uint8Array(3000);
const toRun = { account: "acme", event: "paid", body: event, runId: "wfr_1", kind: "event" } as const;

test("an event that does not fit is refused, and wakes no step of the run", async () => {
  const broker = await long(limits.historyBytes - 10_000);
  for (const stepId of [1, 2, 3])
    await broker.run("wait", { account: "acme", runId: "wfr_1", waiter: waiterAt(stepId) });
  await expect(broker.run("notify", toRun)).rejects.toThrow(
    "eventId: it does not fit into the history of the run wfr_1",
  );
  expect(broker.memory.tables.waiters.size).toBe(3);
  expect(broker.memory.tables.notifications.size).toBe(0);
  expect(await broker.run("notify", { ...toRun, body: bytes("small") })).toMatchObject({
    stored: false,
    notified: [{}, {}, {}],
  });
});

test("an event for all runs skips the runs that have no room for it", async () => {
  const broker = await long(limits.historyBytes);
  await publish(broker, startOf("wfr_2"));
  for (const runId of ["wfr_1", "wfr_2"])
    await broker.run("wait", { account: "acme", runId, waiter: waiterAt(1) });
  const waiterIds = [...broker.memory.tables.waiters.values()].map(({ id }) => id);
  expect(
    await broker.run("notify", { account: "acme", event: "paid", body: event, waiterIds }),
  ).toMatchObject({
    notified: [{ runId: "wfr_2" }],
  });
  expect([...broker.memory.tables.waiters.values()]).toMatchObject([{ runId: "wfr_1" }]);
});

const called = { ...stepAt(7), stepName: "get", stepType: "Call" };
const callOf = (runId: string, body = bytes("?")): MessageInput =>
  makeInput({
    url: "https://third.example",
    retries: 0,
    body,
    callback: callbackTo(endpoint),
    post: { kind: "call", runId, head: called },
  });

/** Returns a run that has called a third party, and whose history has this length now. */
async function asking(size: number): Promise<{ broker: CommandRunner; messageId: string }> {
  const broker = await CommandRunner.open();
  await publish(broker, startOf("wfr_1"));
  const messageId = await broker.publish(callOf("wfr_1"));
  resize(broker, { size });
  return { broker, messageId };
}

test.each([
  ["is successful", { status: 200 }],
  ["reports a failure", { status: 500 }],
])("a response of a third party that %s, and does not fit, ends the run with a reason", async (_, answer) => {
  const { broker, messageId } = await asking(limits.historyBytes - 3_000);
  await broker.run("wait", { account: "acme", runId: "wfr_1", waiter: waiterAt(1) });
  expect(await broker.settle(messageId, { host: "third.example", body: event, ...answer })).toBe("failed");
  const { runs, activeRuns, messages, waiters, steps } = broker.memory.tables;
  const error =
    `step 7 "get": the response of the third party does not fit into the history of the run ` +
    `wfr_1, which has ${limits.historyBytes - 3_000} bytes; the limit is ${limits.historyBytes}`;
  expect(broker.deadLetters).toMatchObject([{ messageId, error, run: { runId: "wfr_1" } }]);
  expect([...runs.values()]).toMatchObject([{ state: "RUN_FAILED", failure: { error } }]);
  expect([activeRuns.size, waiters.size]).toEqual([0, 0]);
  expect([...steps.values()].map(({ id }) => id.split("/")[1])).toEqual(["i", "c7"]);
  // A message that is being sent may still arrive.
  expect([...messages.values()].map(({ state }) => state)).toEqual(["active"]);
  expect(broker.log(messageId)).toBe("ERROR FAILED");
});

test("a failure callback hides the headers of a request to a third party", async () => {
  const broker = await CommandRunner.open();
  await publish(broker, { ...startOf("wfr_1"), failureCallback: callbackTo("https://other.example/") });
  const messageId = await broker.publish({ ...callOf("wfr_1"), headers: [["Authorization", "s3cret"]] });
  resize(broker, { size: limits.historyBytes - 3_000 });
  expect(await broker.settle(messageId, { host: "third.example", status: 200, body: event })).toBe("failed");
  const callback = [...broker.memory.tables.storedMessages.values()].find(
    ({ url }) => url === "https://other.example/",
  );
  const { sourceHeader, url } = JSON.parse(new TextDecoder().decode(callback?.body));
  expect({ sourceHeader, url }).toEqual({ sourceHeader: {}, url: endpoint });
});

test("a response that fits becomes a step, regardless of the length of the history", async () => {
  const { broker, messageId } = await asking(limits.historyBytes - 9_000);
  expect(await broker.settle(messageId, { host: "third.example", status: 200, body: event })).toBe(
    "delivered",
  );
  expect([...broker.memory.tables.steps.keys()].some((id) => id.endsWith("/f7"))).toBe(true);
});

test("responses that arrive at once, and fit one by one but not together, end the run", async () => {
  const broker = await CommandRunner.open();
  await publish(broker, startOf("wfr_1"));
  const head = { ...called, stepId: 8 };
  const ids = [
    await broker.publish(callOf("wfr_1")),
    await broker.publish({ ...callOf("wfr_1"), post: { kind: "call", runId: "wfr_1", head } }),
  ];
  // Neither response alone may be suspected of being too long.
  resize(broker, { size: limits.historyBytes - 20 * 1024 * 1024 });
  const source = {
    node: "nod_a",
    now: () => broker.now,
    random: () => 0.5,
    newId: createIdGenerator(Math.random),
  };
  const store = memoryStore(source, broker.memory);
  const body = new Uint8Array(6 * 1024 * 1024);
  const settled = await Promise.all(
    ids.map((messageId) =>
      store.execute("settle", makeOutcome({ messageId, host: "third.example", status: 200, body })),
    ),
  );
  expect(settled.map(({ became }) => became)).toEqual(["delivered", "failed"]);
  expect(broker.deadLetters).toMatchObject([
    { messageId: ids[1], error: expect.stringContaining('step 8 "get"') },
  ]);
  expect([...broker.memory.tables.activeRuns.values()]).toEqual([]);
});

test("a step does not accept a stored event that does not fit", async () => {
  const broker = await long(0);
  await broker.run("notify", toRun);
  resize(broker, { size: limits.historyBytes - 3_000 });
  await expect(broker.run("wait", { account: "acme", runId: "wfr_1", waiter: waiterAt(4) })).rejects.toThrow(
    `eventId: step 4 \\"s\\": it does not fit into the history of the run wfr_1, which has ` +
      `${limits.historyBytes - 3_000} bytes; the limit is ${limits.historyBytes}`,
  );
  expect(broker.memory.tables.notifications.size).toBe(1);
});

test("the number of waiting steps is limited by the room of the history", async () => {
  const broker = await long(0);
  resize(broker, { steps: limits.steps - 1 });
  await broker.run("wait", { account: "acme", runId: "wfr_1", waiter: waiterAt(1) });
  await expect(broker.run("wait", { account: "acme", runId: "wfr_1", waiter: waiterAt(2) })).rejects.toThrow(
    "and 1 that wait",
  );
});

test("a run does not end with a result that does not fit into the history of its invoker", async () => {
  const broker = await long(limits.historyBytes - 1000);
  await publish(
    broker,
    startOf("child", { runId: "wfr_1", createdAt: noon, url: endpoint, headers: [], step: stepAt(1) }),
  );
  const finish = (body: Uint8Array) => broker.run("finishRun", { account: "acme", runId: "child", body });
  await expect(finish(event)).rejects.toThrow("result: it does not fit into the history of the run wfr_1");
  expect(broker.memory.tables.activeRuns.size).toBe(2);
  expect(await finish(bytes("1"))).toEqual({ finished: true });
});

test("an invoked run can be cancelled, regardless of the history of the run that invoked it", async () => {
  const broker = await long(limits.historyBytes);
  resize(broker, { size: limits.historyBytes - 1 });
  await publish(
    broker,
    startOf("child", { runId: "wfr_1", createdAt: noon, url: endpoint, headers: [], step: stepAt(1) }),
  );
  expect(await broker.run("cancelRuns", { account: "acme", runIds: ["child"] })).toEqual({ cancelled: 1 });
});

test("a history too large for memory is not sent, even if the endpoint cannot fetch it", async () => {
  const broker = await long(limits.historyBytes, { lazyFetch: false });
  await broker.run("wait", { account: "acme", runId: "wfr_1", waiter: waiterAt(1) });
  resize(broker, { size: limits.historyBytes });
  broker.now = noon + 3_600_001;
  await broker.run("claim", { limit: 10 });
  expect(broker.deliveries.map(({ message }) => message.run?.size)).toContain(0);
});
