import { describe, expect, test } from "vitest";
import { maxLostAttempts, spans } from "../../../../src/engine/core/values/limits.ts";
import type { HeaderList } from "../../../../src/engine/core/values/basics.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { RunFeatures, StepHead } from "../../../../src/engine/core/model/runPost.ts";
import { CommandRunner, bytes, callbackTo, makeEventWait, makeInput } from "../commandRunner.ts";

// The post of a step settles the delivery in which its endpoint made it, and no other delivery.

const endpoint = "https://app.example/order";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const key = { key: "k", parallelism: 1, rate: null, period: null };

const startOf = (
  more: Partial<MessageInput> = {},
  origin: "sdk" | "rest" = "sdk",
): Partial<MessageInput> => ({
  url: endpoint,
  post: { kind: "start", runId: "wfr_1", url: endpoint, features, origin, invoker: null },
  ...more,
});

const headOf = (head: Partial<StepHead>): StepHead => ({
  ...{ stepId: 1, stepName: "s", stepType: "Run", concurrent: 1 },
  ...head,
});

const stepOf = (head: Partial<StepHead>, more: Partial<MessageInput> = {}): MessageInput =>
  makeInput({ url: endpoint, post: { kind: "step", runId: "wfr_1", head: headOf(head) }, ...more });

const callOf = (head: Partial<StepHead>): MessageInput =>
  makeInput({
    url: "https://third.example/",
    callback: callbackTo(endpoint),
    post: { kind: "call", runId: "wfr_1", head: headOf({ stepType: "Call", ...head }) },
  });

/** Publishes a millisecond later, because a delivery of the same moment has not been sent. */
async function post(broker: CommandRunner, ...inputs: MessageInput[]): Promise<string[]> {
  broker.now++;
  const results = await broker.run("publish", { account: "acme", inputs });
  return results.map((result) => ("messageId" in result ? result.messageId : ""));
}

async function started(more?: Partial<MessageInput>): Promise<{ broker: CommandRunner; first: string }> {
  const broker = await CommandRunner.open();
  return { broker, first: await broker.publish(startOf(more)) };
}

/** Returns a run with two branches whose plans are being sent. */
async function branched(): Promise<{ broker: CommandRunner; first: string; plans: string[] }> {
  const { broker, first } = await started();
  const plans = await post(
    broker,
    stepOf({ stepId: 0, targetStep: 1, concurrent: 2 }),
    stepOf({ stepId: 0, targetStep: 2, concurrent: 2 }),
  );
  return { broker, first, plans };
}

const runs = ({ memory }: CommandRunner) => [...memory.tables.runs.values()];

test("the delivery of a step follows the call in which it was posted, and no other branch", async () => {
  const { broker, first } = await started();
  const plan = (targetStep: number): MessageInput => stepOf({ stepId: 0, targetStep, concurrent: 2 });
  const plans = await post(broker, plan(1), plan(2));
  expect(broker.deliveries.map(({ follows }) => follows)).toEqual([first, first]);
  const [second] = await post(broker, stepOf({ stepId: 2, concurrent: 2 }));
  expect(broker.deliveries.map(({ message, follows }) => [message.id, follows])).toEqual([
    [second, plans[1]],
  ]);
  const [last] = await post(broker, stepOf({ stepId: 1, concurrent: 2 }));
  expect(broker.deliveries.map(({ message, follows }) => [message.id, follows])).toEqual([[last, plans[0]]]);
  await post(broker, stepOf({ stepId: 3 }));
  expect(broker.deliveries.map(({ follows }) => follows)).toEqual([last]);
});

