import { expect, test } from "vitest";
import type { TableName } from "../../../../src/engine/core/decision/command.ts";
import { memory } from "../../../../src/engine/core/values/limits.ts";
import type { CommandCall, CommandReply } from "../../../../src/engine/store/store.ts";
import type { RunFeatures } from "../../../../src/engine/core/model/runPost.ts";
import { createIdGenerator } from "../../../../src/engine/core/values/ids.ts";
import { decideBatch } from "../../../../src/engine/store/batch/decide.ts";
import { memoryLoader, memoryStore } from "../../../model/memoryStore.ts";
import {
  CommandRunner,
  bytes,
  callbackTo,
  makeInput,
  noCapacity,
  makeOutcome,
  makeEventWait,
} from "../../core/commandRunner.ts";

// The rows that a command for one step of a run loads do not grow with the other rows of the run.

const endpoint = "https://app.example/order";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: false, captured: true };
const start = (runId: string) =>
  makeInput({
    url: endpoint,
    post: { kind: "start", runId, url: endpoint, features, origin: "sdk", invoker: null },
  });

type Loaded = { rows: { [T in TableName]?: number }; bytes: number; replies: readonly CommandReply[] };

/**
 * Decides calls on the rows of a broker without writing. Returns the number of loaded rows per table, and the
 * loaded bytes of bodies.
 */
async function loadedBy(broker: CommandRunner, ...calls: CommandCall[]): Promise<Loaded> {
  const loaded: Omit<Loaded, "replies"> = { rows: {}, bytes: 0 };
  const count = (table: TableName, rows: readonly object[]): void => {
    if (rows.length > 0) loaded.rows[table] = (loaded.rows[table] ?? 0) + rows.length;
    for (const row of rows)
      if ("body" in row && row.body instanceof Uint8Array) loaded.bytes += row.body.byteLength;
  };
  const real = memoryLoader(broker.memory);
  const loader: typeof real = {
    ...real,
    now: null,
    rows: async (table, keys, how) => {
      const rows = await real.rows(table, keys, how);
      count(table, rows);
      return rows;
    },
    runRows: async (needs) => {
      const found = await real.runRows(needs);
      for (const [table, rows] of Object.entries(found)) count(table as TableName, rows);
      return found;
    },
    steps: async (of) => {
      const rows = await real.steps(of);
      count("steps", rows);
      return rows;
    },
  };
  const momentSource = {
    node: "nod_a",
    now: () => broker.now,
    random: () => 0.5,
    newId: createIdGenerator(() => 0.5),
  };
  const { replies } = await decideBatch(calls, {
    loader,
    capacity: noCapacity,
    momentSource,
    startTime: Promise.resolve(null),
  });
  if (calls.length === 1) expect(replies).toMatchObject([{ answer: expect.anything() }]);
  return { ...loaded, replies };
}

const wait = (stepId: number): CommandCall => ({
  name: "wait",
  input: { account: "acme", runId: "wfr_1", waiter: makeEventWait(`e${stepId}`, stepId) },
});
const notify = (event: string): CommandCall => ({
  name: "notify",
  input: { account: "acme", event, body: bytes("x"), runId: "wfr_1", kind: "event" },
});

/** Returns a broker with a run in which this many steps wait, each for its own event. */
async function waiting(count: number): Promise<CommandRunner> {
  const broker = await CommandRunner.open();
  broker.capacity = noCapacity;
  await broker.publish(start("wfr_1"));
  for (let stepId = 1; stepId <= count; stepId++)
    await broker.run("wait", {
      account: "acme",
      runId: "wfr_1",
      waiter: makeEventWait(`e${stepId}`, stepId),
    });
  return broker;
}

test("a step that begins to wait and a step that is woken load no other waiters", async () => {
  const broker = await waiting(200);
  expect((await loadedBy(broker, wait(201))).rows).toEqual({ accounts: 1, activeRuns: 1, runs: 1 });
  expect((await loadedBy(broker, notify("e7"))).rows).toEqual({
    accounts: 1,
    activeRuns: 1,
    runs: 1,
    waiters: 1,
  });
});

test("waiting and waking load no messages of the run and no bodies of kept events", async () => {
  const broker = await waiting(3);
  for (let kept = 0; kept < 5; kept++)
    await broker.run("notify", {
      account: "acme",
      event: "other",
      body: new Uint8Array(1_000),
      runId: "wfr_1",
      kind: "event",
    });
  const { rows, bytes: ofWait } = await loadedBy(broker, wait(4));
  expect([rows, ofWait]).toEqual([{ accounts: 1, activeRuns: 1, runs: 1 }, 0]);
  const notified = await loadedBy(broker, notify("nobody"));
  expect([notified.rows, notified.bytes]).toEqual([
    { accounts: 1, activeRuns: 1, runs: 1, notifications: 5 },
    0,
  ]);
  // Only the event that is taken is loaded with its body.
  const taking: CommandCall = {
    name: "wait",
    input: { account: "acme", runId: "wfr_1", waiter: makeEventWait("other", 4) },
  };
  expect(await loadedBy(broker, taking)).toMatchObject({ bytes: 1_000 });
});

/** Returns a broker with failed runs, each with a payload of this many bytes and a step of 100 bytes. */
async function failed(
  count: number,
  { size = 1_000, failureCallback = false } = {},
): Promise<{ broker: CommandRunner; dlqIds: string[] }> {
  const broker = await CommandRunner.open();
  for (let at = 0; at < count; at++) {
    const input = { ...start(`wfr_${at}`), body: new Uint8Array(size), retries: 0 };
    const first = await broker.publish(
      failureCallback ? { ...input, failureCallback: callbackTo(endpoint) } : input,
    );
    await broker.publish(stepOf(`wfr_${at}`));
    await broker.settle(first, { status: 500 });
  }
  return { broker, dlqIds: broker.deadLetters.map(({ id }) => id) };
}

