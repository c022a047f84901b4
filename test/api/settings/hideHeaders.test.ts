import { describe, expect, test } from "vitest";
import { createTestServer } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";
import { call, change, make } from "../../operations/sources/sourceRequests.ts";
import { startHeaders, stepHeaders } from "../routes/workflows/workflowPosts.ts";

const url = "https://e.example/";
const hide = { "upstash-hide-headers": "true" };

/** Returns whether the next message hides the headers of this server. */
const isHidden = ({ delivery }: TestServer): boolean | undefined => delivery().message.hideHeaders;

describe("the headers of this server are hidden", () => {
  test.each([
    ["a header of the other brand", `/v2/publish/${url}`, hide],
    ["a header of the neutral brand", `/v2/publish/${url}`, { "Svc-Hide-Headers": "true" }],
    ["a query parameter", `/v2/publish/${url}?svc-hide-headers=true`, {}],
    ["a header of a message to a queue", `/v2/enqueue/q/${url}`, hide],
  ])("by %s", async (_, path, headers: Record<string, string>) => {
    const server = await createTestServer();
    const { body } = await server.ask("POST", path, { headers });
    expect(isHidden(server)).toBe(true);
    const shown = await server.ask("GET", `/v2/messages/${body.messageId}`);
    expect(shown.body).toMatchObject({ hideHeaders: true });
    const { events } = (await server.ask("GET", "/v2/events?state=CREATED")).body;
    expect(events).toMatchObject([{ hideHeaders: true }]);
  });

  test("by an item of a batch, and only in that item", async () => {
    const server = await createTestServer();
    const items = [{ destination: url, headers: hide }, { destination: url }];
    const { body } = await server.ask("POST", "/v2/batch", { body: JSON.stringify(items) });
    const [first, other] = body.map(({ messageId }: { messageId: string }) =>
      server.deliveries.find(({ message }) => message.id === messageId),
    );
    expect(first.message.hideHeaders).toBe(true);
    expect(other.message).not.toHaveProperty("hideHeaders");
    const shown = await server.ask("GET", `/v2/messages/${body[1].messageId}`);
    expect(shown.body).not.toHaveProperty("hideHeaders");
  });

  test("by a URL group, unless the message declines", async () => {
    const server = await createTestServer();
    await server.ask("POST", "/v2/topics/g/endpoints", { body: JSON.stringify({ endpoints: [{ url }] }) });
    await server.ask("PATCH", "/v2/topics/g", { body: JSON.stringify({ headers: hide }) });
    await server.ask("POST", "/v2/publish/g");
    expect(isHidden(server)).toBe(true);
    await server.ask("POST", "/v2/publish/g", { headers: { "svc-hide-headers": "false" } });
    expect(isHidden(server)).toBeUndefined();
  });

  test("by a source, for the calls that it receives, but not by their sender", async () => {
    const server = await createTestServer();
    for (const [settings, headers, expected] of [
      [{ "Svc-Hide-Headers": "true" }, {}, true],
      [{ "Upstash-Hide-Headers": "true" }, { "upstash-hide-headers": "false" }, true],
      [{}, hide, undefined],
    ] as const) {
      const made = await make(server, { settings });
      expect(
        (await call(server, made.path, { headers: { "x-event": "a", ...headers }, body: "x" })).status,
      ).toBe(200);
      const { message } = server.delivery();
      expect(message.hideHeaders).toBe(expected);
      expect(message.headers).toContainEqual(["X-Event", "a"]);
      await change(server, made.sourceId, { settings: {} });
      await call(server, made.path, { headers, body: "y" });
      expect(isHidden(server)).toBeUndefined();
    }
  });

  test("after retries of the message and of its dead letter, unless the retry declines", async () => {
    for (const [headers, expected] of [
      [{}, true],
      [{ "svc-hide-headers": "false" }, undefined],
    ] as const) {
      const server = await createTestServer();
      const given = { ...hide, "svc-retries": "1", "svc-retry-delay": "1000" };
      await server.ask("POST", `/v2/publish/${url}`, { headers: given });
      await server.settle(server.delivery(), { status: 500 });
      server.clock.now += 1_000;
      await server.store.execute("claim", { limit: 10 });
      const retry = server.delivery();
      expect(retry).toMatchObject({ attempt: 1, message: { hideHeaders: true } });
      await server.settle(retry, { status: 500 });
      await server.ask("POST", "/v2/dlq/retry", { headers });
      expect(isHidden(server)).toBe(expected);
    }
  });

  test("not for its callbacks, which only the publisher receives", async () => {
    const server = await createTestServer();
    const headers = { ...hide, "svc-callback": url, "svc-failure-callback": url, "svc-retries": "0" };
    await server.ask("POST", `/v2/publish/${url}`, { headers });
    const sent = server.delivery();
    server.deliveries.splice(0);
    await server.settle(sent, { status: 500 });
    expect(server.deliveries).toHaveLength(2);
    for (const { message } of server.deliveries) expect(message).not.toHaveProperty("hideHeaders");
  });
});

describe("hidden headers are refused", () => {
  test.each(["svc-callback-hide-headers", "svc-failure-callback-hide-headers"])(
    "for a callback: %s",
    async (name) => {
      const headers = { "svc-callback": url, "svc-failure-callback": url, [name]: "true" };
      const { ask } = await createTestServer();
      expect(await ask("POST", `/v2/publish/${url}`, { headers })).toMatchObject({
        status: 400,
        body: { error: `${name}: not valid for callbacks; set it on the message` },
      });
    },
  );

  test("for messages of workflow runs, which need them", async () => {
    const server = await createTestServer();
    const refused = {
      status: 400,
      body: {
        error: "upstash-hide-headers: not valid for a workflow run, which needs the headers; remove it",
      },
    };
    const start = { headers: startHeaders("r", hide), body: "x" };
    expect(await server.ask("POST", `/v2/publish/${url}`, start)).toMatchObject(refused);
    expect(await server.ask("POST", `/v2/trigger/${url}`, { headers: hide })).toMatchObject(refused);
    const plain = { headers: startHeaders("r", { "upstash-hide-headers": "false" }), body: "x" };
    expect(await server.ask("POST", `/v2/publish/${url}`, plain)).toMatchObject({ status: 200 });
    const step = { headers: stepHeaders("r", hide), body: "{}" };
    expect((await server.ask("POST", `/v2/publish/${url}`, step)).status).toBeGreaterThanOrEqual(400);
    expect(server.memory.tables.steps.size).toBe(1);
  });
});