describe("a delivery is settled by", () => {
  test("the next step, with a log entry without a status", async () => {
    const { broker, first } = await started();
    await post(broker, stepOf({ stepId: 1 }));
    expect(broker.state(first)).toBeUndefined();
    expect(broker.logRows(first)).toMatchObject([{ states: ["DELIVERED"], status: null, time: broker.now }]);
    expect(broker.settledLeases).toEqual([{ account: "acme", messageId: first, attempt: 0 }]);
  });

  test("the plans of its parallel steps", async () => {
    const { broker, first, plans } = await branched();
    expect(broker.log(first)).toBe("DELIVERED");
    expect(plans.map((id) => broker.state(id)?.state)).toEqual(["active", "active"]);
  });

  test("the results of the same branch", async () => {
    const { broker, plans } = await branched();
    await post(broker, stepOf({ stepId: 2, concurrent: 2 }));
    expect(plans.map((id) => broker.log(id))).toEqual(["", "DELIVERED"]);
    await post(broker, callOf({ stepId: 1, concurrent: 2 }));
    expect(plans.map((id) => broker.log(id))).toEqual(["DELIVERED", "DELIVERED"]);
  });

  test("the step after a parallel group, whichever of its results came last", async () => {
    const { broker } = await branched();
    const [discarded = ""] = await post(broker, stepOf({ stepId: 2, concurrent: 2 }));
    const [last = ""] = await post(broker, stepOf({ stepId: 1, concurrent: 2 }));
    await post(broker, stepOf({ stepId: 3 }));
    expect([broker.log(discarded), broker.log(last)]).toEqual(["", "DELIVERED"]);
  });

  test("the request to a third party, and the call with its response by the result", async () => {
    const { broker, first } = await started();
    const [called = ""] = await post(broker, callOf({ stepId: 1 }));
    expect([broker.log(first), broker.log(called)]).toEqual(["DELIVERED", ""]);
    await broker.settle(called, { host: "third.example", status: 200 });
    const response = broker.deliveries[0]?.message.id ?? "";
    await post(broker, stepOf({ stepId: 1, stepType: "Call" }));
    expect(broker.logRows(called)).toMatchObject([{ status: 200 }]);
    expect(broker.logRows(response)).toMatchObject([{ states: ["DELIVERED"], status: null }]);
  });

  test("a step that begins to wait, and a run that it invokes", async () => {
    const { broker, first } = await started();
    broker.now++;
    await broker.run("wait", { account: "acme", runId: "wfr_1", waiter: makeEventWait("paid", 1) });
    expect(broker.log(first)).toBe("DELIVERED");
    await broker.run("notify", {
      ...{ account: "acme", event: "paid", body: bytes("x"), runId: "wfr_1", kind: "event" },
    });
    const second = broker.deliveries[0]?.message.id ?? "";
    const step = headOf({ stepId: 2, stepType: "Invoke" });
    const invoker = { runId: "wfr_1", createdAt: 0, url: endpoint, headers: [], step };
    const origin = "sdk" as const;
    await post(
      broker,
      makeInput({
        url: endpoint,
        post: { kind: "start", runId: "child", url: endpoint, features, origin, invoker },
      }),
    );
    expect(broker.log(second)).toBe("DELIVERED");
  });

  test("the end of its run", async () => {
    const { broker, first } = await started();
    broker.now++;
    await broker.run("finishRun", { account: "acme", runId: "wfr_1", body: bytes("1") });
    expect(broker.log(first)).toBe("DELIVERED");
    expect(await broker.settle(first, { status: 500, host: "app.example" })).toBe("late");
    expect(runs(broker)).toMatchObject([{ state: "RUN_SUCCESS" }]);
  });

  test("a post of an earlier attempt, which then is not sent again", async () => {
    const { broker, first } = await started();
    await broker.settle(first, { status: 500 });
    expect(broker.state(first)).toMatchObject({ state: "pending", attempts: 1 });
    await post(broker, stepOf({ stepId: 1 }));
    expect(broker.state(first)).toBeUndefined();
    expect(broker.log(first)).toBe("ERROR RETRY DELIVERED");
  });

  test("a post through another node, once", async () => {
    const { broker, first } = await started();
    broker.node = "nod_b";
    await post(broker, stepOf({ stepId: 1 }));
    expect(broker.settledLeases).toEqual([]);
    expect(broker.log(first)).toBe("DELIVERED");
    // The node that sends it learns that it was delivered.
    broker.node = "nod_a";
    expect(await broker.settle(first, { status: 500, host: "app.example" })).toBe("delivered");
    expect(broker.state(first)).toBeUndefined();
    await post(broker, stepOf({ stepId: 1 }));
    expect(broker.log(first)).toBe("DELIVERED");
  });
});

