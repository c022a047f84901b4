import { describe, expect, test } from "vitest";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { RunFeatures, StepHead } from "../../../../src/engine/core/model/runPost.ts";
import { maxLostAttempts } from "../../../../src/engine/core/values/limits.ts";
import type { DeliveryCapacity } from "../../../../src/engine/core/admission/capacity.ts";
import { ampleCapacity, CommandRunner, bytes, makeInput, noCapacity, noon } from "../commandRunner.ts";

// A step that runs on is stored without a message, and its call continues with the next step.

const endpoint = "https://app.example/order";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: true };

type StepOptions = Partial<MessageInput> & { attempt?: number; call?: string };

const makeStep = (
  messageId: string,
  head: Partial<StepHead>,
  { attempt = 0, call = "c1", ...more }: StepOptions = {},
): MessageInput => {
  const whole = { ...{ stepId: 1, stepName: "s", stepType: "Run", concurrent: 1 }, ...head };
  return makeInput({
    url: endpoint,
    body: bytes(JSON.stringify(whole)),
    post: { kind: "step", runId: "wfr_1", head: whole, runOn: { messageId, attempt, call } },
    ...more,
  });
};

type Posted = { messageId: string; runsOn?: true };

/** Posts a millisecond later, because a delivery of the same moment has not been sent. */
async function post(broker: CommandRunner, input: MessageInput): Promise<Posted> {
  broker.now++;
  const [result] = await broker.run("publish", { account: "acme", inputs: [input] });
  if (result && "messageId" in result) return result;
  throw new Error(JSON.stringify(result));
}

/** Returns a run whose first call is being made. */
async function start(
  more: Partial<MessageInput> = {},
  given: RunFeatures = features,
): Promise<{ broker: CommandRunner; id: string }> {
  const broker = await CommandRunner.open();
  const id = await broker.publish({
    url: endpoint,
    post: { kind: "start", runId: "wfr_1", url: endpoint, features: given, origin: "sdk", invoker: null },
    ...more,
  });
  return { broker, id };
}

const activeRun = ({ memory }: CommandRunner) => memory.tables.activeRuns.get("acme\nwfr_1");
const runs = ({ memory }: CommandRunner) => [...memory.tables.runs.values()];
const sentLengths = ({ deliveries }: CommandRunner): number[] =>
  deliveries.map(({ message }) => (JSON.parse(new TextDecoder().decode(message.body)) as unknown[]).length);
const isNormal = (posted: Posted, id: string): boolean => posted.runsOn !== true && posted.messageId !== id;

