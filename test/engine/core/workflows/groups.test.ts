import { describe, expect, test } from "vitest";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { RunFeatures, StepHead } from "../../../../src/engine/core/model/runPost.ts";
import { CommandRunner, bytes, callbackTo, makeEventWait, makeInput } from "../commandRunner.ts";

// A published client discards the call with a result of a parallel group while another result is missing.
// Such a result is stored without a message.

const endpoint = "https://app.example/order";
/** The features of clients before version 1, of those from version 1 on, and of another one. */
const older: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: false };
const newer: RunFeatures = { ...older, captured: true };
const unknown: RunFeatures = { lazyFetch: false, initialBody: false, detect: false, captured: false };

const makeHead = (head: Partial<StepHead>): StepHead => ({
  ...{ stepId: 1, stepName: "s", stepType: "Run", concurrent: 3 },
  ...head,
});

const makeStep = (
  head: Partial<StepHead>,
  { features, ...more }: Partial<MessageInput> & { features?: RunFeatures | undefined } = {},
): MessageInput =>
  makeInput({
    url: endpoint,
    body: bytes(JSON.stringify(head)),
    post: { kind: "step", runId: "wfr_1", head: makeHead(head), ...(features && { features }) },
    ...more,
  });

const makePlan = (targetStep: number, concurrent = 3): MessageInput =>
  makeStep({ stepId: 0, targetStep, concurrent });

/** Posts a millisecond later, because a delivery of the same moment has not been sent. */
async function post(broker: CommandRunner, ...inputs: MessageInput[]): Promise<string[]> {
  broker.now++;
  const results = await broker.run("publish", { account: "acme", inputs });
  return results.map((result) => ("messageId" in result ? result.messageId : ""));
}

/** Returns a run with the plans of a parallel group, which are being sent. */
async function branch(
  size = 3,
  more: Partial<MessageInput> = {},
): Promise<{ broker: CommandRunner; plans: string[] }> {
  const broker = await CommandRunner.open();
  const features = { ...newer };
  await broker.publish({
    url: endpoint,
    post: { kind: "start", runId: "wfr_1", url: endpoint, features, origin: "sdk", invoker: null },
    ...more,
  });
  const plans = await post(broker, ...Array.from({ length: size }, (_, at) => makePlan(at + 1, size)));
  return { broker, plans };
}

/** Returns the positions of the steps that the deliveries of the last command carry. */
const sent = ({ deliveries }: CommandRunner): (number | undefined)[] =>
  deliveries.map(({ message }) => message.run?.position);

const activeRun = ({ memory }: CommandRunner) => memory.tables.activeRuns.get("acme\nwfr_1");

describe("the results of a group", () => {
  test("make one call together: the last one carries all of them", async () => {
    const { broker, plans } = await branch();
    for (const stepId of [2, 3]) {
      const [id] = await post(broker, makeStep({ stepId }, { features: older }));
      expect(id).toBe(plans[stepId - 1]);
      expect(broker.deliveries).toEqual([]);
    }
    expect(plans.map((id) => broker.log(id))).toEqual(["", "DELIVERED", "DELIVERED"]);
    const [last] = await post(broker, makeStep({ stepId: 1 }, { features: older }));
    expect(sent(broker)).toEqual([6]);
    expect(broker.deliveries[0]?.message.id).toBe(last);
    const history = JSON.parse(new TextDecoder().decode(broker.deliveries[0]?.message.body)) as unknown[];
    expect(history).toHaveLength(7);
    expect(activeRun(broker)).toMatchObject({
      steps: 7,
      lastCall: { messageId: last, fromStep: 2, toStep: 4 },
    });
  });

  test("are counted and stored once each, also if they are posted again", async () => {
    const { broker, plans } = await branch(2);
    const result = makeStep({ stepId: 2, concurrent: 2 }, { features: older });
    expect(await post(broker, result)).toEqual([plans[1]]);
    expect(await post(broker, result)).toEqual([plans[1]]);
    expect(await post(broker, makePlan(2, 2))).toEqual([plans[1]]);
    expect(broker.deliveries).toEqual([]);
    expect(activeRun(broker)).toMatchObject({ steps: 4, openPlans: 1 });
    await post(broker, makeStep({ stepId: 1, concurrent: 2 }, { features: older }));
    expect(sent(broker)).toEqual([4]);
    expect(activeRun(broker)).not.toHaveProperty("openPlans");
  });

  test("of the next group are counted from the beginning", async () => {
    const { broker } = await branch(2);
    for (const stepId of [1, 2]) await post(broker, makeStep({ stepId, concurrent: 2 }, { features: older }));
    await post(broker, makePlan(3), makePlan(4), makePlan(5));
    expect(activeRun(broker)).toMatchObject({ openPlans: 3 });
    for (const stepId of [5, 4]) {
      await post(broker, makeStep({ stepId }, { features: older }));
      expect(broker.deliveries).toEqual([]);
    }
    await post(broker, makeStep({ stepId: 3 }, { features: older }));
    expect(sent(broker)).toEqual([10]);
  });

  test("that the server appends have their message, and count", async () => {
    const { broker } = await branch();
    const waiter = makeEventWait("paid", 2);
    await broker.run("wait", {
      ...{ account: "acme", runId: "wfr_1" },
      waiter: { ...waiter, step: { ...waiter.step, concurrent: 3 } },
    });
    await broker.run("notify", {
      ...{ account: "acme", event: "paid", body: bytes("x"), runId: "wfr_1", kind: "event" },
    });
    expect(sent(broker)).toEqual([4]);
    await post(broker, makeStep({ stepId: 1 }, { features: older }));
    expect(broker.deliveries).toEqual([]);
    await post(broker, makeStep({ stepId: 3 }, { features: older }));
    expect(sent(broker)).toEqual([6]);
  });

  test("of third parties are stored without a message too, in the call with the response", async () => {
    const { broker } = await branch(2);
    const head = makeHead({ stepId: 1, stepType: "Call", concurrent: 2 });
    const to = { url: "https://third.example/", callback: callbackTo(endpoint) };
    const [called = ""] = await post(
      broker,
      makeInput({ ...to, post: { kind: "call", runId: "wfr_1", head } }),
    );
    await broker.settle(called, { host: "third.example", status: 200 });
    const answer = broker.deliveries[0]?.message.id ?? "";
    expect(await post(broker, makeStep(head, { features: older }))).toEqual([answer]);
    expect(broker.deliveries).toEqual([]);
    expect(broker.log(answer)).toBe("DELIVERED");
    await post(broker, makeStep({ stepId: 2, concurrent: 2 }, { features: older }));
    expect(sent(broker)).toEqual([6]);
  });

  test("that are delayed have their message", async () => {
    const { broker } = await branch();
    await post(broker, makeStep({ stepId: 1 }, { features: older, delay: 1_000 }));
    const [id = ""] = await post(
      broker,
      makeStep({ stepId: 2 }, { features: older, notBefore: broker.now + 9 }),
    );
    expect(broker.state(id)).toMatchObject({ state: "pending" });
    await post(broker, makeStep({ stepId: 3 }, { features: older }));
    expect(sent(broker)).toEqual([6]);
  });

  test("count as steps, and not as messages", async () => {
    const { broker } = await branch(2);
    const count = () => broker.memory.tables.storedMessages.size;
    const before = count();
    await post(broker, makeStep({ stepId: 1, concurrent: 2 }, { features: older }));
    expect(count()).toBe(before);
  });
});

