import { describe, expect, test } from "vitest";
import { readRequestId } from "../../../src/api/http/requestId.ts";
import { createTestServer } from "../testServer.ts";
import { bearer, open } from "../fastPublish/countedServer.ts";
import { request, send } from "../wire.ts";

describe("the id of a request", () => {
  test.each(["abc", "4bf92f35-77b3/4da6:a.b_c+d=@", "x".repeat(128)])("is that of the caller: %s", (id) => {
    expect(readRequestId(["Host", "x", "x-request-ID", id])).toBe(id);
  });

  test.each(["", "a b", "é", "a\tb", "<x>", "x".repeat(129)])("is a new one if the given id is %j", (id) => {
    expect(readRequestId(["X-Request-Id", id])).toMatch(/^req_[\w-]{13,}$/);
  });

  test("is a new one for each request without an id", () => {
    const ids = Array.from({ length: 100 }, () => readRequestId(["Host", "x", "X-Request-Idx", "a"]));
    expect(new Set(ids).size).toBe(100);
  });
});

describe("a response has the id that is in the log", () => {
  test.each([
    ["GET", "/v2/queues"],
    ["GET", "/v2/unknown"],
    ["PUT", "/v2/queues"],
    ["POST", "/v2/publish/ftp://x"],
    ["GET", "/v2/dlq?labl=x"],
  ])("%s %s", async (method, url) => {
    const server = await createTestServer();
    const reply = await server.ask(method, url, { headers: { "x-request-id": "mine" } });
    expect(reply.headers["x-request-id"]).toBe("mine");
    const other = await server.ask(method, url, { token: "wrong" });
    expect(other.headers["x-request-id"]).toMatch(/^req_/);
    expect(server.lines.map(({ requestId }) => requestId)).toEqual(["mine", other.headers["x-request-id"]]);
  });

  test("also on the fast path", async () => {
    const { lines, port, usual } = await open();
    const head = [bearer(), "X-Request-Id: mine"];
    const received = await send(port, request("POST /v2/publish/https://e.example HTTP/1.1", head, "b"));
    expect(received).toMatch(/^x-request-id: mine\r$/im);
    expect(usual).toEqual([]);
    expect(lines.map(({ requestId }) => requestId)).toEqual(["mine"]);
  });
});
