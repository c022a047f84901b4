import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { RunFeatures } from "../../../../src/engine/core/model/runPost.ts";
import type { Run } from "../../../../src/engine/core/model/run.ts";
import { CommandRunner, bytes, callbackTo, makeInput, noon, makeEventWait } from "../commandRunner.ts";

const endpoint = "https://app.example/order";
const modern: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const answersAsWorkflow = {
  status: 200,
  headers: [["Upstash-Workflow-Sdk-Version", "1"]],
  body: bytes("{}"),
} as const;

/** Returns the request that starts a run. */
export const startOf = (runId: string, more: Partial<MessageInput> = {}): MessageInput =>
  makeInput({
    url: endpoint,
    body: bytes("payload"),
    headers: [["Upstash-Workflow-Sdk-Version", "1"]],
    brand: "upstash",
    post: { kind: "start", runId, url: endpoint, features: modern, origin: "sdk", invoker: null },
    ...more,
  });

/** Returns the request that posts a step of a run. */
export const stepOf = (
  runId: string,
  step: Record<string, unknown>,
  more: Partial<MessageInput> = {},
): MessageInput => {
  const head = { stepName: "s", stepType: "Run", concurrent: 1, stepId: 1, ...step };
  return makeInput({
    url: endpoint,
    body: bytes(JSON.stringify(head)),
    post: { kind: "step", runId, head },
    ...more,
  });
};

const textOf = ({ message }: Delivery): string => new TextDecoder().decode(message.body);
const history = (delivery: Delivery | undefined): string[] =>
  delivery ? (JSON.parse(textOf(delivery)) as { body: string }[]).map(({ body }) => atob(body)) : [];

async function post(broker: CommandRunner, input: MessageInput): Promise<string> {
  const [result] = await broker.run("publish", { account: "acme", inputs: [input] });
  if (result && "messageId" in result) return result.messageId;
  throw new Error(JSON.stringify(result));
}

const runs = (broker: CommandRunner): Run[] => [...broker.memory.tables.runs.values()];