describe("a step runs on", () => {
  test("without a message, and the next one in the same call too", async () => {
    const { broker, id } = await start();
    for (const stepId of [1, 2, 3]) {
      expect(await post(broker, makeStep(id, { stepId }))).toMatchObject({ messageId: id, runsOn: true });
      expect(broker.deliveries).toEqual([]);
    }
    expect(broker.state(id)).toMatchObject({ state: "active", attempts: 0 });
    expect(activeRun(broker)).toMatchObject({
      steps: 4,
      lastCall: {
        messageId: id,
        fromStep: 4,
        toStep: 4,
        progress: { attempt: 0, retried: 0, lost: 0, call: "c1" },
      },
    });
    broker.now++;
    await broker.run("finishRun", { account: "acme", runId: "wfr_1", body: bytes("1") });
    expect(broker.log(id)).toBe("DELIVERED");
    expect(runs(broker)).toMatchObject([{ state: "RUN_SUCCESS", steps: 4 }]);
  });

  test("until a post that does not ask: its message carries all of them", async () => {
    const { broker, id } = await start();
    await post(broker, makeStep(id, { stepId: 1 }));
    const normal = makeStep(id, { stepId: 2 });
    const { messageId } = await post(broker, {
      ...normal,
      post: { kind: "step", runId: "wfr_1", head: normal.post?.kind === "step" ? normal.post.head : null },
    });
    expect(broker.deliveries.map(({ message }) => message.id)).toEqual([messageId]);
    expect(sentLengths(broker)).toEqual([3]);
    expect(broker.log(id)).toBe("DELIVERED");
    expect(activeRun(broker)?.lastCall).toEqual({ messageId, fromStep: 3, toStep: 3 });
  });

  test("and gives the same answer if the same call posts it again", async () => {
    const { broker, id } = await start();
    const step = makeStep(id, { stepId: 1 });
    expect(await post(broker, step)).toMatchObject({ messageId: id, runsOn: true });
    expect(await post(broker, step)).toMatchObject({ messageId: id, runsOn: true });
    expect(activeRun(broker)).toMatchObject({ steps: 2 });
  });

  test("after the last result of a parallel group", async () => {
    const { broker } = await start();
    const plain = (head: Partial<StepHead>): MessageInput => {
      const whole = { ...{ stepId: 0, stepName: "s", stepType: "Run", concurrent: 2 }, ...head };
      return makeInput({ url: endpoint, post: { kind: "step", runId: "wfr_1", head: whole } });
    };
    broker.now++;
    await broker.run("publish", {
      account: "acme",
      inputs: [plain({ targetStep: 1 }), plain({ targetStep: 2 })],
    });
    await post(broker, plain({ stepId: 2 }));
    const { messageId } = await post(broker, plain({ stepId: 1 }));
    // Step 2 already has a result.
    expect((await post(broker, makeStep(messageId, { stepId: 2 }))).runsOn).toBeUndefined();
    expect(await post(broker, makeStep(messageId, { stepId: 3 }))).toMatchObject({ messageId, runsOn: true });
  });
});

