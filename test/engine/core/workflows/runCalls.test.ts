import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { Outcome } from "../../../../src/engine/core/model/attempt.ts";
import type { RunFeatures } from "../../../../src/engine/core/model/runPost.ts";
import { lazyHistoryBytes, limits } from "../../../../src/engine/core/values/limits.ts";
import { CommandRunner, bytes, callbackTo, makeInput } from "../commandRunner.ts";

const endpoint = "https://app.example/order";
const modern: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const textOf = ({ message }: Delivery): string => new TextDecoder().decode(message.body);

/**
 * Starts a run with a call to a third party, settles the call with this outcome, and returns the message that
 * carries the response to the endpoint.
 */
async function answered(
  outcome: Partial<Outcome>,
  retries: number,
  callback = callbackTo(endpoint),
): Promise<{ told: Delivery | undefined; became: unknown; broker: CommandRunner }> {
  const broker = await CommandRunner.open();
  const post = {
    kind: "start",
    runId: "wfr_1",
    url: endpoint,
    features: modern,
    origin: "sdk",
    invoker: null,
  } as const;
  await broker.run("publish", { account: "acme", inputs: [makeInput({ url: endpoint, post })] });
  const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 1 };
  const call = makeInput({
    url: "https://third.example/x",
    retries,
    callback,
    post: { kind: "call", runId: "wfr_1", head },
  });
  const [result] = await broker.run("publish", { account: "acme", inputs: [call] });
  if (!result || !("messageId" in result)) throw new Error(JSON.stringify(result));
  const became = await broker.settle(result.messageId, outcome);
  return { told: broker.deliveries.find(({ message }) => message.run?.kind === "result"), became, broker };
}

test("the response of a third party arrives after the delay of its callback", async () => {
  const callback = { ...callbackTo(endpoint), delay: 60_000 };
  const { told, broker } = await answered({ status: 200, body: bytes("yes") }, 0, callback);
  expect(told).toBeUndefined();
  broker.now += 60_000;
  await broker.run("claim", { limit: 10 });
  expect(broker.deliveries.filter(({ message }) => message.run?.kind === "result")).toHaveLength(1);
});

test("a response of a third party is always sent, because clients fail on an empty body", async () => {
  const { told } = await answered({ status: 200, body: new Uint8Array(lazyHistoryBytes + 1) }, 0);
  expect(told?.message.body.byteLength).toBeGreaterThan(lazyHistoryBytes);
});

test("a final failure has no retries left, regardless of the requested number", async () => {
  const never = [["Upstash-Nonretryable-Error", "true"]] as const;
  const { told, became } = await answered({ status: 489, headers: never, body: bytes("no") }, 3);
  expect(became).toBe("failed");
  expect(JSON.parse(told ? textOf(told) : "")).toMatchObject({ status: 489, maxRetries: 0 });
});

test("a result larger than any message is refused so that its client gives up the run", async () => {
  const broker = await CommandRunner.open();
  const start = {
    kind: "start",
    runId: "wfr_1",
    url: endpoint,
    features: modern,
    origin: "sdk",
    invoker: null,
  } as const;
  const step = { kind: "step", runId: "wfr_1", head: null } as const;
  const body = new Uint8Array(limits.messageBytes + 1);
  await broker.run("publish", { account: "acme", inputs: [makeInput({ url: endpoint, post: start })] });
  for (const [post, refused] of [
    [start, "too-large"],
    [step, "step-refused"],
  ] as const) {
    const told = broker.run("publish", {
      account: "acme",
      inputs: [makeInput({ url: endpoint, post, body })],
    });
    await expect(told).rejects.toThrow(`"code":"${refused}"`);
  }
});

describe("the outcome of a call to a third party whose run has ended", () => {
  const outcomes: readonly (readonly [string, Partial<Outcome>, string])[] = [
    ["an answer", { status: 200 }, "DELIVERED"],
    ["a response with an error", { status: 500 }, "ERROR CANCELLED"],
    ["no response", { status: null, error: "connection refused" }, "ERROR CANCELLED"],
    ["a response that asks for a retry", { status: 503, headers: [["Retry-After", "1"]] }, "ERROR CANCELLED"],
  ];

  test.for(
    outcomes.flatMap(([name, outcome, log]) =>
      (["cancelled", "finished", "failed"] as const).map((end) => [name, end, outcome, log] as const),
    ),
  )("is not sent to the endpoint: %s, of a run that is %s", async ([, end, outcome, log]) => {
    const broker = await CommandRunner.open();
    const failureCallback = callbackTo("https://app.example/failed");
    const post = {
      kind: "start",
      runId: "wfr_1",
      url: endpoint,
      features: modern,
      origin: "sdk",
      invoker: null,
    } as const;
    const first = await broker.publish({ url: endpoint, retries: 0, failureCallback, post });
    const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 2 };
    const call = await broker.publish({
      url: "https://third.example/x",
      retries: 3,
      callback: callbackTo(endpoint),
      post: { kind: "call", runId: "wfr_1", head },
    });
    if (end === "cancelled") await broker.run("cancelRuns", { account: "acme", runIds: ["wfr_1"] });
    else if (end === "finished")
      await broker.run("finishRun", { account: "acme", runId: "wfr_1", body: bytes("") });
    else await broker.settle(first, { status: 500 });
    // The failure callback is sent as before, and reports only the failure.
    const tellers = broker.deliveries.map(({ message }) => [message.url, message.run?.kind]);
    expect(tellers).toEqual(end === "failed" ? [[failureCallback.url, "failure"]] : []);
    await broker.settle(call, outcome);
    expect(broker.deliveries).toEqual([]);
    expect(broker.state(call)).toBeUndefined();
    expect(broker.log(call)).toBe(log);
    expect(
      [...broker.memory.tables.steps.values()].filter(({ callType }) => callType === "fromCallback"),
    ).toEqual([]);
  });
});
