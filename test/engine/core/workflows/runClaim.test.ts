import { expect, test } from "vitest";
import { maxLostAttempts, spans } from "../../../../src/engine/core/values/limits.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { RunFeatures } from "../../../../src/engine/core/model/runPost.ts";
import { CommandRunner, bytes, makeInput, noon } from "../commandRunner.ts";

const endpoint = "https://app.example/order";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: false, captured: true };
const start = makeInput({
  url: endpoint,
  post: { kind: "start", runId: "wfr_1", url: endpoint, features, origin: "sdk", invoker: null },
});
const step: MessageInput = makeInput({
  url: endpoint,
  delay: spans.lease,
  post: {
    kind: "step",
    runId: "wfr_1",
    head: { stepId: 1, stepName: "s", stepType: "SleepFor", concurrent: 1 },
  },
});

test("a due message is not sent if its run has ended in the same claim", async () => {
  const broker = await CommandRunner.open();
  await broker.run("publish", { account: "acme", inputs: [start, step] });
  const { messages } = broker.memory.tables;
  const first = [...messages].find(([, { state }]) => state === "active");
  if (!first) throw new Error("nothing was sent");
  const [key, state] = first;
  // The message has lost its lease too often to be sent again.
  messages.set(key, { ...state, attempts: maxLostAttempts, lostAttempts: maxLostAttempts });
  broker.now = noon + spans.lease + 1;
  await broker.run("claim", { limit: 10 });
  expect([...broker.memory.tables.runs.values()]).toMatchObject([{ state: "RUN_FAILED" }]);
  expect(broker.deliveries).toEqual([]);
  expect([...messages.values()]).toEqual([]);
});

/** Returns a run that ended while its first message was being sent. */
async function endedWhileSending(): Promise<{ broker: CommandRunner; messageId: string }> {
  const broker = await CommandRunner.open();
  const messageId = await broker.publish({
    ...start,
    flowControl: { key: "k", parallelism: 1, rate: null, period: null },
  });
  await broker.run("finishRun", { account: "acme", runId: "wfr_1", body: bytes("done") });
  expect(broker.state(messageId)).toMatchObject({ state: "active" });
  return { broker, messageId };
}

test("a message is not sent again if its lease expires after the end of its run", async () => {
  const { broker, messageId } = await endedWhileSending();
  broker.now += spans.lease;
  await broker.run("claim", { limit: 10 });
  expect(broker.deliveries).toEqual([]);
  expect(broker.log(messageId)).toBe("ERROR CANCELLED");
  expect([...broker.memory.tables.messages.values()]).toEqual([]);
  expect([...broker.memory.tables.limiters.values()]).toMatchObject([{ running: 0, waiting: 0 }]);
});

test("a message that is returned after the end of its run is not sent again", async () => {
  const { broker, messageId } = await endedWhileSending();
  expect(await broker.run("returnLeases", { leases: [{ account: "acme", messageId, attempt: 0 }] })).toEqual({
    returned: 1,
  });
  expect(broker.log(messageId)).toBe("CANCELLED");
  expect([...broker.memory.tables.messages.values()]).toEqual([]);
  expect([...broker.memory.tables.limiters.values()]).toMatchObject([{ running: 0, waiting: 0 }]);
});

test("a message of an active run is sent again if its lease expires or it is returned", async () => {
  const broker = await CommandRunner.open();
  const messageId = await broker.publish(start);
  broker.now += spans.lease;
  await broker.run("claim", { limit: 10 });
  expect(broker.deliveries).toMatchObject([{ attempt: 1, message: { id: messageId } }]);
  await broker.run("returnLeases", { leases: [{ account: "acme", messageId, attempt: 1 }] });
  await broker.run("claim", { limit: 10 });
  expect(broker.deliveries).toMatchObject([{ attempt: 1, message: { id: messageId } }]);
});