describe("a run", () => {
  test("begins with its payload as history, and continues with each step", async () => {
    const broker = await CommandRunner.open();
    const first = await post(broker, startOf("wfr_1"));
    expect(broker.deliveries.map(textOf)).toEqual([
      `[{"messageId":"${first}","body":"${btoa("payload")}","callType":"step"}]`,
    ]);
    const second = await post(broker, stepOf("wfr_1", { out: "1" }));
    expect(history(broker.deliveries[0])).toEqual(["payload", expect.stringContaining('"out":"1"')]);
    expect(broker.deliveries[0]?.message).toMatchObject({
      id: second,
      headers: [["Upstash-Workflow-Sdk-Version", "1"]],
    });
    expect(await broker.settle(first, answersAsWorkflow)).toBe("delivered");
    await broker.run("finishRun", { account: "acme", runId: "wfr_1", body: bytes('"done"') });
    expect(await broker.settle(second, answersAsWorkflow)).toBe("delivered");
    expect(runs(broker)).toMatchObject([
      { state: "RUN_SUCCESS", endedAt: noon, steps: 2, body: bytes('"done"') },
    ]);
    expect([...broker.memory.tables.activeRuns.values()]).toEqual([]);
    expect([...broker.memory.tables.messages.values()]).toEqual([]);
  });

  test("keeps a step that is posted twice only once", async () => {
    const broker = await CommandRunner.open();
    await post(broker, startOf("wfr_1"));
    const once = await post(broker, stepOf("wfr_1", {}));
    expect(await post(broker, stepOf("wfr_1", {}))).toBe(once);
    expect([...broker.memory.tables.steps.keys()]).toHaveLength(2);
  });

  test("fails with its dead letter, its failure callback and its other messages", async () => {
    const broker = await CommandRunner.open();
    const first = await post(
      broker,
      startOf("wfr_1", { retries: 0, failureCallback: callbackTo("https://app.example/failed") }),
    );
    const later = await post(broker, stepOf("wfr_1", { stepId: 0, targetStep: 2 }, { delay: 5000 }));
    expect(await broker.settle(first, { status: 500 })).toBe("failed");
    expect(broker.state(later)).toBeUndefined();
    expect(broker.log(later)).toBe("CANCELLED");
    expect(broker.deadLetters).toMatchObject([
      { messageId: first, run: { runId: "wfr_1" }, failureCallback: { state: "CALLBACK_INPROGRESS" } },
    ]);
    const [callback] = broker.deliveries;
    expect(JSON.parse(callback ? textOf(callback) : "")).toMatchObject({
      workflowRunId: "wfr_1",
      sourceBody: btoa("payload"),
      status: 500,
    });
    expect(await broker.settle(callback?.message.id ?? "", { status: 200 })).toBe("delivered");
    expect(broker.deadLetters).toMatchObject([
      { failureCallback: { state: "CALLBACK_SUCCESS", responseStatus: 200 } },
    ]);
    expect(runs(broker)).toMatchObject([
      {
        state: "RUN_FAILED",
        failure: {
          callback: { state: "CALLBACK_SUCCESS" },
          unfinished: [{ messageId: later, dueAt: noon + 5000 }],
        },
      },
    ]);
  });

  test("sends again only what has no result when it is resumed", async () => {
    const broker = await CommandRunner.open();
    const first = await post(broker, startOf("wfr_1", { retries: 0 }));
    await broker.settle(first, answersAsWorkflow);
    const plan1 = await post(broker, stepOf("wfr_1", { stepId: 0, targetStep: 1 }));
    const plan2 = await post(broker, stepOf("wfr_1", { stepId: 0, targetStep: 2 }));
    await broker.settle(plan1, answersAsWorkflow);
    const result1 = await post(broker, stepOf("wfr_1", { stepId: 1 }));
    await broker.settle(result1, answersAsWorkflow);
    await broker.settle(plan2, { status: 500 });
    const [{ id: dlqId } = { id: "" }] = broker.deadLetters;
    const resumed = await broker.run("resumeRun", {
      account: "acme",
      dlqId,
      from: "failure",
      overrides: {},
      logRetention: 1000,
    });
    expect(resumed.runId).not.toBe("wfr_1");
    expect(broker.deliveries.map(history)).toEqual([
      ["payload", expect.stringContaining('"targetStep":1'), expect.stringContaining('"targetStep":2')],
    ]);
    expect(broker.deadLetters).toEqual([]);
    await post(broker, stepOf(resumed.runId, { stepId: 2 }));
    expect(history(broker.deliveries[0])).toHaveLength(5);
  });

  test("continues after an event, an earlier event, or the end of the wait", async () => {
    const broker = await CommandRunner.open();
    await post(broker, startOf("wfr_1"));
    const waiting = (stepId: number) => makeEventWait("paid", stepId);
    await broker.run("wait", { account: "acme", runId: "wfr_1", waiter: waiting(1) });
    const told = await broker.run("notify", {
      account: "acme",
      event: "paid",
      body: bytes("yes"),
      runId: "wfr_1",
      kind: "event",
    });
    expect(told.notified).toHaveLength(1);
    expect(history(broker.deliveries[0])[1]).toBe(
      '{"stepId":1,"stepName":"w","stepType":"Wait","concurrent":1,"waitEventId":"paid",' +
        `"timeout":"1h","out":"${btoa("yes")}","waitTimeout":false}`,
    );
    expect(
      await broker.run("notify", {
        account: "acme",
        event: "paid",
        body: bytes("again"),
        runId: "wfr_1",
        kind: "event",
      }),
    ).toMatchObject({ stored: true });
    await broker.run("wait", { account: "acme", runId: "wfr_1", waiter: waiting(2) });
    expect(history(broker.deliveries[0])[2]).toContain(btoa("again"));
    await broker.run("wait", { account: "acme", runId: "wfr_1", waiter: waiting(3) });
    broker.now = noon + 3_600_000;
    await broker.run("claim", { limit: 10 });
    expect(history(broker.deliveries.find(({ message }) => message.run?.stepKey === "r3"))[3]).toContain(
      '"waitTimeout":true',
    );
  });

  test("that was invoked reports its result to the run that waits for it", async () => {
    const broker = await CommandRunner.open();
    await post(broker, startOf("parent"));
    const step = { stepId: 1, stepName: "inv", stepType: "Invoke", concurrent: 1 };
    const invoker = { runId: "parent", createdAt: noon, url: endpoint, headers: [], step };
    const post1 = {
      kind: "start" as const,
      runId: "child",
      url: endpoint,
      features: modern,
      origin: "sdk" as const,
      invoker,
    };
    await post(broker, startOf("child", { post: post1 }));
    await broker.run("finishRun", { account: "acme", runId: "child", body: bytes('"r"') });
    expect(JSON.parse(history(broker.deliveries[0])[1] ?? "")).toEqual({
      ...step,
      out: '{"body":"\\"r\\"","isCanceled":false,"isFailed":false}',
    });
  });

  test("receives the response of a third party, regardless of its status", async () => {
    const broker = await CommandRunner.open();
    await post(
      broker,
      startOf("wfr_1", {
        headers: [
          ["X-Mine", "a"],
          ["Upstash-Workflow-Sdk-Version", "1"],
        ],
      }),
    );
    const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 1 };
    const callback = { ...callbackTo(endpoint), headers: [["Upstash-Workflow-Callback", "true"]] as const };
    const call = await post(
      broker,
      makeInput({
        url: "https://third.example/x",
        method: "GET",
        retries: 0,
        callback,
        body: bytes("ask"),
        post: { kind: "call", runId: "wfr_1", head },
      }),
    );
    expect(broker.deliveries[0]?.message).toMatchObject({ headers: [], body: bytes("ask"), method: "GET" });
    expect(await broker.settle(call, { status: 401, body: bytes("99") })).toBe("failed");
    const [result] = broker.deliveries;
    expect(result?.message.headers).toEqual([
      ["X-Mine", "a"],
      ["Content-Type", "application/json"],
      ["Upstash-Workflow-Callback", "true"],
    ]);
    expect(JSON.parse(result ? textOf(result) : "")).toMatchObject({
      status: 401,
      body: btoa("99"),
      sourceMessageId: call,
      workflowRunId: "wfr_1",
    });
    expect(broker.deadLetters).toEqual([]);
  });
});

