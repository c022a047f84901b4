import { expect, test } from "vitest";
import type { TableName } from "../../src/core/command.ts";
import type { Call } from "../../src/store/store.ts";
import type { RunFeatures } from "../../src/core/message.ts";
import { idMaker } from "../../src/core/ids.ts";
import { decideBatch } from "../../src/store/batch.ts";
import { memoryLoader } from "../../src/store/memory.ts";
import type { WaitPost } from "../../src/core/wait.ts";
import { Broker, bytes, letterOf, none } from "../core/broker.ts";

// What a command about one step of a run loads does not grow with what else belongs to the run.

const endpoint = "https://app.example/order";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: false, captured: true };
const start = (runId: string) =>
  letterOf({ url: endpoint, post: { kind: "start", runId, url: endpoint, features, origin: "sdk", invoker: null } });

const waiterAt = (stepId: number, event: string): WaitPost => ({
  ...{ kind: "event", event, url: endpoint, headers: [], given: [], timeout: "1h", wait: 3_600_000 },
  ...{ timeoutUrl: endpoint, timeoutHeaders: [], timeoutGiven: [] },
  step: { stepId, stepName: "s", stepType: "Wait", concurrent: 1 },
});

type Loaded = { rows: { [T in TableName]?: number }; bytes: number };

/** Decides a call over what a broker has, and writes nothing. How many rows were loaded of each table, and bytes of bodies. */
async function loadedBy(broker: Broker, ...calls: Call[]): Promise<Loaded> {
  const loaded: Loaded = { rows: {}, bytes: 0 };
  const count = (table: TableName, rows: readonly object[]): void => {
    if (rows.length > 0) loaded.rows[table] = (loaded.rows[table] ?? 0) + rows.length;
    for (const row of rows) if ("body" in row && row.body instanceof Uint8Array) loaded.bytes += row.body.byteLength;
  };
  const real = memoryLoader(broker.memory);
  const loader: typeof real = {
    ...real,
    rows: async (table, keys, how) => {
      const rows = await real.rows(table, keys, how);
      count(table, rows);
      return rows;
    },
    ofRuns: async (needs) => {
      const found = await real.ofRuns(needs);
      for (const [table, rows] of Object.entries(found)) count(table as TableName, rows);
      return found;
    },
    steps: async (of) => {
      const rows = await real.steps(of);
      count("steps", rows);
      return rows;
    },
  };
  const source = { node: "nod_a", now: () => broker.now, random: () => 0.5, newId: idMaker(() => 0.5) };
  const { replies } = await decideBatch(calls, { loader, hands: none, source, now: broker.now });
  for (const reply of replies) expect(reply).toHaveProperty("answer");
  return loaded;
}

const wait = (stepId: number): Call => ({
  name: "wait",
  input: { account: "acme", runId: "wfr_1", waiter: waiterAt(stepId, `e${stepId}`) },
});
const notify = (event: string): Call => ({
  name: "notify",
  input: { account: "acme", event, body: bytes("x"), runId: "wfr_1", kind: "event" },
});

/** A broker with a run of which so many steps wait, each for an event of its own. */
async function waiting(count: number): Promise<Broker> {
  const broker = await Broker.open();
  broker.hands = none;
  await broker.publish(start("wfr_1"));
  for (let stepId = 1; stepId <= count; stepId++)
    await broker.run("wait", { account: "acme", runId: "wfr_1", waiter: waiterAt(stepId, `e${stepId}`) });
  return broker;
}

test("a step that begins to wait, and one that is woken, load no other waiters", async () => {
  const broker = await waiting(200);
  expect((await loadedBy(broker, wait(201))).rows).toEqual({ accounts: 1, activeRuns: 1, runs: 1 });
  expect((await loadedBy(broker, notify("e7"))).rows).toEqual({ accounts: 1, activeRuns: 1, runs: 1, waiters: 1 });
});

test("neither of them loads the messages of the run, nor the bodies of events that are kept", async () => {
  const broker = await waiting(3);
  for (let kept = 0; kept < 5; kept++)
    await broker.run("notify", { account: "acme", event: "other", body: new Uint8Array(1_000), runId: "wfr_1", kind: "event" });
  expect(await loadedBy(broker, wait(4))).toEqual({ rows: { accounts: 1, activeRuns: 1, runs: 1 }, bytes: 0 });
  expect(await loadedBy(broker, notify("nobody"))).toEqual({ rows: { accounts: 1, activeRuns: 1, runs: 1, notifications: 5 }, bytes: 0 });
  // The one that is taken is loaded whole, and no other.
  const taking: Call = { name: "wait", input: { account: "acme", runId: "wfr_1", waiter: waiterAt(4, "other") } };
  expect(await loadedBy(broker, taking)).toMatchObject({ bytes: 1_000 });
});

test("a run that ends needs no bodies of the events that it kept", async () => {
  const broker = await waiting(2);
  await broker.run("notify", { account: "acme", event: "other", body: new Uint8Array(1_000), runId: "wfr_1", kind: "event" });
  const finish: Call = { name: "finishRun", input: { account: "acme", runId: "wfr_1", body: bytes("") } };
  expect(await loadedBy(broker, finish)).toMatchObject({ rows: { messages: 1, waiters: 2, notifications: 1 }, bytes: 0 });
});
