import { describe, expect, test } from "vitest";
import type { Outcome } from "../../../../src/engine/core/model/attempt.ts";
import type { TestServer } from "../../testServer.ts";
import { createTestServer, testTime } from "../../testServer.ts";

const timing = { startedAt: testTime - 20, connect: 4, firstByte: 9, duration: 15 };
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

async function publish(server: TestServer, headers: Record<string, string> = {}): Promise<string> {
  const { body } = await server.ask("POST", "/v2/publish/https://e.example/x", { headers, body: "hello" });
  return String(body.messageId);
}
const read = async (server: TestServer, id: string) => (await server.ask("GET", `/v2/messages/${id}`)).body;

/** Ends the running attempt, and starts the next one. */
async function fail(server: TestServer, outcome: Partial<Outcome>): Promise<void> {
  await server.settle(server.delivery(), outcome);
  server.clock.now += 60_000;
  await server.store.execute("claim", { limit: 10 });
}

describe("a message", () => {
  test("shows the outcomes of its attempts, the newest first", async () => {
    const server = await createTestServer();
    const id = await publish(server, { "svc-retry-delay": "60000" });
    expect(await read(server, id)).toMatchObject({ attempts: 0, outcomes: [] });
    const opening = { lookup: 1, tcp: 2, tls: 1 };
    await fail(server, {
      status: 503,
      headers: [["Retry-In", "9"]],
      body: bytes("busy"),
      timing: { ...timing, opening },
    });
    await fail(server, {
      error: "connection refused",
      timing: { ...timing, connect: null, firstByte: null },
    });
    const outcomes = [
      {
        time: testTime + 60_000,
        error: "connection refused",
        explanation: expect.stringMatching(/^No program listens on this host and port/),
        attempt: { startedAt: timing.startedAt, duration: 15, node: "nod_1" },
      },
      {
        time: testTime,
        responseStatus: 503,
        responseHeader: { "Retry-In": ["9"] },
        responseBody: "busy",
        explanation: expect.stringMatching(/cannot reach the application/),
        attempt: { ...timing, ...opening, node: "nod_1" },
      },
    ];
    expect(await read(server, id)).toMatchObject({ state: "delivering", attempts: 2, outcomes });
    await server.settle(server.delivery(), { status: 200, timing });
    const finished = await read(server, id);
    expect(finished).toMatchObject({ state: "delivered" });
    expect(finished.outcomes).toEqual([
      { time: testTime + 120_000, responseStatus: 200, attempt: { ...timing, node: "nod_1" } },
      ...outcomes,
    ]);
    expect(finished).not.toHaveProperty("attempts");
  });

  test("explains a known failure, also in the log and the dead letter, not by a hidden body", async () => {
    const server = await createTestServer();
    const failure = { status: 403, body: bytes("invalid signature") };
    const login = expect.stringMatching(/requires a login/);
    for (const [headers, explanation] of [
      [{}, expect.stringMatching(/refused the signature/)],
      [{ "svc-redact-fields": "body" }, login],
    ] as const) {
      const id = await publish(server, { "svc-retries": "0", ...headers });
      await server.settle(server.delivery(), failure);
      const { outcomes, dlqId } = await read(server, id);
      expect(outcomes).toMatchObject([{ responseStatus: 403, explanation }]);
      expect((await server.ask("GET", `/v2/dlq/${dlqId}`)).body).toMatchObject({ explanation });
      const events = (await server.ask("GET", `/v2/events?messageId=${id}&state=ERROR`)).body.events;
      expect(events).toMatchObject([{ explanation }]);
    }
  });

  test("has no explanation of an unknown failure", async () => {
    const server = await createTestServer();
    const id = await publish(server, { "svc-retries": "0" });
    await server.settle(server.delivery(), { status: 500, body: bytes("boom") });
    const { outcomes, dlqId } = await read(server, id);
    expect(outcomes[0]).not.toHaveProperty("explanation");
    expect((await server.ask("GET", `/v2/dlq/${dlqId}`)).body).not.toHaveProperty("explanation");
  });

  test("shows the response of a success only if the log keeps it", async () => {
    const server = await createTestServer();
    const id = await publish(server, { "svc-keep-response": "true" });
    await server.settle(server.delivery(), {
      status: 200,
      headers: [["A", "1"]],
      body: bytes("ok"),
      keepsInLog: true,
    });
    expect((await read(server, id)).outcomes).toEqual([
      { time: testTime, responseStatus: 200, responseHeader: { A: ["1"] }, responseBody: "ok" },
    ]);
  });

  test("shows a response of any bytes, cut and marked as cut, and redacted if its message is", async () => {
    const server = await createTestServer();
    const id = await publish(server, { "svc-retries": "0" });
    const body = new Uint8Array(20_000).fill(255);
    await server.settle(server.delivery(), { status: 500, body, digest: "d".repeat(64) });
    const [outcome] = (await read(server, id)).outcomes;
    expect(outcome).toMatchObject({ truncated: true });
    expect(Buffer.from(outcome.responseBodyBase64, "base64")).toHaveLength(16_384);
    const secret = await publish(server, { "svc-retries": "0", "svc-redact-fields": "body" });
    await server.settle(server.delivery(), { status: 500, body: bytes("s3cret") });
    expect(JSON.stringify(await read(server, secret))).not.toContain("s3cret");
  });

  test("shows at most 50 outcomes", async () => {
    const server = await createTestServer();
    const id = await publish(server, { "svc-retries": "60", "svc-retry-delay": "1000" });
    for (let n = 0; n < 55; n++) await fail(server, { status: 500 });
    const { attempts, outcomes } = await read(server, id);
    expect([attempts, outcomes.length, outcomes[0].time]).toEqual([55, 50, testTime + 54 * 60_000]);
  });
});

test("log entries show the times of their attempts", async () => {
  const server = await createTestServer();
  const id = await publish(server, { "svc-retry-delay": "60000" });
  await fail(server, { status: 503, timing });
  await server.ask("DELETE", `/v2/messages/${id}`);
  await server.settle(server.delivery(), { status: 200, timing });
  const other = await publish(server);
  await server.settle(server.delivery(), { status: 200, timing });
  const listAttempts = async (messageId: string) =>
    (await server.ask("GET", `/v2/events?messageId=${messageId}&order=earliestFirst`)).body.events.map(
      ({ state, attempt }: { state: string; attempt?: unknown }) => [state, attempt],
    );
  const attempt = { ...timing, node: "nod_1" };
  expect(await listAttempts(id)).toEqual([
    ["CREATED", undefined],
    ["ACTIVE", undefined],
    ["ERROR", attempt],
    ["RETRY", undefined],
    ["ACTIVE", undefined],
    ["CANCEL_REQUESTED", undefined],
    ["CANCELLED", attempt],
  ]);
  expect(await listAttempts(other)).toEqual([
    ["CREATED", undefined],
    ["ACTIVE", undefined],
    ["DELIVERED", attempt],
  ]);
});
