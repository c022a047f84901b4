import { describe, expect, test } from "vitest";
import { addWarning } from "../../../src/api/http/warnings.ts";
import { routes } from "../../../src/operations/routes.ts";
import { createTestServer, operatorPassword, token } from "../testServer.ts";
import { formatBasic } from "../routes/accounts/possessions.ts";

/** Lists with pages of a limited number of entries. */
const lists = routes.filter(({ method, query }) => method === "GET" && "count" in query.shape);
const authorizationOf: Record<string, string> = {
  token: `Bearer ${token}`,
  operator: formatBasic("operator", operatorPassword),
};

test("there are lists to test", () => {
  const paths = lists.map(({ path }) => path);
  for (const path of [
    "/v2/workflows/logs",
    "/v2/workflows/dlq",
    "/v2/dlq",
    "/v2/events",
    "/v2/tokens",
    "/v2/admin/accounts",
  ])
    expect(paths).toContain(path);
});

describe.each(lists.map(({ path, access }) => ({ path, access })))("$path", ({ path, access }) => {
  test("returns a full page and a warning if count exceeds the page", async () => {
    const server = await createTestServer();
    const headers = { authorization: authorizationOf[access] ?? "" };
    const ask = (count: string) =>
      server.ask("GET", `${path.replaceAll(/\{\w+\}/g, "none")}?count=${count}`, { token: null, headers });
    const much = await ask("123456");
    const one = await ask("1");
    expect(one.headers).not.toHaveProperty("waypost-warning");
    expect(much.status).toBe(one.status);
    // An unknown object is refused before a page is read.
    if (much.status === 200)
      expect(much.headers["waypost-warning"]).toMatch(/^count: 123456 exceeds the limit of (10|100|1000)$/);
    expect((await ask("0")).status).toBe(400);
  });
});

test("GET /v2/workflows/logs returns at most 10 runs for any count", async () => {
  const server = await createTestServer();
  for (const count of ["11", "999999999999999"])
    expect((await server.ask("GET", `/v2/workflows/logs?count=${count}`)).headers["waypost-warning"]).toBe(
      `count: ${count} exceeds the limit of 10`,
    );
  expect((await server.ask("GET", "/v2/workflows/logs?count=10")).headers).not.toHaveProperty(
    "waypost-warning",
  );
  expect((await server.ask("GET", "/v2/workflows/logs?count=9999999999999999")).status).toBe(400);
});

test("several warnings are one list, without characters that a header cannot have", () => {
  expect(addWarning({ "Waypost-Warning": "one: 1" }, "two: \u20ac\r\n")).toEqual({
    "Waypost-Warning": "one: 1, two: ???",
  });
  expect(addWarning({ A: "b" }, "one: 1")).toEqual({ A: "b", "Waypost-Warning": "one: 1" });
});