describe("a step is posted like any other", () => {
  test.each<[string, (id: string) => MessageInput]>([
    ["of another message", () => makeStep("msg_other", { stepId: 1 })],
    ["of another attempt", (id) => makeStep(id, { stepId: 1 }, { attempt: 1 })],
    ["that sleeps", (id) => makeStep(id, { stepId: 1, stepType: "SleepFor" })],
    ["that is delayed", (id) => makeStep(id, { stepId: 1 }, { delay: 5_000 })],
    ["that has a time", (id) => makeStep(id, { stepId: 1 }, { notBefore: noon + 3_600_000 })],
    ["that is not the next one", (id) => makeStep(id, { stepId: 2 })],
    ["of a group", (id) => makeStep(id, { stepId: 0, targetStep: 1, concurrent: 2 })],
    ["whose history is too long", (id) => makeStep(id, { stepId: 1 }, { body: new Uint8Array(2 ** 20) })],
  ])("%s", async (_, make) => {
    const { broker, id } = await start();
    expect(isNormal(await post(broker, make(id)), id)).toBe(true);
    expect(activeRun(broker)?.lastCall?.progress).toBeUndefined();
  });

  test("of a second request of the same attempt", async () => {
    const { broker, id } = await start();
    await post(broker, makeStep(id, { stepId: 1 }, { call: "c1" }));
    const again = await post(broker, makeStep(id, { stepId: 1 }, { call: "c2" }));
    expect(again).toMatchObject({ messageId: id });
    expect(again.runsOn).toBeUndefined();
    expect(isNormal(await post(broker, makeStep(id, { stepId: 2 }, { call: "c2" })), id)).toBe(true);
    expect(isNormal(await post(broker, makeStep(id, { stepId: 3 }, { call: "c1" })), id)).toBe(true);
  });

  test("while this node starts no deliveries, and if nodes of another version are alive", async () => {
    const { broker, id } = await start();
    broker.capacity = noCapacity;
    expect(isNormal(await post(broker, makeStep(id, { stepId: 1 })), id)).toBe(true);
    const { broker: mixed, id: first } = await start();
    mixed.runsOn = false;
    expect(isNormal(await post(mixed, makeStep(first, { stepId: 1 })), first)).toBe(true);
  });

  test("if its host holds more than its share, and while due messages wait for a claim", async () => {
    const runsOn = async (more: Partial<DeliveryCapacity>) => {
      const { broker, id } = await start();
      const waiting: string[] = [];
      broker.capacity = { ...ampleCapacity, noteWaiting: (lane) => waiting.push(lane), ...more };
      const { runsOn: answer = false } = await post(broker, makeStep(id, { stepId: 1 }));
      expect(answer ? waiting : []).toEqual([]);
      return answer;
    };
    const running = (count: number) => ({ runningByLane: new Map([["acme app.example", count]]) });
    // Its own place is not one that it waits for.
    expect(await runsOn({ perHost: 1, ...running(1) })).toBe(true);
    expect(await runsOn({ free: 4, ...running(5) })).toBe(true);
    expect(await runsOn({ free: 0, ...running(1) })).toBe(true);
    expect(await runsOn({ free: 3, ...running(5) })).toBe(false);
    expect(await runsOn({ free: 0, ...running(2) })).toBe(false);
    expect(await runsOn({ backlog: new Set(["acme"]), ...running(1) })).toBe(false);
    expect(await runsOn({ backlog: new Set(["other"]), ...running(1) })).toBe(true);
    expect(await runsOn({ free: 0, beginsNone: true, ...running(1) })).toBe(false);
  });

  test("if messages to its host wait for a place", async () => {
    const { broker, id } = await start();
    broker.capacity = { ...ampleCapacity, perHost: 1, runningByLane: new Map([["acme app.example", 1]]) };
    expect(await post(broker, makeStep(id, { stepId: 1 }))).toMatchObject({ runsOn: true });
    await broker.publish({ url: "https://app.example/other" });
    await broker.run("claim", { limit: 10 });
    expect(broker.deliveries).toEqual([]);
    expect(isNormal(await post(broker, makeStep(id, { stepId: 2 })), id)).toBe(true);
  });

  const flowControl = { key: "k", parallelism: 1, rate: null, period: null };

  test("if its key is paused, has a rate, or lets others wait", async () => {
    const paused = await start({ flowControl });
    expect(await post(paused.broker, makeStep(paused.id, { stepId: 1 }))).toMatchObject({ runsOn: true });
    await paused.broker.run("pauseLimiter", { account: "acme", id: "key:k" });
    expect(isNormal(await post(paused.broker, makeStep(paused.id, { stepId: 2 })), paused.id)).toBe(true);
    expect(paused.broker.deliveries).toEqual([]);

    const rated = await start({ flowControl: { ...flowControl, rate: 10, period: 1_000 } });
    expect(isNormal(await post(rated.broker, makeStep(rated.id, { stepId: 1 })), rated.id)).toBe(true);

    const waited = await start({ flowControl });
    await waited.broker.publish({ url: "https://app.example/other", flowControl });
    expect(isNormal(await post(waited.broker, makeStep(waited.id, { stepId: 1 })), waited.id)).toBe(true);
  });

  test("if it has its own key, which is not that of its message", async () => {
    const older = { ...features, captured: false };
    const own = await start({ flowControl }, older);
    expect(await post(own.broker, makeStep(own.id, { stepId: 1 }, { flowControl }))).toMatchObject({
      runsOn: true,
    });
    const other = { ...flowControl, key: "other" };
    expect(
      isNormal(await post(own.broker, makeStep(own.id, { stepId: 2 }, { flowControl: other })), own.id),
    ).toBe(true);
  });

  test("of a run that keeps responses", async () => {
    const { broker, id } = await start({ keepResponse: true });
    expect(isNormal(await post(broker, makeStep(id, { stepId: 1 })), id)).toBe(true);
  });
});

test("a step of an ended run is refused", async () => {
  const { broker, id } = await start();
  await post(broker, makeStep(id, { stepId: 1 }));
  await broker.run("cancelRuns", { account: "acme", runIds: ["wfr_1"] });
  await expect(post(broker, makeStep(id, { stepId: 2 }))).rejects.toThrow("no active run");
});