describe("a call is made with each result", () => {
  test.each([
    ["of a client from version 1 on", newer, undefined],
    ["of a client that does not say what it is", undefined, "all"],
    ["of a client without the features of published ones", unknown, "all"],
    ["of every client, if the server is set so", older, "none"],
  ] as const)("%s", async (_, features, skipsCallsOf) => {
    const { broker } = await branch();
    broker.skipsCallsOf = skipsCallsOf;
    for (const [at, stepId] of [1, 2, 3].entries()) {
      await post(broker, makeStep({ stepId }, { features }));
      expect(sent(broker)).toEqual([4 + at]);
    }
  });

  test("of a run that keeps the responses of its calls", async () => {
    const { broker } = await branch(3, { keepResponse: true });
    await post(broker, makeStep({ stepId: 2 }, { features: older }));
    expect(sent(broker)).toEqual([4]);
  });

  test("if a node of an older version has stored a step of the group", async () => {
    const { broker } = await branch();
    const { activeRuns } = broker.memory.tables;
    const active = activeRun(broker);
    if (!active) throw new Error("no active run");
    // The store shows no number of plans if another number of steps was written with it.
    const { openPlans: _, ...unknownToOlder } = active;
    activeRuns.set("acme\nwfr_1", unknownToOlder);
    for (const stepId of [1, 2, 3]) {
      await post(broker, makeStep({ stepId }, { features: older }));
      expect(broker.deliveries).toHaveLength(1);
    }
  });
});

test("clients from version 1 on are called once too, if the server is set so", async () => {
  const { broker } = await branch();
  broker.skipsCallsOf = "all";
  for (const stepId of [1, 2]) {
    await post(broker, makeStep({ stepId }, { features: newer }));
    expect(broker.deliveries).toEqual([]);
  }
  await post(broker, makeStep({ stepId: 3 }, { features: newer }));
  expect(sent(broker)).toEqual([6]);
});

test("a step of the group that fails ends the run, and a resume repeats only this step", async () => {
  const { broker, plans } = await branch(2, { retries: 0 });
  await post(broker, makeStep({ stepId: 1, concurrent: 2 }, { features: older }));
  await broker.settle(plans[1] ?? "", { status: 500, host: "app.example" });
  const [run] = [...broker.memory.tables.runs.values()];
  expect(run).toMatchObject({ state: "RUN_FAILED", steps: 4, failure: { messageId: plans[1] } });
  const dlqId = broker.deadLetters[0]?.id ?? "";
  await broker.run("resumeRun", {
    ...{ account: "acme", dlqId, from: "failure" as const, overrides: {}, logRetention: 1_000 },
  });
  expect(sent(broker)).toEqual([2]);
  const resumed = broker.deliveries[0]?.message.run?.runId ?? "";
  // A resumed run may receive posts of the failed one, so it makes each call.
  const result = makeStep({ stepId: 2, concurrent: 2 });
  await post(broker, {
    ...result,
    post: { kind: "step", runId: resumed, head: makeHead({ stepId: 2, concurrent: 2 }), features: older },
  });
  expect(sent(broker)).toEqual([4]);
});
