import { describe, expect, test } from "vitest";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { createTestServer } from "../../testServer.ts";
import type { Reply } from "../../testServer.ts";
import { failMessage, listDeadLetters, failThree } from "./deadLetters.ts";

describe("retrying dead letters", () => {
  test("reports no redacted part to a new callback, and names what it did not retry", async () => {
    const server = await createTestServer();
    const hidden = await failMessage(server, "https://one.example", {
      headers: { "svc-redact-fields": "body" },
    });
    const open = await failMessage(server, "https://one.example");
    const { messages } = await listDeadLetters(server);
    const idOf = (message: string): string | undefined =>
      messages.find(({ messageId }) => messageId === message)?.dlqId;
    const headers = { "svc-callback": "https://other.example" };
    const one = await server.ask("POST", `/v2/dlq/retry/${idOf(hidden)}`, { headers });
    expect(one).toMatchObject({ status: 403, body: { error: expect.stringContaining("body: redacted") } });
    expect((await server.ask("POST", "/v2/dlq/retry", { headers })).body).toEqual({
      cursor: "",
      responses: [{ messageId: expect.any(String), dlqId: idOf(open) }],
      failed: [{ id: idOf(hidden), reason: expect.stringContaining("body: redacted") }],
    });
    expect(server.delivery().message.callback?.url).toBe("https://other.example");
  });

  test("publishes the message again and deletes the dead letter", async () => {
    const server = await createTestServer();
    const headers = {
      "upstash-retries": "0",
      "upstash-method": "PUT",
      "content-type": "text/plain",
      "upstash-forward-x-a": "1",
      "upstash-forward-x-b": "2",
      "upstash-label": "l",
    };
    const old = await failMessage(server, "https://e.example", { headers });
    const [entry] = (await listDeadLetters(server)).messages;
    const { status, body } = await server.ask("POST", `/v2/dlq/retry/${entry?.dlqId}`, {
      headers: { "content-type": "application/json" },
    });
    expect({ status, body }).toEqual({
      status: 201,
      body: { messageId: expect.stringMatching(/^msg_/), dlqId: entry?.dlqId },
    });
    const { message } = server.delivery();
    expect(message).toMatchObject({
      id: body.messageId,
      brand: "upstash",
      method: "PUT",
      retries: 0,
      labels: ["l"],
      url: "https://e.example",
    });
    expect(message.headers).toEqual([
      ["Content-Type", "text/plain"],
      ["X-A", "1"],
      ["X-B", "2"],
    ]);
    expect(body.messageId).not.toBe(old);
    expect((await server.ask("POST", `/v2/dlq/retry/${entry?.dlqId}`)).status).toBe(404);
    expect((await server.ask("DELETE", `/v2/dlq/${entry?.dlqId}`)).status).toBe(404);
  });

  test("replaces the content type", async () => {
    const server = await createTestServer();
    await failMessage(server, "https://e.example", { headers: { "content-type": "text/plain" } });
    const [entry] = (await listDeadLetters(server)).messages;
    await server.ask("POST", `/v2/dlq/retry/${entry?.dlqId}`, {
      headers: { "svc-forward-content-type": "application/json" },
    });
    expect(server.delivery().message.headers).toEqual([["Content-Type", "application/json"]]);
  });

  test("applies the settings of the request, and forwarded headers by name", async () => {
    const server = await createTestServer();
    await failMessage(server, "https://e.example", {
      headers: { "svc-forward-x-a": "1", "svc-forward-x-b": "2", "svc-timeout": "9s" },
    });
    const [entry] = (await listDeadLetters(server)).messages;
    const settings = {
      "upstash-retries": "7",
      "svc-forward-x-a": "3",
      "svc-callback": "https://c.example",
      "svc-callback-retries": "1",
    };
    const ofKey = { "svc-flow-control-key": "shop", "svc-flow-control-value": "rate=5" };
    await server.ask("POST", `/v2/dlq/retry/${entry?.dlqId}?svc-method=GET&svc-retry-delay=1000`, {
      headers: { ...settings, ...ofKey },
    });
    const { message } = server.delivery();
    expect(message).toMatchObject({
      method: "GET",
      retries: 7,
      timeout: 9_000,
      retryDelay: "1000",
      flowControl: { key: "shop", rate: 5 },
      callback: { url: "https://c.example", retries: 1 },
    });
    expect(message.headers).toEqual([
      ["X-B", "2"],
      ["X-A", "3"],
    ]);
  });

  test.each([
    [{ "svc-deduplication-id": "x" }, 400, /^svc-deduplication-id: cannot be set on a retry/],
    [{ "svc-header-forward": "true" }, 400, /^svc-header-forward: cannot be set on a retry/],
    [{ "svc-retries": "x" }, 400, 'svc-retries: "x" is not a whole number of 0 or more'],
    [{ "svc-retries": "1001" }, 412, "retries: 1001 exceeds the limit of 1000"],
    [{ "svc-delay": "367d" }, 412, /^delay: /],
  ])("with %o is refused and keeps the dead letters", async (headers, status, error) => {
    const { server, ids } = await failThree();
    const body = { error: typeof error === "string" ? error : expect.stringMatching(error) };
    expect(await server.ask("POST", `/v2/dlq/retry/${ids[0]}`, { headers })).toMatchObject({ status, body });
    expect(await server.ask("POST", "/v2/dlq/retry", { headers })).toMatchObject({ status, body });
    expect(await server.ask("POST", "/v2/dlq/retry?dryRun=true", { headers })).toMatchObject({
      status,
      body,
    });
    expect((await listDeadLetters(server)).messages.length).toBe(3);
    expect(server.deliveries).toEqual([]);
  });

  test.each([
    [{ "svc-callback-retries": "1" }, "callback: requires its URL, because there is no callback to change"],
    [
      { "svc-failure-callback-forward-x": "1" },
      "failure-callback: requires its URL, because there is no failure-callback to change",
    ],
    [{ "svc-flow-control-value": "rate=1" }, "flow-control-value: requires Flow-Control-Key"],
    [
      { "svc-flow-control-key": "k" },
      "flow-control-key: requires Flow-Control-Value, for example parallelism=10",
    ],
  ])("with %o is refused for messages without such a callback or key", async (headers, error) => {
    const { server, ids } = await failThree();
    expect(await server.ask("POST", `/v2/dlq/retry/${ids[0]}`, { headers })).toMatchObject({
      status: 400,
      body: { error },
    });
    const failed = ids.map((id) => ({ id, reason: error }));
    expect(await server.ask("POST", "/v2/dlq/retry", { headers })).toMatchObject({
      status: 201,
      body: { responses: [], failed },
    });
    expect((await listDeadLetters(server)).messages.length).toBe(3);
    expect(server.deliveries).toEqual([]);
  });

  test("changes a single setting of a callback or a key that the message has", async () => {
    const server = await createTestServer();
    const ofCallback = {
      "svc-callback": "https://c.example",
      "svc-callback-retries": "1",
      "svc-callback-forward-x": "1",
    };
    const nested = {
      "svc-callback-failure-callback": "https://f.example",
      "svc-callback-failure-callback-timeout": "9s",
    };
    const ofKey = { "svc-flow-control-key": "shop", "svc-flow-control-value": "rate=5" };
    const headers = {
      ...ofCallback,
      ...nested,
      ...ofKey,
      "svc-label": "a,b",
      "svc-redact-fields": "header[X]",
    };
    await failMessage(server, "https://e.example", { headers });
    const [entry] = (await listDeadLetters(server)).messages;
    server.deliveries.length = 0;
    const changed = {
      "svc-callback-forward-y": "2",
      "svc-callback-failure-callback-retries": "4",
      "svc-callback-delay": "5s",
      "svc-callback-label": "l",
      "svc-flow-control-key": "other",
    };
    const more = { "svc-label": "again", "svc-redact-fields": "body" };
    expect(
      (await server.ask("POST", `/v2/dlq/retry/${entry?.dlqId}`, { headers: { ...changed, ...more } }))
        .status,
    ).toBe(201);
    const { message } = server.delivery();
    expect(message).toMatchObject({
      flowControl: { key: "other", rate: 5 },
      labels: ["again"],
      redaction: { body: true, headers: ["X"] },
      callback: {
        url: "https://c.example",
        retries: 1,
        delay: 5_000,
        labels: ["l"],
        failureCallback: { url: "https://f.example", timeout: 9_000, retries: 4 },
      },
    });
    expect(message.callback?.headers).toEqual([
      ["X", "1"],
      ["Y", "2"],
    ]);
  });

  test("replaces a callback as a whole if its URL is given", async () => {
    const server = await createTestServer();
    await failMessage(server, "https://e.example", {
      headers: { "svc-callback": "https://c.example", "svc-callback-forward-authorization": "secret" },
    });
    const [entry] = (await listDeadLetters(server)).messages;
    server.deliveries.length = 0;
    await server.ask("POST", `/v2/dlq/retry/${entry?.dlqId}`, {
      headers: { "svc-callback": "https://d.example", "svc-callback-retries": "2" },
    });
    expect(server.delivery().message.callback).toMatchObject({
      url: "https://d.example",
      headers: [],
      retries: 2,
    });
  });

  test("retries many by id or by filter in portions, with an empty cursor at the end", async () => {
    const { server, ids } = await failThree();
    const one = (place: number) => ({ messageId: expect.stringMatching(/^msg_/), dlqId: ids[place] });
    const strangers = ["gone", "%00"].map((id) => ({
      id: decodeURIComponent(id),
      reason: expect.stringContaining("there is no dead letter"),
    }));
    expect(
      await server.ask("POST", `/v2/dlq/retry?dlqIds=${ids[1]}&dlqIds=gone&dlqIds=gone&dlqIds=%00`),
    ).toEqual({
      status: 201,
      headers: expect.anything(),
      body: { cursor: "", responses: [one(1)], failed: strangers },
    });
    expect((await server.ask("POST", "/v2/dlq/retry?label=none")).body).toEqual({
      cursor: "",
      responses: [],
    });
    const { body } = await server.ask("POST", "/v2/dlq/retry?count=1");
    expect(body).toEqual({ cursor: expect.stringMatching(/./), responses: [one(0)] });
    expect((await server.ask("POST", `/v2/dlq/retry?cursor=${body.cursor}`)).body).toEqual({
      cursor: "",
      responses: [one(2)],
    });
    expect(server.deliveries.length).toBe(3);
    expect(await listDeadLetters(server)).toEqual({ messages: [] });
  });

  test("retries at most four at a time, because each can be large", async () => {
    const sizes: number[] = [];
    const counted = (store: Store): Store => ({
      ...store,
      execute: (name, input) => {
        if (name === "bulk") sizes.push((input as unknown as { entries: unknown[] }).entries.length);
        return store.execute(name, input);
      },
    });
    const server = await createTestServer({ wrap: counted });
    for (let number = 0; number < 9; number++)
      await failMessage(server, "https://e.example", { body: String(number) });
    const ids = (await listDeadLetters(server)).messages.map(({ dlqId }) => dlqId);
    const { body } = await server.ask("POST", "/v2/dlq/retry");
    expect(sizes).toEqual([4, 4, 1]);
    expect(server.deliveries.map(({ message }) => Buffer.from(message.body).toString())).toEqual([
      ..."012345678",
    ]);
    expect(body).toEqual({
      cursor: "",
      responses: server.deliveries.map(({ message }, place) => ({
        messageId: message.id,
        dlqId: ids[place],
      })),
    });
  });

  test.each(["by filter", "by id"])(
    "skips dead letters that cannot be retried, with the reason: %s",
    async (how) => {
      const server = await createTestServer();
      for (const seconds of [1, 51, 11, 21, 31, 61, 2]) {
        await failMessage(server, "https://e.example", {
          headers: { "svc-retry-delay": "0", "svc-retries": "0", "svc-timeout": `${seconds}s` },
        });
      }
      const ids = (await listDeadLetters(server)).messages.map(({ dlqId }) => dlqId);
      await server.store.execute("changeAccount", {
        account: "acc_1",
        change: { limits: { timeout: 40_000 } },
      });
      const query = how === "by id" ? `?dlqIds=${ids.join(",")}` : "";
      const { status, body } = await server.ask("POST", `/v2/dlq/retry${query}`);
      expect({ status, body }).toEqual({
        status: 201,
        body: {
          cursor: "",
          responses: [0, 2, 3, 4, 6].map((place, sent) => ({
            messageId: server.deliveries[sent]?.message.id,
            dlqId: ids[place],
          })),
          failed: [1, 5].map((place) => ({
            id: ids[place],
            reason: expect.stringMatching(/^timeout: (51s|1m1s) exceeds the limit of 40s/),
          })),
        },
      });
      expect(server.deliveries).toHaveLength(5);
      expect((await listDeadLetters(server)).messages.map(({ dlqId }) => dlqId)).toEqual([ids[1], ids[5]]);
      // A caller that continues page by page reaches the dead letters after those that cannot be retried.
      const page = await server.ask("POST", "/v2/dlq/retry?count=1");
      expect(page.body).toMatchObject({
        responses: [],
        cursor: `${ids[1]}_${ids[5]}`,
        failed: [{ id: ids[1] }],
      });
      const last = await server.ask("POST", `/v2/dlq/retry?count=1&cursor=${page.body.cursor}`, {
        headers: { "svc-timeout": "9s" },
      });
      expect(last.body).toEqual({
        cursor: "",
        responses: [{ messageId: expect.any(String), dlqId: ids[5] }],
      });
    },
  );

  test.each(["by filter", "by id"])(
    "returns the messages published before the storage failed, and a cursor: %s",
    async (how) => {
      let left = 1;
      const failing = (store: Store): Store => ({
        ...store,
        execute: async (name, input) => {
          if (name === "bulk" && left-- <= 0)
            throw new Refusal("unavailable", "the storage cannot be reached");
          return store.execute(name, input);
        },
      });
      const server = await createTestServer({ wrap: failing });
      for (let number = 0; number < 6; number++) await failMessage(server, "https://e.example");
      const ids = (await listDeadLetters(server)).messages.map(({ dlqId }) => dlqId);
      const query = how === "by id" ? `?dlqIds=${ids.join(",")}` : "?";
      const { status, body } = await server.ask("POST", `/v2/dlq/retry${query}`);
      const sent = server.deliveries.map(({ message }, place) => ({
        messageId: message.id,
        dlqId: ids[place],
      }));
      const cursor = how === "by id" ? ids[3] : `${ids[3]}_${ids[5]}`;
      expect({ status, body }).toEqual({ status: 201, body: { cursor, responses: sent } });
      expect(sent).toHaveLength(4);
      expect(await server.ask("POST", `/v2/dlq/retry${query}&cursor=${body.cursor}`)).toMatchObject({
        status: 503,
      });
      expect((await listDeadLetters(server)).messages).toHaveLength(2);
      left = 2;
      expect((await server.ask("POST", `/v2/dlq/retry${query}&cursor=${body.cursor}`)).body).toEqual({
        cursor: "",
        responses: [4, 5].map((place) => ({ messageId: expect.any(String), dlqId: ids[place] })),
      });
    },
  );

  test.each([
    ["POST", "/v2/dlq/retry"],
    ["DELETE", "/v2/dlq"],
  ])("%s %s accepts filters in a body, and never selects all instead", async (method, path) => {
    const { server, ids } = await failThree();
    const asked = (body: string): Promise<Reply> => server.ask(method, path, { body });
    for (const body of ['{"ids":["a"]}', '{"dlqIds":[]}', "[]", "x"])
      expect((await asked(body)).status).toBe(400);
    expect((await asked(JSON.stringify({ dlqIds: ["1800000000000-1", ids[1]] }))).status).toBeLessThan(300);
    expect((await listDeadLetters(server)).messages.map(({ dlqId }) => dlqId)).toEqual([ids[0], ids[2]]);
  });

  test.each(["?labeel=x", "?dlqIds=", "?svc-retrys=1"])("with %s is refused", async (query) => {
    const { server } = await failThree();
    expect((await server.ask("POST", `/v2/dlq/retry${query}`)).status).toBe(400);
    expect(server.deliveries).toEqual([]);
  });
});
