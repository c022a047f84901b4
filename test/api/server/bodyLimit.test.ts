import { describe, expect, test } from "vitest";
import { createTestServer, token } from "../testServer.ts";
import { listen } from "../wire.ts";
import type { TestServer } from "../testServer.ts";
import {
  bytes,
  listHistoryBodies,
  start,
  step,
  takeDelivery,
  workflowAnswer,
} from "../routes/lists/failedRunLists.ts";

const kibibyte = 1024;
const url = "https://example.com";
const noRetry = ["Upstash-Nonretryable-Error", "true"] as const;

/** The routes that take a body of a message. */
const routes = [`/v2/publish/${url}`, `/v2/enqueue/orders/${url}`, "/v2/notify/paid"];

const servers = { "the fast path": true, "the framework": false };

describe.each(Object.entries(servers))("on %s, a server with its own limit", (_name, fastPath) => {
  // A body of up to 64 KiB is read by the fast path, and a larger one by the framework.
  test.each([16 * kibibyte, 200 * kibibyte, 16 * 1024 * kibibyte])(
    "takes %i bytes and no more",
    async (most) => {
      const testServer = await createTestServer({ fastPath, maxBody: most });
      const origin = `http://127.0.0.1:${await listen(testServer)}`;
      const headers = { Authorization: `Bearer ${token}` };
      for (const route of routes) {
        const send = (bytes: number) =>
          fetch(`${origin}${route}`, { method: "POST", headers, body: Buffer.alloc(bytes, "x") });
        expect((await send(most)).status, route).toBe(200);
        const refused = await send(most + 1);
        expect(refused.status, route).toBe(413);
        expect(await refused.text(), route).toContain(`the limit of ${most}`);
      }
    },
  );
});

test("each message of a batch has the limit, and the account shows it", async () => {
  const testServer = await createTestServer({ maxBody: 2_000 });
  const items = [2_000, 2_001].map((bytes) => ({ destination: url, body: "x".repeat(bytes) }));
  const { body } = await testServer.ask("POST", "/v2/batch", { body: JSON.stringify(items) });
  expect(body).toMatchObject([
    { messageId: expect.any(String) },
    { error: "body: 2001 bytes exceeds the limit of 2000" },
  ]);
});

/** Publishes a body and lets it fail for good. Returns the id of its dead letter. */
async function fail(testServer: TestServer, bytes: number): Promise<string> {
  const headers = { "Svc-Retries": "0" };
  await testServer.ask("POST", `/v2/publish/${url}`, { headers, body: Buffer.alloc(bytes, "x") });
  await testServer.settle(testServer.delivery(), { status: 500 });
  const { body } = await testServer.ask("GET", "/v2/dlq");
  return (body as { messages: { dlqId: string }[] }).messages[0]?.dlqId ?? "";
}

describe("after the limit was lowered, what is stored", () => {
  test("is retried, replayed, fired and changed, but a new body has the new limit", async () => {
    const server = { maxBody: 5_000 };
    const testServer = await createTestServer(server);
    const dlqId = await fail(testServer, 5_000);
    const schedule = { headers: { "Svc-Cron": "0 0 1 1 *" }, body: Buffer.alloc(5_000, "x") };
    const created = await testServer.ask("POST", `/v2/schedules/${url}`, schedule);
    const { scheduleId } = created.body as { scheduleId: string };
    server.maxBody = 2_000;

    expect((await testServer.ask("POST", `/v2/publish/${url}`, { body: Buffer.alloc(2_001) })).status).toBe(
      413,
    );
    const replay = (change: object) =>
      testServer.ask("POST", `/v2/dlq/${dlqId}/replay`, { body: JSON.stringify(change) });
    expect((await replay({ url: `${url}/other` })).status).toBe(201);
    expect(testServer.delivery().message.body.byteLength).toBe(5_000);
    expect(await replay({ body: "x".repeat(2_001) })).toMatchObject({ status: 413 });

    const change = (changes: object) =>
      testServer.ask("PATCH", `/v2/schedules/${scheduleId}`, { body: JSON.stringify(changes) });
    expect((await change({ settings: { "Svc-Cron": "0 0 2 1 *" } })).status).toBe(200);
    expect((await change({ body: "x".repeat(2_001) })).status).toBe(413);
    expect((await testServer.ask("POST", `/v2/schedules/${scheduleId}/run`)).status).toBe(200);
    expect(testServer.delivery().message.body.byteLength).toBe(5_000);

    expect((await testServer.ask("POST", `/v2/dlq/retry/${dlqId}`)).status).toBe(201);
    const retried = testServer.delivery();
    expect(retried.message.body.byteLength).toBe(5_000);
    await testServer.settle(retried, { status: 200 });
  });

  test("stays in runs, which continue, fail and are resumed", async () => {
    const server = { maxBody: 5_000 };
    const testServer = await createTestServer(server);
    const payload = "x".repeat(5_000);
    const result = { stepId: 1, stepName: "s", stepType: "Run", concurrent: 1, out: "y".repeat(4_000) };
    await testServer.settle(
      takeDelivery(testServer, await start(testServer, "wfr_1", { body: bytes(payload) })),
      workflowAnswer,
    );
    const first = await step(testServer, "wfr_1", { message: { body: bytes(JSON.stringify(result)) } });
    server.maxBody = 2_000;
    await testServer.settle(takeDelivery(testServer, first), workflowAnswer);
    const second = await step(testServer, "wfr_1", { stepId: 2 });
    await testServer.settle(takeDelivery(testServer, second), { status: 489, headers: [noRetry] });

    for (const action of ["resume", "restart"]) {
      const { body: found } = await testServer.ask("GET", "/v2/workflows/dlq");
      const { dlqId } = (found as { messages: { dlqId: string }[] }).messages[0] ?? {};
      expect((await testServer.ask("POST", `/v2/workflows/dlq/${action}/${dlqId}`)).status).toBe(200);
      const again = testServer.delivery();
      expect(listHistoryBodies(again)[0]).toBe(payload);
      await testServer.settle(again, { status: 489, headers: [noRetry] });
    }
  });
});
