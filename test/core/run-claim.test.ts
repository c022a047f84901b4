import { expect, test } from "vitest";
import { maxLost, spans } from "../../src/core/limits.ts";
import type { Letter, RunFeatures } from "../../src/core/message.ts";
import { Broker, letterOf, noon } from "./broker.ts";

const endpoint = "https://app.example/order";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: false, captured: true };
const start = letterOf({ url: endpoint, post: { kind: "start", runId: "wfr_1", url: endpoint, features, origin: "sdk", invoker: null } });
const step: Letter = letterOf({
  ...{ url: endpoint, delay: spans.lease },
  post: { kind: "step", runId: "wfr_1", head: { stepId: 1, stepName: "s", stepType: "SleepFor", concurrent: 1 } },
});

test("a message that was due is not sent when its run has ended in the same claim", async () => {
  const broker = await Broker.open();
  await broker.run("publish", { account: "acme", letters: [start, step] });
  const { messages } = broker.memory.tables;
  const first = [...messages].find(([, { state }]) => state === "active");
  if (!first) throw new Error("nothing was sent");
  const [key, state] = first;
  // It has killed so many nodes that it is not sent again.
  messages.set(key, { ...state, attempts: maxLost, lost: maxLost });
  broker.now = noon + spans.lease + 1;
  await broker.run("claim", { limit: 10 });
  expect([...broker.memory.tables.runs.values()]).toMatchObject([{ state: "RUN_FAILED" }]);
  expect(broker.deliveries).toEqual([]);
  expect([...messages.values()]).toEqual([]);
});
