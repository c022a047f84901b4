import { expect } from "vitest";
import type { Outcome } from "../../../../src/engine/core/model/attempt.ts";
import { createTestServer } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

/** Publishes a message that fails for good. Returns its id. */
export async function failMessage(
  testServer: TestServer,
  url: string,
  {
    headers = {},
    body = "b",
    outcome = { status: 500 },
  }: { headers?: Record<string, string>; body?: string | Buffer; outcome?: Partial<Outcome> } = {},
) {
  testServer.clock.now += 1_000;
  const { body: reply } = await testServer.ask("POST", `/v2/publish/${url}`, {
    headers: { ...("upstash-retries" in headers ? {} : { "svc-retries": "0" }), ...headers },
    body,
  });
  await testServer.settle(testServer.delivery(), outcome);
  return String(reply.messageId);
}

/** Reads a page of the dead letter queue. */
export const listDeadLetters = async ({ ask }: TestServer, query = "") => {
  const { status, body } = await ask("GET", `/v2/dlq${query}`);
  expect(status).toBe(200);
  return body as { messages: { messageId: string; dlqId: string; url: string }[]; cursor?: string };
};

/** Creates three dead letters: `a` and `b` to one URL, `c` to another. */
export async function failThree() {
  const testServer = await createTestServer();
  const a = await failMessage(testServer, "https://one.example", { headers: { "svc-label": "x" } });
  const b = await failMessage(testServer, "https://one.example", { outcome: { status: 404 } });
  const c = await failMessage(testServer, "https://two.example", {
    headers: { "svc-label": "x,y" },
    outcome: { error: "connection refused" },
  });
  const names = new Map([
    [a, "a"],
    [b, "b"],
    [c, "c"],
  ]);
  const { messages } = await listDeadLetters(testServer);
  return {
    server: testServer,
    ids: messages.map(({ dlqId }) => dlqId),
    messageIds: { a, b, c },
    nameOf: (id: string) => names.get(id) ?? "?",
  };
}
