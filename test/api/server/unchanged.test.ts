import { expect, test } from "vitest";
import { createTestServer, otherToken } from "../testServer.ts";

test("a list that has not changed is not sent again, and a changed one is", async () => {
  const { ask } = await createTestServer();
  const first = await ask("GET", "/v2/messages");
  const etag = String(first.headers["etag"]);
  expect(etag).toMatch(/^"[\w-]{27}"$/);
  for (const given of [etag, `W/${etag}`, `"other", ${etag}`]) {
    const again = await ask("GET", "/v2/messages", { headers: { "if-none-match": given } });
    expect(again).toMatchObject({ status: 304, headers: { etag } });
    expect(again.headers).not.toHaveProperty("content-length");
  }
  for (const given of ['"other"', "", "*", etag.slice(1)])
    expect((await ask("GET", "/v2/messages", { headers: { "if-none-match": given } })).status).toBe(200);
  await ask("POST", "/v2/publish/https://e.example/x", { headers: { "svc-delay": "1h" } });
  const changed = await ask("GET", "/v2/messages", { headers: { "if-none-match": etag } });
  expect(changed).toMatchObject({ status: 200, body: { total: 1 } });
  expect(changed.headers["etag"]).not.toBe(etag);
});

test("single things have an ETag, each account its own", async () => {
  const { ask } = await createTestServer();
  const published = await ask("POST", "/v2/publish/https://e.example/x", { headers: { "svc-delay": "1h" } });
  const path = `/v2/messages/${published.body.messageId}`;
  const { headers } = await ask("GET", path);
  const given = { "if-none-match": String(headers["etag"]) };
  expect((await ask("GET", path, { headers: given })).status).toBe(304);
  expect((await ask("GET", path, { headers: given, token: otherToken })).status).toBe(404);
});

test("responses with secrets, to changes, and errors have no ETag", async () => {
  const { ask } = await createTestServer();
  for (const [method, path] of [
    ["GET", "/v2/svc/users"],
    ["GET", "/v2/keys/rotate"],
    ["GET", "/v2/messages/none"],
    ["POST", "/v2/queues/q/pause"],
    ["GET", "/v2/health"],
  ] as const)
    expect([path, (await ask(method, path)).headers["etag"]]).toEqual([path, undefined]);
});
