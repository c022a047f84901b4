import { describe, expect, test } from "vitest";
import { systemClock } from "../../../src/engine/clock/clock.ts";
import type { CarriedHistory } from "../../../src/engine/core/model/attempt.ts";
import { formatHistory, type SentStep } from "../../../src/engine/core/model/run.ts";
import { verifyJwt, verifyStandard } from "../../../src/engine/delivery/signature.ts";
import { SentHistory } from "../../../src/engine/store/histories/sentHistory.ts";
import { httpDestination, makeDelivery, readBody, signingKey, start } from "./http/destination.ts";

const standardKey = "sig_5T8FcSsynBjn9mMLBsXhpacRovJf";

const makeSteps = (count: number, bytes: number): SentStep[] =>
  Array.from({ length: count }, (_, position) => ({
    position,
    messageId: `msg_${position}`,
    callType: "step",
    body: Buffer.alloc(bytes, position),
  }));

type Arrived = { body: Buffer; headers: NodeJS.Dict<string | string[]> };

/** Starts an endpoint that reads requests when `read` allows it. */
async function endpoint(read: () => Promise<void> = async () => undefined) {
  const arrived: Arrived[] = [];
  const port = await httpDestination(async (incoming, response) => {
    await read();
    arrived.push({ body: await readBody(incoming), headers: incoming.headers });
    response.end();
  });
  return { url: `http://127.0.0.1:${port}/`, arrived };
}

const makeCarrier = (url: string, history: CarriedHistory | undefined) => {
  if (!history) throw new Error("the history is shorter");
  return { ...makeDelivery(url), standardKeys: [standardKey], history };
};

function expectSigned({ body, headers }: Arrived, url: string): void {
  const read = (name: string): string => String(headers[name]);
  const now = systemClock.now();
  expect(Number(headers["content-length"])).toBe(body.byteLength);
  expect(verifyJwt(read("svc-signature"), { keys: [signingKey], body, url, now })).not.toBeNull();
  const standard = {
    id: read("webhook-id"),
    timestamp: read("webhook-timestamp"),
    signature: read("webhook-signature"),
  };
  expect(verifyStandard({ ...standard, body, keys: [standardKey], now })).toBe(true);
}

describe("a delivery with a history", () => {
  test.each([
    [1, 10],
    [30, 100],
    [20, 1_000],
    [1_000, 500],
  ])("sends it whole and signed: %s steps of %s bytes", async (count, bytes) => {
    const { url, arrived } = await endpoint();
    const steps = makeSteps(count, bytes);
    const history = new SentHistory();
    history.append(steps);
    const last = count - 1;
    const positions = [last, Math.floor(last / 2), last];
    const deliver = start();
    for (const position of positions)
      expect(await deliver(makeCarrier(url, history.upTo(position)))).toMatchObject({ status: 200 });
    for (const [at, position] of positions.entries()) {
      const one = arrived[at] as Arrived;
      expect(one.body.toString()).toBe(Buffer.from(formatHistory(steps.slice(0, position + 1))).toString());
      expectSigned(one, url);
    }
  });

  test("sends the same while the history grows and the endpoint reads slowly", async () => {
    const { promise: grown, resolve } = Promise.withResolvers<void>();
    const { url, arrived } = await endpoint(() => grown);
    const steps = makeSteps(1_200, 10_000);
    const history = new SentHistory();
    const deliver = start();
    history.append(steps.slice(0, 1_000));
    const slow = deliver(makeCarrier(url, history.upTo(999)));
    await new Promise((continued) => void setTimeout(continued, 50));
    history.append(steps.slice(1_000));
    const other = deliver(makeCarrier(url, history.upTo(1_199)));
    resolve();
    expect([(await slow).error, (await other).error]).toEqual([null, null]);
    const bodies = arrived.map(({ body }) => body.toString()).sort((a, b) => a.length - b.length);
    const expected = [1_000, 1_200].map((count) => Buffer.from(formatHistory(steps.slice(0, count))));
    expect(bodies.map((text, at) => text === expected[at]?.toString())).toEqual([true, true]);
    for (const one of arrived) expectSigned(one, url);
  });
});
