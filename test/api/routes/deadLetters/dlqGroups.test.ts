import { describe, expect, test } from "vitest";
import { createTestServer } from "../../testServer.ts";
import { failMessage } from "./deadLetters.ts";

describe("groups of dead letters", () => {
  test("have one URL, one status and one error, and the largest comes first", async () => {
    const server = await createTestServer();
    const says = (text: string) => ({
      outcome: { status: 500, body: Buffer.from(JSON.stringify({ message: text })) },
    });
    const first = server.clock.now + 1_000;
    await failMessage(server, "https://one.example", says("no user 17"));
    await failMessage(server, "https://one.example", { outcome: { status: 503 } });
    await failMessage(server, "https://one.example", says("no user 21"));
    await failMessage(server, "https://two.example", { outcome: { error: "connection refused" } });
    const { status, body } = await server.ask("GET", "/v2/dlq/groups");
    expect(status).toBe(200);
    expect(body).toEqual({
      entries: 4,
      groups: [
        {
          url: "https://one.example",
          responseStatus: 500,
          error: "no user …",
          count: 2,
          firstFailedAt: first,
          lastFailedAt: first + 2_000,
          dlqId: expect.stringContaining(String(first + 2_000)),
        },
        {
          url: "https://two.example",
          error: "connection refused",
          count: 1,
          firstFailedAt: first + 3_000,
          lastFailedAt: first + 3_000,
          dlqId: expect.any(String),
        },
        {
          url: "https://one.example",
          responseStatus: 503,
          error: "the endpoint answered with status …",
          count: 1,
          firstFailedAt: first + 1_000,
          lastFailedAt: first + 1_000,
          dlqId: expect.any(String),
        },
      ],
    });
  });

  test("contain only dead letters that pass the filters, and those of this account", async () => {
    const server = await createTestServer();
    await failMessage(server, "https://one.example", { headers: { "svc-label": "x" } });
    await failMessage(server, "https://two.example");
    expect((await server.ask("GET", "/v2/dlq/groups?label=x")).body).toMatchObject({
      entries: 1,
      groups: [{ url: "https://one.example" }],
    });
    expect((await server.ask("GET", "/v2/dlq/groups", { token: "b3RoZXI=" })).body).toEqual({
      groups: [],
      entries: 0,
    });
  });

  test("do not show a redacted response", async () => {
    const server = await createTestServer();
    await failMessage(server, "https://one.example", {
      headers: { "svc-redact-fields": "body" },
      outcome: { status: 500, body: Buffer.from('{"message":"secret"}') },
    });
    expect((await server.ask("GET", "/v2/dlq/groups")).body).toMatchObject({
      groups: [{ error: "the endpoint answered with status …" }],
    });
  });

  test("continue with older dead letters after 1,000", async () => {
    const server = await createTestServer();
    for (let at = 0; at < 1_001; at++) await failMessage(server, "https://one.example", { body: "" });
    const { body } = await server.ask("GET", "/v2/dlq/groups");
    expect(body).toMatchObject({ entries: 1_000, more: true, groups: [{ count: 1_000 }] });
    expect((await server.ask("GET", `/v2/dlq/groups?cursor=${body.cursor}`)).body).toMatchObject({
      entries: 1,
      groups: [{ count: 1 }],
    });
  });
});
