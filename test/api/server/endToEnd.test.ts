import { expect, test } from "vitest";
import { createTestServer } from "../testServer.ts";

test("a failed message is in the dead letter queue and the log, and can be sent again", async () => {
  const { ask, delivery, settle, clock } = await createTestServer();
  const headers = {
    "upstash-retries": "0",
    "upstash-label": "a, b",
    "content-type": "text/plain",
    "upstash-forward-x-a": "1",
  };
  const published = await ask("POST", "/v2/publish/https://example.com/hook", { headers, body: "hello" });
  const { messageId } = published.body;
  expect(await ask("GET", `/v2/messages/${messageId}`)).toMatchObject({
    status: 200,
    body: {
      messageId,
      url: "https://example.com/hook",
      method: "POST",
      body: "hello",
      maxRetries: 0,
      createdAt: clock.now,
      notBefore: clock.now,
      header: { "Content-Type": ["text/plain"], "X-A": ["1"] },
      label: "a",
      labels: ["a", "b"],
      callerIP: "127.0.0.1",
    },
  });
  const first = delivery();
  expect(first.message.brand).toBe("upstash");
  await settle(first, { status: 500, headers: [["X-B", "2"]], body: Buffer.from("no") });

  const list = await ask("GET", "/v2/dlq?label=b&responseStatus=500");
  expect(list).toMatchObject({
    status: 200,
    body: {
      messages: [{ messageId, responseStatus: 500, responseHeader: { "X-B": ["2"] }, responseBody: "no" }],
    },
  });
  expect(list.body).not.toHaveProperty("cursor");
  const [{ dlqId }] = list.body.messages;
  expect((await ask("GET", `/v2/dlq/${dlqId}`)).body).toMatchObject({ dlqId, body: "hello" });

  const log = await ask("GET", `/v2/events?messageId=${messageId}&order=earliestFirst`);
  const { events } = log.body as { events: { state: string }[] };
  expect(events.map(({ state }) => state)).toEqual(["CREATED", "ACTIVE", "ERROR", "FAILED"]);
  expect(events[2]).toMatchObject({
    responseStatus: 500,
    responseBody: Buffer.from("no").toString("base64"),
    label: "a",
  });

  const retried = await ask("POST", `/v2/dlq/retry/${dlqId}`, { headers: { "svc-forward-x-a": "3" } });
  expect(retried.status).toBe(201);
  const second = delivery();
  expect(second.message).toMatchObject({
    id: retried.body.messageId,
    headers: [
      ["Content-Type", "text/plain"],
      ["X-A", "3"],
    ],
  });
  expect((await ask("GET", `/v2/dlq/${dlqId}`)).status).toBe(404);
  await settle(second, { status: 200 });
  expect((await ask("DELETE", `/v2/messages/${second.message.id}`)).body).toEqual({ cancelled: 0 });
  clock.now += 61_000;
  expect((await ask("GET", `/v2/messages/${second.message.id}`)).body).toMatchObject({ state: "delivered" });
});