test("a run without a run id gets a new one", async () => {
  const broker = await CommandRunner.open();
  const [one, other] = await broker.run("publish", { account: "acme", inputs: [startOf(""), startOf("")] });
  const ids = [one, other].map((result) => (result && "run" in result ? result.run?.runId : undefined));
  expect(ids).toEqual([expect.stringMatching(/^wfr_/), expect.stringMatching(/^wfr_/)]);
  expect([...broker.memory.tables.activeRuns.values()].map(({ runId }) => runId)).toEqual(ids);
  expect(broker.deliveries).toHaveLength(2);
});

test("the posts of a run are accepted as a whole, independent of plain messages in the request", async () => {
  const broker = await CommandRunner.open();
  await broker.run("publish", { account: "acme", inputs: [startOf("wfr_1")] });
  const inputs = [stepOf("wfr_1", {}), { ...stepOf("wfr_1", {}), retries: 1001 }];
  await expect(broker.run("publish", { account: "acme", inputs })).rejects.toThrow(
    "message 2 of 2: retries: 1001 exceeds the limit of 1000",
  );
  expect([...broker.memory.tables.steps.keys()]).toHaveLength(1);
  const beside = await broker.run("publish", {
    account: "acme",
    inputs: [stepOf("wfr_1", {}), makeInput({ retries: 1001 })],
  });
  expect(beside).toMatchObject([{ messageId: expect.any(String) }, { refused: "limit-exceeded" }]);
  expect([...broker.memory.tables.steps.keys()]).toHaveLength(2);
});
