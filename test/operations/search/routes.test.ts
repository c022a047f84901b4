import { describe, expect, test } from "vitest";
import type { TestServer } from "../../api/testServer.ts";
import { createTestServer, otherToken, testTime, token } from "../../api/testServer.ts";

const search = (server: TestServer, query: string, by = token) =>
  server.ask("GET", `/v2/search?query=${query}`, { token: by });

const publish = async (
  server: TestServer,
  headers: Record<string, string>,
  body = "hello",
): Promise<string> => {
  const response = await server.ask("POST", "/v2/publish/https://e.example/orders", { headers, body });
  expect(response.status).toBe(200);
  return response.body.messageId;
};

/** Publishes a message that fails for good, and returns its id. */
async function publishFailing(server: TestServer, body: string): Promise<string> {
  const id = await publish(server, { "svc-retries": "0" }, body);
  await server.settle(server.delivery(), { status: 500, body: Buffer.from("ORA-00060: deadlock detected") });
  return id;
}

describe("GET /v2/search", () => {
  test("finds an id of any kind first", async () => {
    const server = await createTestServer();
    const id = await publishFailing(server, "order 7");
    const found = (await search(server, id)).body.found;
    expect(found).toEqual([
      { kind: "message", id, part: "id", excerpt: id, time: testTime, url: "https://e.example/orders" },
      {
        kind: "deadLetter",
        id: expect.stringMatching(/^\d{13}-\d+$/),
        ...{ part: "id", excerpt: id, time: testTime, url: "https://e.example/orders" },
      },
    ]);
    expect((await search(server, found[1].id)).body.found).toMatchObject([
      { kind: "deadLetter", part: "id" },
    ]);
    const run = (await server.ask("POST", "/v2/trigger/https://e.example/flow")).body.workflowRunId;
    expect((await search(server, run)).body.found).toMatchObject([{ kind: "run", id: run, part: "id" }]);
  });

  test("finds configured things by their names and URLs, those with exactly the name first", async () => {
    const server = await createTestServer();
    for (const name of ["parcels-eu", "parcels"])
      await server.ask("POST", "/v2/queues", { body: JSON.stringify({ queueName: name }) });
    await server.ask("POST", "/v2/schedules/https://parcels.example/x", {
      headers: { "svc-cron": "0 0 1 1 *", "svc-schedule-id": "yearly" },
    });
    await server.ask("POST", "/v2/topics/all/endpoints", {
      body: JSON.stringify({ endpoints: [{ url: "https://parcels.example/y" }] }),
    });
    expect((await search(server, "parcels")).body.found).toMatchObject([
      { kind: "queue", id: "parcels", part: "id", time: null },
      { kind: "queue", id: "parcels-eu", part: "id" },
      { kind: "schedule", id: "yearly", part: "url" },
      { kind: "urlGroup", id: "all", part: "url" },
    ]);
  });

  test("finds a queue by a part of its name beside many keys and endpoints", async () => {
    const server = await createTestServer();
    for (let at = 0; at < 501; at++) {
      const headers = {
        "svc-delay": "1m",
        "svc-flow-control-key": `k${at}`,
        "svc-flow-control-value": "rate=1",
      };
      await publish(server, headers);
    }
    await server.ask("POST", "/v2/queues", { body: JSON.stringify({ queueName: "parcels" }) });
    expect((await search(server, "arcel&count=1")).body.found).toMatchObject([
      { kind: "queue", id: "parcels" },
    ]);
  });

  test("finds errors and bodies, says how far it is, and continues at its cursor", async () => {
    const server = await createTestServer();
    for (let at = 0; at < 3; at++) await publishFailing(server, `{"order": "A-${at}"}`);
    expect((await search(server, "deadlock")).body).toMatchObject({
      searched: 3,
      skipped: 0,
      reached: testTime,
      found: Array.from({ length: 3 }, () => ({
        ...{ kind: "deadLetter", part: "response", excerpt: "ORA-00060: deadlock detected" },
      })),
    });
    const first = (await search(server, "deadlock&count=2")).body;
    expect(first.found).toHaveLength(2);
    const rest = (await search(server, `deadlock&count=2&cursor=${first.cursor}`)).body;
    expect(rest.found).toHaveLength(1);
    expect(rest).not.toHaveProperty("cursor");
    expect((await search(server, "a-1")).body.found).toMatchObject([
      { part: "body", excerpt: '{"order": "A-1"}' },
    ]);
  });

  test("never finds things of another account, secrets, and what a redaction hides", async () => {
    const server = await createTestServer();
    const id = await publishFailing(server, "needle");
    await publish(server, { "svc-delay": "1m", "svc-redact-fields": "body" }, "haystack");
    await publish(server, { "svc-delay": "1m", "svc-forward-x-key": "haystack" });
    for (const text of ["needle", id, "e.example"])
      expect((await search(server, text, otherToken)).body.found).toEqual([]);
    for (const text of ["haystack", "sig_1", "pass"])
      expect((await search(server, text)).body.found).toEqual([]);
  });

  test("requires the verb read", async () => {
    const server = await createTestServer();
    const rights = { name: "sender", verbs: ["publish"] };
    const made = await server.ask("POST", "/v2/tokens", { body: JSON.stringify(rights) });
    expect(made.status).toBe(201);
    expect(await search(server, "needle", made.body.token)).toMatchObject({ status: 403 });
  });

  test.each([
    ["", "query: is missing"],
    ["query=%20a%20", "query: has fewer than 2 characters"],
    [`query=${"a".repeat(201)}`, "query: has more than 200 characters"],
    ["query=ab&cursor=tokens:x", "cursor: unknown; use the cursor of the previous page"],
    ["query=ab&cursor=messages:'", "cursor: unknown; use the cursor of the previous page"],
  ])("refuses ?%s", async (query, error) => {
    const server = await createTestServer();
    const response = await server.ask("GET", `/v2/search?${query}`);
    expect(response.status).toBe(400);
    expect(response.body.error).toContain(error);
  });

  test.each(["%00", "%F0%9F%98%80%F0%9F%98%80", "a%25b", "'; drop table messages;--", "(.*)+$"])(
    "takes %s as plain text",
    async (text) => {
      const server = await createTestServer();
      await publishFailing(server, "x");
      expect(await search(server, `xx${text}`)).toMatchObject({
        status: 200,
        body: { found: [], searched: 1 },
      });
    },
  );
});
