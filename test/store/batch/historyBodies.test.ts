import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../src/core/model/message.ts";
import type { HistoryNeed } from "../../../src/store/batch/loader.ts";
import { withHistoryBodies } from "../../../src/store/batch/historyBodies.ts";
import type { Step } from "../../../src/core/model/run.ts";
import {
  CommandRunner,
  bytes,
  callbackTo,
  makeInput,
  noCapacity,
  ampleCapacity,
} from "../../core/commandRunner.ts";

const endpoint = "https://app.example/order";
const features = { lazyFetch: true, initialBody: true, detect: false, captured: true };
const plan = (targetStep: number) => ({
  stepId: 0,
  stepName: "s",
  stepType: "Run",
  concurrent: 3,
  targetStep,
});

const endOf = (broker: CommandRunner) => ({
  states: [...broker.memory.tables.messages.values()],
  dead: broker.deadLetters,
});

describe("a message without its whole history", () => {
  const start = makeInput({
    url: endpoint,
    post: { kind: "start", runId: "wfr_1", url: endpoint, features, origin: "sdk", invoker: null },
  });
  const sleep = makeInput({
    url: endpoint,
    delay: 1_000,
    body: bytes("{}"),
    post: { kind: "step", runId: "wfr_1", head: plan(1) },
  });
  const call = makeInput({
    url: "https://third.example",
    retries: 0,
    callback: callbackTo(endpoint),
    post: { kind: "call", runId: "wfr_1", head: { ...plan(1), stepId: 1 } },
  });

  test.each([
    ["all of it", (): boolean => true],
    ["one entry", ({ position }: Step): boolean => position === 1],
    ["its own entry", ({ position }: Step): boolean => position === 2],
  ])("is not sent, and fails with a fault in the log, if %s is missing", async (_, isGone) => {
    const broker = await CommandRunner.open();
    await broker.run("publish", { account: "acme", inputs: [start] });
    for (const target of [1, 2]) {
      const head = plan(target);
      await broker.publish({ ...sleep, post: { kind: "step", runId: "wfr_1", head } });
    }
    const { steps } = broker.memory.tables;
    for (const [key, step] of steps) if (isGone(step)) steps.delete(key);
    broker.now += 1_000;
    await broker.run("claim", { limit: 10 });
    const bad = broker.deliveries.filter(({ unsendable }) => unsendable !== undefined);
    const last = bad.at(-1);
    expect(last).toMatchObject({
      unsendable: "the history of the run is missing or damaged",
      message: { run: { position: 2 } },
    });
    expect(bad.map(({ message }) => message.body.byteLength)).toEqual(bad.map(() => 0));
    expect(broker.faults).toContain(
      `message ${last?.message.id} of account acme is not sent: the history of the run is missing or damaged`,
    );
    const outcome = {
      status: null,
      headers: [],
      body: bytes(""),
      error: last?.unsendable ?? "",
      isFinal: true,
    } as const;
    expect(await broker.settle(last?.message.id ?? "", outcome)).toBe("failed");
    expect(endOf(broker).dead).toMatchObject([
      { error: "the history of the run is missing or damaged", run: { runId: "wfr_1" } },
    ]);
  });

  test("is not sent, and fails silently, if the retention of its ended run is over", async () => {
    const broker = await CommandRunner.open();
    const messageId = await broker.publish(start);
    await broker.run("finishRun", { account: "acme", runId: "wfr_1", body: bytes("") });
    const { steps, runs, messages } = broker.memory.tables;
    for (const table of [steps, runs]) table.clear();
    for (const [key, state] of messages)
      messages.set(key, { ...state, state: "pending", leasedBy: null, dueAt: broker.now });
    await broker.run("claim", { limit: 10 });
    expect(broker.deliveries).toMatchObject([
      { unsendable: "the history of the run is missing or damaged", message: { id: messageId } },
    ]);
    expect(await broker.settle(messageId, { status: null, error: "x", isFinal: true })).toBe("failed");
    expect(broker.log(messageId)).toContain("CANCELLED");
    expect(endOf(broker)).toEqual({ states: [], dead: [] });
  });

  test("is not sent, and fails, if the answer of a third party is missing", async () => {
    const broker = await CommandRunner.open();
    await broker.publish(start);
    const asked = await broker.publish(call);
    broker.capacity = noCapacity;
    await broker.settle(asked, { host: "third.example", status: 200, body: bytes("yes") });
    const { steps } = broker.memory.tables;
    for (const [key, { callType }] of steps) if (callType === "fromCallback") steps.delete(key);
    broker.capacity = ampleCapacity;
    await broker.run("claim", { limit: 10 });
    expect(broker.deliveries).toMatchObject([
      {
        unsendable: "the history of the run is missing or damaged",
        message: { run: { kind: "result" } },
      },
    ]);
    expect(broker.faults).toHaveLength(1);
  });
});

test("the history of a run is read once for all its messages, each up to its position", async () => {
  const broker = await CommandRunner.open();
  const start = makeInput({
    url: endpoint,
    post: { kind: "start", runId: "wfr_1", url: endpoint, features, origin: "sdk", invoker: null },
  });
  const plans = [1, 2, 3].map((target) =>
    makeInput({
      url: endpoint,
      body: bytes(JSON.stringify(plan(target))),
      post: { kind: "step", runId: "wfr_1", head: plan(target) },
    }),
  );
  await broker.run("publish", { account: "acme", inputs: [start, ...plans] });
  const { deliveries } = broker;
  expect(deliveries.map(({ message }) => JSON.parse(new TextDecoder().decode(message.body)).length)).toEqual([
    1, 2, 3, 4,
  ]);

  const asked: HistoryNeed[] = [];
  const steps = [...broker.memory.tables.steps.values()].sort((a, b) => a.position - b.position);
  const loader = {
    rows: () => Promise.resolve([]),
    histories: (of: readonly HistoryNeed[]) => (asked.push(...of), Promise.resolve([steps])),
  };
  const again = await withHistoryBodies(loader, {
    replies: [],
    deliveries: [...deliveries],
    dueAt: null,
    faults: [],
    abortedLeases: [],
  });
  expect(asked).toMatchObject([{ account: "acme", upTo: 3 }]);
  expect(again.deliveries.map(({ message }: Delivery) => message.body)).toEqual(
    deliveries.map(({ message }) => message.body),
  );
});