const stepOf = (runId: string) =>
  makeInput({
    url: endpoint,
    body: new Uint8Array(100),
    retries: 0,
    post: { kind: "step", runId, head: { stepId: 1, stepName: "s", stepType: "Run", concurrent: 1 } },
  });

const resume = (dlqId: string, from: "failure" | "beginning"): CommandCall => ({
  name: "resumeRun",
  input: { account: "acme", dlqId, from, overrides: {}, logRetention: 1_000 },
});

test.each([
  ["no body without a failure callback", false, 0],
  ["only the payload with a failure callback", true, 1_000],
])("a run whose code does not match its history loads %s", async (_, isTold, size) => {
  const broker = await CommandRunner.open();
  await broker.publish({
    ...start("wfr_1"),
    body: new Uint8Array(1_000),
    ...(isTold ? { failureCallback: callbackTo(endpoint) } : {}),
  });
  const messageId = await broker.publish(stepOf("wfr_1"));
  const message = "Incompatible step name. Expected 'a', got 's' from the request";
  const outcome = makeOutcome({ messageId, host: "app.example", body: bytes(JSON.stringify({ message })) });
  expect(await loadedBy(broker, { name: "settle", input: outcome })).toMatchObject({
    rows: { steps: isTold ? 3 : 2 },
    bytes: size,
  });
  expect(await broker.run("settle", outcome)).toEqual({ became: "failed" });
  expect(broker.deadLetters).toMatchObject([{ error: 'step 1: history has "s", the endpoint ran "a"' }]);
});

test("a restarted run loads only its payload and the log entry of its failure", async () => {
  const line = 2;
  const { broker, dlqIds } = await failed(1);
  expect(await loadedBy(broker, resume(dlqIds[0] ?? "", "beginning"))).toMatchObject({
    rows: { steps: 1 },
    bytes: 1_000 + line,
  });
  expect(await loadedBy(broker, resume(dlqIds[0] ?? "", "failure"))).toMatchObject({
    rows: { steps: 2 },
    bytes: 1_100 + line,
  });
});

test("a step that is posted twice loads no body of the first post", async () => {
  const broker = await CommandRunner.open();
  await broker.publish(start("wfr_1"));
  await broker.publish(stepOf("wfr_1"));
  const again: CommandCall = { name: "publish", input: { account: "acme", inputs: [stepOf("wfr_1")] } };
  expect(await loadedBy(broker, again)).toMatchObject({ rows: { steps: 1 }, bytes: 0 });
});

test.each(["failure", "beginning"] as const)(
  "many runs that continue from their %s at once load what fits into a batch",
  async (from) => {
    const size = 7 * 1024 * 1024;
    const { broker, dlqIds } = await failed(6, { size });
    const calls = dlqIds.map((dlqId) => resume(dlqId, from));
    const { bytes: loaded, replies } = await loadedBy(broker, ...calls);
    expect(loaded).toBeGreaterThanOrEqual(4 * size);
    expect(loaded).toBeLessThanOrEqual(memory.batch);
    expect(replies.map((reply) => "later" in reply)).toEqual([false, false, false, false, true, true]);

    // Callers do not notice: the other calls run in their own batches.
    const store = memoryStore(
      { node: "nod_a", now: () => broker.now, random: () => 0.5, newId: createIdGenerator(Math.random) },
      broker.memory,
    );
    const input = { account: "acme", from, overrides: {}, logRetention: 1_000 };
    const resumed = await Promise.all(dlqIds.map((dlqId) => store.execute("resumeRun", { ...input, dlqId })));
    expect(resumed.map(({ dlqId }) => dlqId)).toEqual(dlqIds);
    expect(broker.deadLetters).toEqual([]);
    const copied = [...broker.memory.tables.steps.values()].filter(({ body }) => body.byteLength === size);
    expect(copied).toHaveLength(12);
  },
);

test("many runs that fail at once and report their payloads load what fits into a batch", async () => {
  const size = 7 * 1024 * 1024;
  const broker = await CommandRunner.open();
  const ids = [];
  for (let at = 0; at < 6; at++)
    ids.push(
      await broker.publish({
        ...start(`wfr_${at}`),
        body: new Uint8Array(size),
        retries: 0,
        failureCallback: callbackTo(endpoint),
      }),
    );
  const calls = ids.map((messageId): CommandCall => ({
    name: "settle",
    input: makeOutcome({ messageId, host: "app.example" }),
  }));
  const { bytes: loaded, replies } = await loadedBy(broker, ...calls);
  expect(loaded).toBeLessThanOrEqual(memory.batch);
  expect(replies.map((reply) => "later" in reply)).toEqual([false, false, false, false, true, true]);
});

test("a run that ends loads no bodies of its kept events", async () => {
  const broker = await waiting(2);
  await broker.run("notify", {
    account: "acme",
    event: "other",
    body: new Uint8Array(1_000),
    runId: "wfr_1",
    kind: "event",
  });
  const finish: CommandCall = {
    name: "finishRun",
    input: { account: "acme", runId: "wfr_1", body: bytes("") },
  };
  expect(await loadedBy(broker, finish)).toMatchObject({
    rows: { messages: 1, waiters: 2, notifications: 1 },
    bytes: 0,
  });
});
