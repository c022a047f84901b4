import { describe, expect, test } from "vitest";
import { createTestServer } from "../../testServer.ts";
import { failMessage, failThree, listDeadLetters } from "./deadLetters.ts";

const json = { "content-type": "application/json" };

describe("replaying a dead letter", () => {
  test.each(["svc", "upstash"])("sends the changes and links both messages (%s)", async (prefix) => {
    const server = await createTestServer();
    const old = await failMessage(server, "https://one.example", {
      headers: { [`${prefix}-forward-x-a`]: "1" },
    });
    const [entry] = (await listDeadLetters(server)).messages;
    const { status, body } = await server.ask("POST", `/v2/dlq/${entry?.dlqId}/replay`, {
      headers: { ...json, [`${prefix}-method`]: "PUT", [`${prefix}-delay`]: "5s" },
      body: JSON.stringify({
        url: "https://two.example/x",
        headers: { "x-b": ["2", "3"], "content-type": "text/plain", host: "evil.example" },
        body: "fixed",
      }),
    });
    expect({ status, body }).toEqual({
      status: 201,
      body: { messageId: expect.stringMatching(/^msg_/), dlqId: entry?.dlqId },
    });
    expect((await server.ask("GET", `/v2/messages/${body.messageId}`)).body).toMatchObject({
      url: "https://two.example/x",
      method: "PUT",
      body: "fixed",
      header: { "X-B": ["2", "3"], "Content-Type": ["text/plain"] },
      notBefore: server.clock.now + 5_000,
      replayOf: { messageId: old, dlqId: entry?.dlqId },
    });
    expect((await server.ask("GET", `/v2/dlq/${entry?.dlqId}`)).body).toMatchObject({
      messageId: old,
      replays: [body.messageId],
    });
    expect((await server.ask("GET", "/v2/audit?action=dlq.replay")).body).toMatchObject({
      entries: [
        { action: "dlq.replay", object: entry?.dlqId, fields: ["url", "headers", "body", "method", "delay"] },
      ],
    });
  });

  test("delivers a body in base64 byte for byte", async () => {
    const server = await createTestServer();
    await failMessage(server, "https://one.example");
    const [entry] = (await listDeadLetters(server)).messages;
    await server.ask("POST", `/v2/dlq/${entry?.dlqId}/replay`, {
      body: JSON.stringify({ bodyBase64: Buffer.from([0, 255, 128]).toString("base64") }),
    });
    expect([...server.delivery().message.body]).toEqual([0, 255, 128]);
  });

  test.each([
    ['{"uri":"https://x.example"}', 400, /^uri: unknown field; use url, headers, body, bodyBase64/],
    ['{"url":"ftp://x.example"}', 400, /^url: .* is not an http/],
    ['{"url":"group"}', 400, /^url: .* is not an http/],
    ['{"body":{"a":1}}', 400, /^body: is not a string/],
    ['{"body":"a","bodyBase64":"YQ=="}', 400, /^bodyBase64: not valid together with body/],
    ['{"bodyBase64":"%"}', 400, /^bodyBase64: is not base64/],
    ['{"headers":{"x a":"1"}}', 400, /^headers.x a: not the name of an HTTP header/],
    ['{"headers":{"x":"1\\n2"}}', 400, /^headers.x: the value contains characters/],
    ["[]", 400, /^body: is not a JSON object/],
    ["{", 400, /^body: /],
  ])("with %s is refused and changes nothing", async (body, status, error) => {
    const { server, ids } = await failThree();
    expect(await server.ask("POST", `/v2/dlq/${ids[0]}/replay`, { headers: json, body })).toMatchObject({
      status,
      body: { error: expect.stringMatching(error) },
    });
    expect(server.deliveries).toEqual([]);
    expect((await server.ask("GET", `/v2/dlq/${ids[0]}`)).body.replays).toBeUndefined();
  });

  test("needs a token that may read and manage", async () => {
    const { server, ids } = await failThree();
    const create = async (verbs: string[]): Promise<string> =>
      (await server.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs }) })).body.token;
    for (const verbs of [["manage"], ["read"], ["publish", "read"]]) {
      const token = await create(verbs);
      expect((await server.ask("POST", `/v2/dlq/${ids[0]}/replay`, { token })).status).toBe(403);
    }
    const token = await create(["read", "manage"]);
    expect((await server.ask("POST", `/v2/dlq/${ids[0]}/replay`, { token })).status).toBe(201);
  });

  test.each(["none", "1800000000000-000000000"])("of the unknown id %s is not found", async (id) => {
    const { server } = await failThree();
    expect((await server.ask("POST", `/v2/dlq/${id}/replay`)).status).toBe(404);
  });
});
