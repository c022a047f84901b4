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
    const home = await createTestServer();
    const { body } = await home.ask("POST", path, { headers });
    expect(isHidden(home)).toBe(true);
    const shown = await home.ask("GET", `/v2/messages/${body.messageId}`);
    expect(shown.body).toMatchObject({ hideHeaders: true });
    const { events } = (await home.ask("GET", "/v2/events?state=CREATED")).body;
    expect(events).toMatchObject([{ hideHeaders: true }]);
  });

  test("by an item of a batch, and only in that item", async () => {
    const home = await createTestServer();
    const items = [{ destination: url, headers: hide }, { destination: url }];
    const { body } = await home.ask("POST", "/v2/batch", { body: JSON.stringify(items) });
    const [first, other] = body.map(({ messageId }: { messageId: string }) =>
      home.deliveries.find(({ message }) => message.id === messageId),
    );
    expect(first.message.hideHeaders).toBe(true);
    expect(other.message).not.toHaveProperty("hideHeaders");
    const shown = await home.ask("GET", `/v2/messages/${body[1].messageId}`);
    expect(shown.body).not.toHaveProperty("hideHeaders");
  });

  test("by a URL group, unless the message declines", async () => {
    const home = await createTestServer();
    await home.ask("POST", "/v2/topics/g/endpoints", { body: JSON.stringify({ endpoints: [{ url }] }) });
    await home.ask("PATCH", "/v2/topics/g", { body: JSON.stringify({ headers: hide }) });
    await home.ask("POST", "/v2/publish/g");
    expect(isHidden(home)).toBe(true);
    await home.ask("POST", "/v2/publish/g", { headers: { "svc-hide-headers": "false" } });
    expect(isHidden(home)).toBeUndefined();
  });

  test("by a source, for the calls that it receives, but not by their sender", async () => {
    const home = await createTestServer();
    for (const [settings, headers, expected] of [
      [{ "Svc-Hide-Headers": "true" }, {}, true],
      [{ "Upstash-Hide-Headers": "true" }, { "upstash-hide-headers": "false" }, true],
      [{}, hide, undefined],
    ] as const) {
      const made = await make(home, { settings });
      expect(
        (await call(home, made.path, { headers: { "x-event": "a", ...headers }, body: "x" })).status,
      ).toBe(200);
      const { message } = home.delivery();
      expect(message.hideHeaders).toBe(expected);
      expect(message.headers).toContainEqual(["X-Event", "a"]);
      await change(home, made.sourceId, { settings: {} });
      await call(home, made.path, { headers, body: "y" });
      expect(isHidden(home)).toBeUndefined();
    }
  });

  test("after retries of the message and of its dead letter, unless the retry declines", async () => {
    for (const [headers, expected] of [
      [{}, true],
      [{ "svc-hide-headers": "false" }, undefined],
    ] as const) {
      const home = await createTestServer();
      const given = { ...hide, "svc-retries": "1", "svc-retry-delay": "1000" };
      await home.ask("POST", `/v2/publish/${url}`, { headers: given });
      await home.settle(home.delivery(), { status: 500 });
      home.clock.now += 1_000;
      await home.store.execute("claim", { limit: 10 });
      const retry = home.delivery();
      expect(retry).toMatchObject({ attempt: 1, message: { hideHeaders: true } });
      await home.settle(retry, { status: 500 });
      await home.ask("POST", "/v2/dlq/retry", { headers });
      expect(isHidden(home)).toBe(expected);
    }
  });

  test("not for its callbacks, which only the publisher receives", async () => {
    const home = await createTestServer();
    const headers = { ...hide, "svc-callback": url, "svc-failure-callback": url, "svc-retries": "0" };
    await home.ask("POST", `/v2/publish/${url}`, { headers });
    const sent = home.delivery();
    home.deliveries.splice(0);
    await home.settle(sent, { status: 500 });
    expect(home.deliveries).toHaveLength(2);
    for (const { message } of home.deliveries) expect(message).not.toHaveProperty("hideHeaders");
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
    const home = await createTestServer();
    const refused = {
      status: 400,
      body: {
        error: "upstash-hide-headers: not valid for a workflow run, which needs the headers; remove it",
      },
    };
    const start = { headers: startHeaders("r", hide), body: "x" };
    expect(await home.ask("POST", `/v2/publish/${url}`, start)).toMatchObject(refused);
    expect(await home.ask("POST", `/v2/trigger/${url}`, { headers: hide })).toMatchObject(refused);
    const plain = { headers: startHeaders("r", { "upstash-hide-headers": "false" }), body: "x" };
    expect(await home.ask("POST", `/v2/publish/${url}`, plain)).toMatchObject({ status: 200 });
    const step = { headers: stepHeaders("r", hide), body: "{}" };
    expect((await home.ask("POST", `/v2/publish/${url}`, step)).status).toBeGreaterThanOrEqual(400);
    expect(home.memory.tables.steps.size).toBe(1);
  });
});