describe("a delivery is not settled by", () => {
  test.each([
    ["a step that does not follow it", stepOf({ stepId: 2 })],
    ["the result of a branch without a plan", stepOf({ stepId: 1, concurrent: 2 })],
    ["a request of a branch without a plan", callOf({ stepId: 1, concurrent: 2 })],
    ["the plan of a later step", stepOf({ stepId: 0, targetStep: 2, concurrent: 2 })],
  ])("%s", async (_, input) => {
    const { broker, first } = await started();
    await post(broker, input);
    expect(broker.state(first)).toMatchObject({ state: "active" });
    expect(broker.log(first)).toBe("");
  });

  test("a step of a run whose id an earlier run had, because it may come from that run", async () => {
    const { broker } = await started();
    await broker.run("cancelRuns", { account: "acme", runIds: ["wfr_1"] });
    broker.now++;
    const again = await broker.publish(startOf());
    const [second = ""] = await post(broker, stepOf({ stepId: 1 }));
    await post(broker, stepOf({ stepId: 2 }));
    expect([broker.log(again), broker.log(second)]).toEqual(["", ""]);
    const headers: HeaderList = [["Upstash-Workflow-Sdk-Version", "1"]];
    expect(await broker.settle(again, { status: 200, headers })).toBe("delivered");
  });

  test("a step of a run whose id an earlier run had that began and ended in the same batch", async () => {
    const broker = await CommandRunner.open();
    const input = { account: "acme", inputs: [makeInput(startOf())] };
    await broker.runAll([
      { name: "publish", input },
      { name: "cancelRuns", input: { account: "acme", runIds: ["wfr_1"] } },
      { name: "publish", input },
    ]);
    await post(broker, stepOf({ stepId: 1 }));
    const states = [...broker.memory.tables.messages.values()].map(({ state }) => state);
    expect(states).toEqual(["active", "active", "active"]);
  });

  test("the end of a run whose id an earlier run had", async () => {
    const { broker } = await started();
    await broker.run("cancelRuns", { account: "acme", runIds: ["wfr_1"] });
    broker.now++;
    const again = await broker.publish(startOf());
    broker.now++;
    await broker.run("finishRun", { account: "acme", runId: "wfr_1", body: bytes("1") });
    expect(broker.log(again)).toBe("");
    expect(await broker.settle(again, { status: 500 })).toBe("failed");
  });

  test("a step of a run that has been cancelled", async () => {
    const { broker, first } = await started();
    await broker.run("cancelRuns", { account: "acme", runIds: ["wfr_1"] });
    await expect(post(broker, stepOf({ stepId: 1 }))).rejects.toThrow("no active run");
    expect(broker.state(first)).toMatchObject({ state: "active" });
    expect(broker.log(first)).toBe("");
  });

  test("a step of the same moment, because it has not been sent yet", async () => {
    const { broker, first } = await started();
    await broker.run("publish", { account: "acme", inputs: [stepOf({ stepId: 1 })] });
    expect(broker.state(first)).toMatchObject({ state: "active" });
  });

  test("a step that is posted while the call before it still sleeps", async () => {
    const { broker } = await started();
    const [asleep = ""] = await post(broker, stepOf({ stepId: 1, stepType: "SleepFor" }, { delay: 60_000 }));
    await post(broker, stepOf({ stepId: 2 }));
    expect(broker.state(asleep)).toMatchObject({ state: "pending" });
  });

  test("a step after an unfinished group", async () => {
    const { broker, plans } = await branched();
    await post(broker, stepOf({ stepId: 3 }));
    expect(plans.map((id) => broker.state(id)?.state)).toEqual(["active", "active"]);
  });

  test("the second post of a step", async () => {
    const { broker } = await started();
    const [second = ""] = await post(broker, stepOf({ stepId: 1 }));
    expect(await post(broker, stepOf({ stepId: 1 }))).toEqual([second]);
    expect(broker.state(second)).toMatchObject({ state: "active" });
  });

  test("a post if its response must show that no client is needed", async () => {
    const broker = await CommandRunner.open();
    const first = await broker.publish(startOf({}, "rest"));
    await post(broker, stepOf({ stepId: 1 }));
    expect(await broker.settle(first, { status: 200 })).toBe("failed");
  });

  test("a post if the log keeps its response", async () => {
    const { broker, first } = await started({ keepResponse: true });
    await post(broker, stepOf({ stepId: 1 }));
    expect(broker.state(first)).toMatchObject({ state: "active" });
  });
});

