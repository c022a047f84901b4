import { expect, test } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import type { RunFeatures } from "../../../../src/engine/core/model/runPost.ts";
import { CommandRunner, callbackTo, makeInput, noCapacity } from "../commandRunner.ts";

const endpoint = "https://app.example/order";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: false, captured: true };
const start = makeInput({
  url: endpoint,
  retries: 0,
  failureCallback: callbackTo("https://told.example/"),
  post: { kind: "start", runId: "wfr_1", url: endpoint, features, origin: "sdk", invoker: null },
});

const putAside = (broker: CommandRunner, id: string) =>
  broker.run("quarantine", { row: { table: "messages", account: "acme", id }, reason: "not storable" });

test("a run learns that its failure callback was quarantined", async () => {
  const broker = await CommandRunner.open();
  await broker.settle(await broker.publish(start), { status: 500 });
  const [callback] = broker.deliveries;
  broker.now += spans.lease;
  await putAside(broker, callback?.message.id ?? "");
  const state = "CALLBACK_FAIL";
  expect([...broker.memory.tables.deadLetters.values()]).toMatchObject([{ failureCallback: { state } }]);
  expect([...broker.memory.tables.runs.values()]).toMatchObject([{ failure: { callback: { state } } }]);
});

test("a run does not wait without end for the response to a request that was quarantined", async () => {
  const broker = await CommandRunner.open();
  await broker.publish(start);
  const { capacity } = broker;
  broker.capacity = noCapacity;
  const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 1 };
  const call = {
    url: "https://third.example/",
    callback: callbackTo(endpoint),
    post: { kind: "call", runId: "wfr_1", head },
  } as const;
  const messageId = await broker.publish(call);
  // Other messages wait for the endpoint, and are not overtaken.
  broker.memory.tables.hostWaitlists.set("acme\napp.example", {
    account: "acme",
    host: "app.example",
    dueAt: broker.now,
  });
  broker.capacity = capacity;
  await putAside(broker, messageId);
  const [, , answer] = [...broker.memory.tables.steps.values()];
  expect(answer).toMatchObject({ callType: "fromCallback", head });
  expect(broker.state(answer?.messageId ?? "")).toMatchObject({ state: "pending" });
});