describe("a call that breaks off", () => {
  /** Returns a run with this many steps that ran on. */
  const startWith = async (steps: number, more: Partial<MessageInput> = {}) => {
    const { broker, id } = await start(more);
    for (let stepId = 1; stepId <= steps; stepId++) await post(broker, makeStep(id, { stepId }));
    return { broker, id };
  };

  test.each([
    ["without a response", { status: null, error: "connection lost" }],
    ["with a success in the middle", { status: 200 }],
  ])("is made again at once with the grown history: %s", async (_, outcome) => {
    const { broker, id } = await startWith(2, { retries: 0 });
    expect(await broker.settle(id, outcome)).toBe("retry");
    expect(broker.state(id)).toMatchObject({ attempts: 1, lostAttempts: 1, dueAt: broker.now });
    await broker.run("claim", { limit: 10 });
    expect(sentLengths(broker)).toEqual([3]);
    expect(broker.deliveries).toMatchObject([{ message: { id }, attempt: 1 }]);
    expect(await post(broker, makeStep(id, { stepId: 3 }, { attempt: 1, call: "c2" }))).toMatchObject({
      runsOn: true,
    });
    expect(isNormal(await post(broker, makeStep(id, { stepId: 4 })), id)).toBe(true);
  });

  test("unanswered on a reused connection is made again without being counted, once", async () => {
    const unanswered = { status: null, error: "lost", unanswered: true } as const;
    const { broker, id } = await startWith(2, { retries: 0 });
    expect(await broker.settle(id, unanswered)).toBe("retry");
    expect(broker.state(id)).toMatchObject({ lostAttempts: 0, endedAttempts: 1, dueAt: broker.now });
    await broker.run("claim", { limit: 10 });
    expect(sentLengths(broker)).toEqual([3]);
    const third = makeStep(id, { stepId: 3 }, { attempt: 1, call: "c2" });
    expect(await post(broker, third)).toMatchObject({ runsOn: true });
    expect(await broker.settle(id, unanswered)).toBe("retry");
    expect(broker.state(id)).toMatchObject({ lostAttempts: 1, endedAttempts: 1 });
    await broker.run("claim", { limit: 10 });
    expect(sentLengths(broker)).toEqual([4]);
  });

  test("by an error has the retries of the step that failed", async () => {
    const { broker, id } = await start({ retries: 3, retryDelay: "1000" });
    let attempt = 0;
    const fail = async (times: number): Promise<string> => {
      let became = "";
      for (let time = 0; time < times; time++) {
        became = await broker.settle(id, { status: 500 });
        if (became === "failed") return became;
        attempt++;
        broker.now += 1_000;
        await broker.run("claim", { limit: 10 });
      }
      return became;
    };
    expect(await fail(3)).toBe("retry");
    await post(broker, makeStep(id, { stepId: 1 }, { attempt, call: `c${attempt}` }));
    expect(await fail(3)).toBe("retry");
    await post(broker, makeStep(id, { stepId: 2 }, { attempt, call: `c${attempt}` }));
    expect(await fail(4)).toBe("failed");
    expect(runs(broker)).toMatchObject([{ state: "RUN_FAILED", steps: 3 }]);
    const dlqId = broker.deadLetters[0]?.id ?? "";
    const options = { from: "failure" as const, overrides: {}, logRetention: 1_000 };
    await broker.run("resumeRun", { account: "acme", dlqId, ...options });
    expect(sentLengths(broker)).toEqual([3]);
  });

  test("with its node is made again, and its lost attempts count from the last step", async () => {
    const { broker, id } = await start();
    for (let lost = 0; lost < maxLostAttempts + 2; lost++) {
      await post(broker, makeStep(id, { stepId: lost + 1 }, { attempt: lost, call: `c${lost}` }));
      broker.now += 60_000;
      await broker.run("claim", { limit: 10 });
      expect(sentLengths(broker)).toEqual([lost + 2]);
    }
    for (let lost = 0; lost < maxLostAttempts - 1; lost++) {
      broker.now += 60_000;
      await broker.run("claim", { limit: 10 });
      expect(broker.deliveries).toHaveLength(1);
    }
    broker.now += 60_000;
    await broker.run("claim", { limit: 10 });
    expect(runs(broker)).toMatchObject([{ state: "RUN_FAILED" }]);
  });

  test("because its lease is given back carries its history, and the old call runs on no more", async () => {
    const { broker, id } = await startWith(2);
    await broker.run("returnLeases", { leases: [{ account: "acme", messageId: id, attempt: 0 }] });
    await broker.run("claim", { limit: 10 });
    expect(sentLengths(broker)).toEqual([3]);
    expect(broker.deliveries).toMatchObject([{ attempt: 0 }]);
    // The old and the new call have the same attempt. The next step is stored like any other.
    expect(isNormal(await post(broker, makeStep(id, { stepId: 3 })), id)).toBe(true);
    expect((await post(broker, makeStep(id, { stepId: 3 }, { call: "c2" }))).runsOn).toBeUndefined();
    expect(activeRun(broker)).toMatchObject({ steps: 4 });
  });

  test("and posts late settles the call that was made instead", async () => {
    const { broker, id } = await startWith(1);
    await broker.settle(id, { status: null, error: "timed out" });
    await broker.run("claim", { limit: 10 });
    const late = await post(broker, makeStep(id, { stepId: 2 }));
    expect(isNormal(late, id)).toBe(true);
    expect(broker.log(id)).toMatch(/DELIVERED$/);
    const second = await post(broker, makeStep(id, { stepId: 2 }, { attempt: 1, call: "c2" }));
    expect(second).toMatchObject({ messageId: late.messageId });
    expect(second.runsOn).toBeUndefined();
  });
});