describe("a settled delivery whose request still runs", () => {
  const settledUnderKey = async () => {
    const { broker, first } = await started({ flowControl: key });
    const [second = ""] = await post(broker, stepOf({ stepId: 1 }));
    return { broker, first, second };
  };
  const running = ({ memory }: CommandRunner) =>
    [...memory.tables.limiters.values()].map(({ running: count, waiting }) => [count, waiting]);

  test("keeps its place until the request has ended", async () => {
    const { broker, first, second } = await settledUnderKey();
    expect([broker.state(first)?.state, broker.state(second)?.state]).toEqual(["settled", "held"]);
    expect(running(broker)).toEqual([[1, 1]]);
    expect(broker.settledLeases).toEqual([]);
    expect(await broker.settle(first, { status: 500 })).toBe("delivered");
    expect([broker.state(first), broker.state(second)?.state]).toEqual([undefined, "active"]);
    expect(broker.log(first)).toBe("DELIVERED");
    expect(running(broker)).toEqual([[1, 0]]);
  });

  test("frees its place when its lease ends, and is not sent again", async () => {
    const { broker, first, second } = await settledUnderKey();
    await broker.run("renew", { leases: [{ account: "acme", messageId: first, attempt: 0 }] });
    expect(broker.calledOff).toEqual([]);
    broker.now += spans.lease + 1;
    await broker.run("claim", { limit: 10 });
    await broker.run("claim", { limit: 10 });
    expect([broker.state(first), broker.state(second)?.state]).toEqual([undefined, "active"]);
    expect(broker.log(first)).toBe("DELIVERED");
  });

  test("frees its place when it is given back", async () => {
    const { broker, first } = await settledUnderKey();
    await broker.run("returnLeases", { leases: [{ account: "acme", messageId: first, attempt: 0 }] });
    expect(broker.state(first)).toBeUndefined();
    expect(broker.log(first)).toBe("DELIVERED");
  });

  test("outlives its run, and is not sent again with it", async () => {
    const { broker, first } = await settledUnderKey();
    await broker.run("cancelRuns", { account: "acme", runIds: ["wfr_1"] });
    expect(broker.state(first)).toMatchObject({ state: "settled" });
    expect(running(broker)).toEqual([[1, 0]]);
    expect(await broker.settle(first, { status: 200 })).toBe("delivered");
    expect(running(broker)).toEqual([[0, 0]]);
  });

  test("is not among the unfinished messages of a run that fails", async () => {
    const { broker, second } = await settledUnderKey();
    const { messages } = broker.memory.tables;
    const held = broker.state(second);
    if (!held) throw new Error("nothing is held");
    const lost = { state: "active", leasedBy: "nod_b", dueAt: 1, lostAttempts: maxLostAttempts } as const;
    messages.set(`acme\n${second}`, { ...held, ...lost, waitlist: null, flowControlKey: null });
    await broker.run("claim", { limit: 10 });
    expect(runs(broker)).toMatchObject([{ state: "RUN_FAILED", failure: { unfinished: [] } }]);
  });
});

describe("a call whose reused connection ended without a response", () => {
  const unanswered = { status: null, error: "connection lost", unanswered: true } as const;

  test("is made again at once, and uses up neither a retry nor a lost attempt", async () => {
    const { broker, first } = await started({ retries: 0 });
    expect(await broker.settle(first, unanswered)).toBe("retry");
    expect(broker.state(first)).toMatchObject({ state: "pending", attempts: 1, dueAt: broker.now });
    expect(broker.state(first)).toMatchObject({ lostAttempts: 0, endedAttempts: 1 });
    await broker.run("claim", { limit: 10 });
    expect(broker.deliveries).toMatchObject([{ message: { id: first }, attempt: 1 }]);
    expect(broker.log(first)).toMatch(/^ERROR RETRY/);
  });

  test("is made again once: the next time, it counts", async () => {
    const { broker, first } = await started({ retries: 0 });
    await broker.settle(first, unanswered);
    await broker.run("claim", { limit: 10 });
    expect(await broker.settle(first, unanswered)).toBe("failed");
    expect(runs(broker)).toMatchObject([{ state: "RUN_FAILED" }]);
  });

  test("is not made again after its post, nor after the end of its run", async () => {
    const { broker, first } = await started();
    await post(broker, stepOf({ stepId: 1 }));
    expect(await broker.settle(first, unanswered)).toBe("late");
    const second = broker.deliveries[0]?.message.id;
    expect(second).toBeUndefined();
    const { broker: other, first: only } = await started();
    await other.run("cancelRuns", { account: "acme", runIds: ["wfr_1"] });
    await other.settle(only, unanswered);
    expect(other.state(only)).toBeUndefined();
  });
});
