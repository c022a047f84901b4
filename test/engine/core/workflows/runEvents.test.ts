import { expect, test } from "vitest";
import { limits } from "../../../../src/engine/core/values/limits.ts";
import type { RunFeatures } from "../../../../src/engine/core/model/runPost.ts";
import { CommandRunner, makeInput } from "../commandRunner.ts";

const url = "https://app.example/order";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: false, captured: true };
const start = makeInput({
  url,
  post: { kind: "start", runId: "wfr_1", url, features, origin: "sdk", invoker: null },
});

/** Starts a run with this number of branches that wait for an event. */
async function waiting(branches: number): Promise<CommandRunner> {
  const broker = await CommandRunner.open();
  await broker.publish(start);
  for (let stepId = 1; stepId <= branches; stepId++) {
    const waiter = {
      ...({ kind: "event", event: "paid", url, headers: [], given: [], timeout: "7d", wait: 1_000 } as const),
      timeoutUrl: url,
      timeoutHeaders: [],
      timeoutGiven: [],
      step: { stepId, stepName: "s", stepType: "Wait", concurrent: branches },
    };
    await broker.run("wait", { account: "acme", runId: "wfr_1", waiter });
  }
  return broker;
}

const notify = (broker: CommandRunner, size: number) =>
  broker.run("notify", {
    account: "acme",
    event: "paid",
    body: new Uint8Array(size),
    runId: "wfr_1",
    kind: "event",
  });

test("an event whose results together exceed the history of a run wakes none of its steps", async () => {
  const broker = await waiting(9);
  await expect(notify(broker, limits.messageBytes)).rejects.toThrow('"code":"limit-exceeded"');
  expect(broker.memory.tables.waiters.size).toBe(9);
  expect((await notify(broker, 10)).notified).toHaveLength(9);
});