describe("the short form", () => {
  const postShort = (broker: CommandRunner, id: string, stepId: number): Promise<{ runOn: boolean }> => {
    broker.now++;
    const head = { stepId, stepName: "s", stepType: "Run", concurrent: 1 };
    const runOn = { messageId: id, attempt: 0, call: "c1" };
    const body = bytes(JSON.stringify(head));
    return broker.run("runOnStep", { account: "acme", runId: "wfr_1", head, body, runOn });
  };

  test("stores the same as the ordinary post", async () => {
    const [short, ordinary] = [await start(), await start()];
    for (const stepId of [1, 2]) {
      expect(await postShort(short.broker, short.id, stepId)).toEqual({ runOn: true });
      await post(ordinary.broker, makeStep(ordinary.id, { stepId }));
    }
    const rows = ({ memory }: CommandRunner, id: string) =>
      JSON.parse(
        JSON.stringify([
          [...memory.tables.steps.values()].map(({ id, position, head, url }) => [id, position, head, url]),
          [...memory.tables.activeRuns.values()].map(({ steps, lastCall }) => [steps, lastCall]),
          [...memory.tables.messages.values()],
        ])
          .replaceAll(id, "ID")
          .replaceAll(/run_\w+/g, "RUN"),
      ) as unknown;
    expect(rows(short.broker, short.id)).toEqual(rows(ordinary.broker, ordinary.id));
  });

  test("stores nothing while others wait at the key, and for a run that has ended", async () => {
    const { broker, id } = await start({
      flowControl: { key: "k", parallelism: 1, rate: null, period: null },
    });
    await broker.publish({
      url: endpoint,
      flowControl: { key: "k", parallelism: 1, rate: null, period: null },
    });
    expect(await postShort(broker, id, 1)).toEqual({ runOn: false });
    await broker.run("finishRun", { account: "acme", runId: "wfr_1", body: bytes("1") });
    expect(await postShort(broker, id, 1)).toEqual({ runOn: false });
  });
});
