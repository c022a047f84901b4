import { expect, test } from "vitest";
import { memory } from "../../../../src/engine/core/values/limits.ts";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { RunFeatures } from "../../../../src/engine/core/model/runPost.ts";
import { parseHost } from "../../../../src/engine/core/values/url.ts";
import { laneName } from "../../../../src/engine/core/admission/capacity.ts";
import { CommandRunner, makeInput, noCapacity, noon, ampleCapacity } from "../commandRunner.ts";

const endpoint = "https://app.example/order";
const features: RunFeatures = { lazyFetch: false, initialBody: true, detect: false, captured: true };
const payload = new Uint8Array(512 * 1024);
const planOf = (targetStep: number): MessageInput => {
  const head = { stepId: 0, stepName: "s", stepType: "Run", concurrent: 600, targetStep };
  return makeInput({ url: endpoint, body: new Uint8Array(10), post: { kind: "step", runId: "wfr_1", head } });
};

/**
 * Starts a run with this number of parallel steps, each with half a mebibyte, followed by a message of
 * another account.
 */
async function crowd(count: number): Promise<CommandRunner> {
  const broker = await CommandRunner.open();
  await broker.run("createAccount", {
    id: "other",
    name: "other",
    password: "",
    token: "t2",
    tokenHash: "h2",
    signingKeys: { current: "sig_1", next: "sig_2" },
  });
  broker.capacity = noCapacity;
  const start: MessageInput = makeInput({
    url: endpoint,
    body: payload,
    delay: 1_000,
    post: { kind: "start", runId: "wfr_1", url: endpoint, features, origin: "sdk", invoker: null },
  });
  await broker.run("publish", {
    account: "acme",
    inputs: [start, ...Array.from({ length: count }, (_, at) => planOf(at + 1))],
  });
  broker.now = noon + 1;
  await broker.run("publish", { account: "other", inputs: [makeInput()] });
  return broker;
}

/** Returns the delivery capacity that is left beside these running deliveries. */
function handsBeside(running: readonly Delivery[]): CommandRunner["capacity"] {
  const runningByLane = new Map<string, number>();
  const bytes: Record<string, number> = {};
  let free = memory.sending;
  for (const { message } of running) {
    const lane = laneName(message.account, parseHost(message.url));
    runningByLane.set(lane, (runningByLane.get(lane) ?? 0) + 1);
    bytes[lane] = (bytes[lane] ?? 0) + message.body.byteLength;
    free -= message.body.byteLength;
  }
  return {
    ...ampleCapacity,
    free: ampleCapacity.free - running.length,
    runningByLane,
    bytes: { free, perBatch: memory.batch, byLane: bytes },
  };
}

test("many large messages of one run to one host delay other messages no longer than a few do", async () => {
  const broker = await crowd(600);
  const running: Delivery[] = [];
  let claims = 0;
  while (!running.some(({ message }) => message.account === "other")) {
    broker.capacity = handsBeside(running);
    await broker.run("claim", { limit: 256 });
    running.push(...broker.deliveries);
    expect(++claims).toBeLessThan(20);
  }
  const before = running
    .filter(({ message }) => message.account === "acme")
    .reduce((sum, { message }) => sum + message.body.byteLength, 0);
  expect(before).toBeGreaterThan(0);
  expect(before).toBeLessThanOrEqual(memory.batch / 4);
  expect(claims).toBeLessThanOrEqual(3);
});

test("all large messages are sent in the end, as delivery capacity and memory become free", async () => {
  const broker = await crowd(60);
  const sent = new Set<string>();
  for (let turn = 0; sent.size < 61; turn++) {
    broker.capacity = handsBeside([]);
    broker.now += 10;
    await broker.run("claim", { limit: 256 });
    const { deliveries } = broker;
    const ofRun = deliveries.filter(({ message }) => message.account === "acme");
    const bytes = ofRun.reduce((sum, { message }) => sum + message.body.byteLength, 0);
    expect(bytes).toBeLessThanOrEqual(memory.batch / 4);
    const known = [...deliveries];
    for (const { message } of known) {
      sent.add(message.id);
      await broker.run("settle", { ...outcomeFor(message.id, message.account, message.url) });
      for (const one of broker.deliveries) known.push(one);
    }
    expect(turn).toBeLessThan(100);
    expect(broker.faults).toEqual([]);
  }
});

const outcomeFor = (messageId: string, account: string, url: string) => ({
  account,
  messageId,
  host: parseHost(url),
  attempt: 0,
  status: 200,
  headers: [],
  body: new Uint8Array(0),
  error: null,
  took: 1,
});
