import { describe, expect, test } from "vitest";
import { listMethods } from "../../../src/api/route/route.ts";
import { routes } from "../../../src/operations/routes.ts";
import { createTestServer, operatorPassword, token } from "../testServer.ts";
import { formatBasic } from "../routes/accounts/possessions.ts";

const urlOf = (path: string): string =>
  path
    .replaceAll("{id}", "acc_1")
    .replaceAll("{account}", "acc_1")
    .replaceAll(/\{\w+\}/g, "none");
const authorizationOf: Record<string, string> = {
  token: `Bearer ${token}`,
  account: formatBasic("acc_1", "pass"),
  operator: formatBasic("operator", operatorPassword),
};

const reading = routes.filter((row) => listMethods(row).includes("HEAD"));
const others = routes.filter((row) => row.method === "GET" && !listMethods(row).includes("HEAD"));

describe.each(reading.map((row) => ({ row, name: row.path })))("HEAD $name", ({ row: { path, access } }) => {
  test("returns the status and the headers of a GET, without a body", async () => {
    const server = await createTestServer();
    const headers: Record<string, string> = {
      "x-request-id": "one",
      ...(access in authorizationOf ? { authorization: authorizationOf[access] ?? "" } : {}),
    };
    const ask = (method: "GET" | "HEAD") => server.api.inject({ method, url: urlOf(path), headers });
    const got = await ask("GET");
    const head = await ask("HEAD");
    expect(head.statusCode).toBe(got.statusCode);
    const shown = ({ headers: { date: _date, ...rest } }: typeof got) => rest;
    expect(shown(head)).toEqual(shown(got));
    expect([head.body, got.body.length > 0]).toEqual(["", true]);
  });
});

test("HEAD is answered wherever a GET only reads, except at a webhook of a run and for a stream", () => {
  expect(others.map(({ path }) => path).toSorted()).toEqual([
    "/v2/keys/rotate",
    "/v2/logs/tail",
    "/v2/workflows/hooks/{userId}/{workflowRunId}/{eventId}",
  ]);
});

test("HEAD is in the Allow header where it is answered, and refused elsewhere", async () => {
  const server = await createTestServer();
  const put = await server.ask("PUT", "/v2/health");
  expect(put).toMatchObject({
    status: 405,
    headers: { allow: "GET, HEAD" },
    body: { error: expect.stringContaining("GET or HEAD") },
  });
  for (const url of ["/v2/keys/rotate", "/v2/workflows/hooks/acc_1/run/event"]) {
    const { statusCode, headers, body } = await server.api.inject({
      method: "HEAD",
      url,
      headers: { authorization: `Bearer ${token}` },
    });
    expect([url, statusCode, body, String(headers["allow"]).includes("HEAD")]).toEqual([url, 405, "", false]);
  }
});

test("HEAD requires the same rights as a GET", async () => {
  const server = await createTestServer();
  expect((await server.api.inject({ method: "HEAD", url: "/v2/keys" })).statusCode).toBe(401);
  expect(
    (await server.api.inject({ method: "HEAD", url: "/v2/svc/users" })).headers["www-authenticate"],
  ).toContain("Basic");
});
