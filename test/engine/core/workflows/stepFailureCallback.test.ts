import { expect, test } from "vitest";
import type { CallbackSettings } from "../../../../src/engine/core/model/sendSettings.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { RunFeatures, StepHead } from "../../../../src/engine/core/model/runPost.ts";
import { CommandRunner, callbackTo, makeEventWait } from "../commandRunner.ts";

// Which failure callback counts when a message of a run fails for good.

const endpoint = "https://app.example/order";
const ofRun = callbackTo("https://app.example/failed");
const ofPost = callbackTo(endpoint);
const head: StepHead = { stepId: 1, stepName: "s", stepType: "Run", concurrent: 1 };

type Posted = "the start" | "a step" | "a plan" | "a call" | "a wait" | "an invocation";

async function postOnce(broker: CommandRunner, posted: Posted): Promise<void> {
  broker.now++;
  const publish = (input: Partial<MessageInput>): Promise<string> =>
    broker.publish({ url: endpoint, retries: 0, ...input });
  const step = (own: StepHead): Partial<MessageInput> => ({
    post: { kind: "step", runId: "wfr_1", head: own },
    failureCallback: ofPost,
  });
  if (posted === "a step") await publish(step(head));
  if (posted === "a plan") await publish(step({ ...head, stepId: 0, targetStep: 1, concurrent: 2 }));
  if (posted === "a call") {
    const callback = { ...callbackTo(endpoint), failureCallback: ofPost };
    const post = { kind: "call", runId: "wfr_1", head: { ...head, stepType: "Call" } } as const;
    const messageId = await publish({ url: "https://third.example/", callback, post });
    await broker.settle(messageId, { status: 200 });
  }
  if (posted === "a wait") {
    const waiter = { ...makeEventWait("e", 1), failureCallback: ofPost };
    await broker.run("wait", { account: "acme", runId: "wfr_1", waiter });
    const body = new Uint8Array(0);
    await broker.run("notify", { account: "acme", event: "e", body, runId: "wfr_1", kind: "event" });
  }
  if (posted === "an invocation") {
    const invoker = {
      ...{ runId: "wfr_1", createdAt: 0, url: endpoint, headers: [], failureCallback: ofPost },
      step: { ...head, stepType: "Invoke" },
    };
    await publish({ post: makeStart({ runId: "child", isCaptured: true, invoker }) });
    await broker.run("finishRun", { account: "acme", runId: "child", body: new Uint8Array(0) });
  }
}

type Start = Extract<NonNullable<MessageInput["post"]>, { kind: "start" }>;

function makeStart({
  runId,
  isCaptured,
  invoker = null,
}: Pick<Start, "runId"> & { isCaptured: boolean; invoker?: Start["invoker"] }): Start {
  const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: false, captured: isCaptured };
  return { kind: "start", runId, url: endpoint, features, origin: "sdk", invoker };
}

type FailedRun = { isCaptured?: boolean; failureCallback?: CallbackSettings | null };

/** Starts a run, posts for it once, lets the message of the post fail, and returns where that is reported. */
async function failAfter(posted: Posted, { isCaptured = false, failureCallback = ofRun }: FailedRun = {}) {
  const broker = await CommandRunner.open();
  const post = makeStart({ runId: "wfr_1", isCaptured });
  await broker.publish({ url: endpoint, retries: 0, failureCallback, post });
  await postOnce(broker, posted);
  const failing = broker.deliveries.find(({ message }) => message.run?.runId === "wfr_1");
  await broker.settle(failing?.message.id ?? "", { status: 500 });
  const [reported] = broker.deliveries.map(({ message }) => message.url);
  return { broker, reported };
}

test.each<Posted>(["a step", "a plan", "a call", "a wait", "an invocation"])(
  "the failure callback of %s counts for the message that it creates",
  async (posted) => {
    expect((await failAfter(posted)).reported).toBe(ofPost.url);
    expect((await failAfter(posted, { failureCallback: null })).reported).toBe(ofPost.url);
    expect((await failAfter(posted, { isCaptured: true })).reported).toBe(ofRun.url);
    expect((await failAfter(posted, { isCaptured: true, failureCallback: null })).reported).toBeUndefined();
  },
);

test("the failure callback of the run counts for its first message", async () => {
  expect((await failAfter("the start")).reported).toBe(ofRun.url);
  expect((await failAfter("the start", { failureCallback: null })).reported).toBeUndefined();
});

test("a post without a failure callback leaves that of the run", async () => {
  const broker = await CommandRunner.open();
  const post = makeStart({ runId: "wfr_1", isCaptured: false });
  await broker.publish({ url: endpoint, retries: 0, failureCallback: ofRun, post });
  broker.now++;
  const id = await broker.publish({
    url: endpoint,
    retries: 0,
    post: { kind: "step", runId: "wfr_1", head },
  });
  await broker.settle(id, { status: 500 });
  expect(broker.deliveries.map(({ message }) => message.url)).toEqual([ofRun.url]);
});

test("the dead letter, a repeated callback and a resumed run have the callback that counted", async () => {
  const { broker } = await failAfter("a step", { failureCallback: null });
  const [deadLetter] = broker.memory.tables.deadLetters.values();
  const dlqId = deadLetter?.id ?? "";
  expect(deadLetter?.run).toMatchObject({ failureUrl: ofPost.url });
  await broker.settle(broker.deliveries[0]?.message.id ?? "", { status: 489, headers: [nonRetryable] });
  await broker.run("repeatFailureCallback", { account: "acme", dlqId });
  expect(broker.deliveries.map(({ message }) => message.url)).toEqual([ofPost.url]);
  const input = { account: "acme", dlqId, from: "failure", overrides: {}, logRetention: 0 } as const;
  await broker.run("resumeRun", input);
  await broker.settle(broker.deliveries[0]?.message.id ?? "", { status: 500 });
  expect(broker.deliveries.map(({ message }) => message.url)).toEqual([ofPost.url]);
});

const nonRetryable = ["Upstash-Nonretryable-Error", "true"] as const;
