import { expect, test } from "vitest";
import type { InvokerPost, RunFeatures } from "../../../../src/engine/core/model/runPost.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { WaitPost } from "../../../../src/engine/core/commands/wait.ts";
import { CommandRunner, bytes, makeInput, noon } from "../commandRunner.ts";

// A step that has its result keeps it, even if another result arrives.

const endpoint = "https://app.example/order";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: false, captured: true };
const head = { stepId: 1, stepName: "s", stepType: "Wait", concurrent: 1 };

const startOf = (runId: string, invoker: InvokerPost | null = null): MessageInput =>
  makeInput({
    url: endpoint,
    post: { kind: "start", runId, url: endpoint, features, origin: "sdk", invoker },
  });

const result = makeInput({
  url: endpoint,
  body: bytes("first"),
  post: { kind: "step", runId: "wfr_1", head },
});

const waiter: WaitPost = {
  kind: "event",
  event: "paid",
  url: endpoint,
  headers: [],
  given: [],
  timeout: "1s",
  wait: 1000,
  timeoutUrl: endpoint,
  timeoutHeaders: [],
  timeoutGiven: [],
  step: head,
};

const publish = (broker: CommandRunner, input: MessageInput) =>
  broker.run("publish", { account: "acme", inputs: [input] });

const histories = (broker: CommandRunner): string[][] => {
  const steps = [...broker.memory.tables.steps.values()].filter(({ body }) => body.byteLength > 0);
  return [...Map.groupBy(steps, ({ run }) => run).values()].map((one) =>
    one.map(({ position, id }) => `${position} ${id.split("/")[1]}`),
  );
};
const results = (broker: CommandRunner): string[] =>
  [...broker.memory.tables.steps.values()]
    .filter(({ id }) => id.endsWith("/r1"))
    .map(({ body }) => new TextDecoder().decode(body));

test("an event does not wake a step that has its result", async () => {
  const broker = await CommandRunner.open();
  await publish(broker, startOf("wfr_1"));
  await broker.run("wait", { account: "acme", runId: "wfr_1", waiter });
  await publish(broker, result);
  const told = await broker.run("notify", {
    account: "acme",
    event: "paid",
    body: bytes("x"),
    runId: "wfr_1",
    kind: "event",
  });
  expect(told).toEqual({ notified: [], stored: true });
  expect(results(broker)).toEqual(["first"]);
  expect([...broker.memory.tables.activeRuns.values()]).toMatchObject([{ steps: 2 }]);
});

test("the end of a wait does not wake a step that has its result", async () => {
  const broker = await CommandRunner.open();
  await publish(broker, startOf("wfr_1"));
  await broker.run("wait", { account: "acme", runId: "wfr_1", waiter });
  await publish(broker, result);
  broker.now = noon + 2000;
  await broker.run("claim", { limit: 10 });
  expect(results(broker)).toEqual(["first"]);
  expect([...broker.memory.tables.waiters.values()]).toEqual([]);
});

test("a late invocation by an ended run starts nothing for a later run with its run id", async () => {
  const broker = await CommandRunner.open();
  await publish(broker, startOf("wfr_1"));
  await broker.run("finishRun", { account: "acme", runId: "wfr_1", body: bytes("") });
  broker.now = noon + 1;
  await publish(broker, startOf("wfr_1"));
  const invoke = (runId: string, createdAt: number) =>
    publish(broker, startOf(runId, { runId: "wfr_1", createdAt, url: endpoint, headers: [], step: head }));
  // Clients treat this error as the end of their run.
  await expect(invoke("late", noon)).rejects.toThrow(
    'workflow-runid: no active run \\"wfr_1\\" began at 1767268800000',
  );
  expect([...broker.memory.tables.waiters.values()]).toEqual([]);
  await invoke("child", noon + 1);
  // A post that does not say when its run began means the active run.
  await publish(
    broker,
    startOf("other", {
      runId: "wfr_1",
      createdAt: 0,
      url: endpoint,
      headers: [],
      step: { ...head, stepId: 2 },
    }),
  );
  expect([...broker.memory.tables.waiters.values()]).toHaveLength(2);
});

test("the end of an invoked run does not change a step that has its result", async () => {
  const broker = await CommandRunner.open();
  await publish(broker, startOf("wfr_1"));
  await publish(
    broker,
    startOf("child", { runId: "wfr_1", createdAt: noon, url: endpoint, headers: [], step: head }),
  );
  await publish(broker, result);
  await broker.run("finishRun", { account: "acme", runId: "child", body: bytes("second") });
  expect(results(broker)).toEqual(["first"]);
  expect(histories(broker)[0]).toEqual(["0 i", "1 r1"]);
});
