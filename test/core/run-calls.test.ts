import { expect, test } from "vitest";
import type { Delivery, Outcome, RunFeatures } from "../../src/core/message.ts";
import { lazyBytes, limits } from "../../src/core/limits.ts";
import { Broker, bytes, callbackTo, letterOf } from "./broker.ts";

const endpoint = "https://app.example/order";
const modern: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const textOf = ({ message }: Delivery): string => new TextDecoder().decode(message.body);

/** A run with a call to a third party, which has answered so. The message that tells the endpoint of it. */
async function answered(
  outcome: Partial<Outcome>,
  retries: number,
  callback = callbackTo(endpoint),
): Promise<{ told: Delivery | undefined; became: unknown; broker: Broker }> {
  const broker = await Broker.open();
  const post = { kind: "start", runId: "wfr_1", url: endpoint, features: modern, origin: "sdk", invoker: null } as const;
  await broker.run("publish", { account: "acme", letters: [letterOf({ url: endpoint, post })] });
  const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 1 };
  const call = letterOf({
    ...{ url: "https://third.example/x", retries, callback, post: { kind: "call", runId: "wfr_1", head } },
  });
  const [result] = await broker.run("publish", { account: "acme", letters: [call] });
  if (!result || !("messageId" in result)) throw new Error(JSON.stringify(result));
  const became = await broker.settle(result.messageId, outcome);
  return { told: broker.deliveries.find(({ message }) => message.run?.kind === "result"), became, broker };
}

test("the answer of a third party comes after the delay of its callback", async () => {
  const callback = { ...callbackTo(endpoint), delay: 60_000 };
  const { told, broker } = await answered({ status: 200, body: bytes("yes") }, 0, callback);
  expect(told).toBeUndefined();
  broker.now += 60_000;
  await broker.run("claim", { limit: 10 });
  expect(broker.deliveries.filter(({ message }) => message.run?.kind === "result")).toHaveLength(1);
});

test("the answer of a third party is sent along, however large it is: clients fail on an empty one", async () => {
  const { told } = await answered({ status: 200, body: new Uint8Array(lazyBytes + 1) }, 0);
  expect(told?.message.body.byteLength).toBeGreaterThan(lazyBytes);
});

test("a failure after which nothing is tried again has no retries left, whatever was asked for", async () => {
  const never = [["Upstash-Nonretryable-Error", "true"]] as const;
  const { told, became } = await answered({ status: 489, headers: never, body: bytes("no") }, 3);
  expect(became).toBe("failed");
  expect(JSON.parse(told ? textOf(told) : "")).toMatchObject({ status: 489, maxRetries: 0 });
});

test("a result larger than any message is refused so that its client gives up the run", async () => {
  const broker = await Broker.open();
  const start = { kind: "start", runId: "wfr_1", url: endpoint, features: modern, origin: "sdk", invoker: null } as const;
  const step = { kind: "step", runId: "wfr_1", head: null } as const;
  const body = new Uint8Array(limits.messageBytes + 1);
  await broker.run("publish", { account: "acme", letters: [letterOf({ url: endpoint, post: start })] });
  for (const [post, refused] of [
    [start, "too-large"],
    [step, "step-refused"],
  ] as const) {
    const told = broker.run("publish", { account: "acme", letters: [letterOf({ url: endpoint, post, body })] });
    await expect(told).rejects.toThrow(`"code":"${refused}"`);
  }
});
