import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { errorCodes } from "../../../src/engine/core/values/errors.ts";
import { linkErrorPage } from "../../../src/api/http/problems.ts";
import { createTestServer, shareTestServer } from "../testServer.ts";

const ask = async (url: string, headers: Record<string, string> = {}, server = shared()) =>
  (await server.ask("GET", url, { headers })).body as Record<string, string>;
const shared = shareTestServer();

test("an error names the page of its code", async () => {
  expect(await ask("/v2/queues/none")).toMatchObject({ code: "not-found", docs: "/docs/errors#not-found" });
  expect(await ask("/v2/queues?surprise=1")).toMatchObject({ docs: "/docs/errors#invalid" });
  expect(await ask("/v2/svc/nothing")).toMatchObject({
    code: "not-found",
    errorCode: "not-found",
    docs: "/docs/errors#not-found",
  });
});

test.each<[what: string, url: string, headers?: Record<string, string>]>([
  ["a header", "/v2/queues/none", { "upstash-telemetry-sdk": "qstash-js" }],
  ["a setting in the query", "/v2/queues/none?upstash-retries=1"],
  ["a malformed setting", "/v2/queues/none?upstash-retries=%zz"],
  ["the path", "/v2/qstash/nothing"],
])("a request that shows the compatible API by %s gets the same body as there", async (_, url, headers) => {
  const body = await ask(url, headers);
  expect(Object.keys(body)).not.toContain("docs");
  expect(body).toHaveProperty("code");
});

test("a token parameter shows the API as well", async () => {
  const { ask: send } = shared();
  for (const [name, docs] of [
    ["qstash_token", undefined],
    ["svc_token", "/docs/errors#unauthorized"],
  ] as const) {
    const { body } = await send("GET", `/v2/queues?${name}=wrong`, { token: null });
    expect(body.docs).toBe(docs);
  }
});

test("the brand of the server decides if the request shows none", async () => {
  const server = await createTestServer({ brand: "upstash" });
  expect(await ask("/v2/queues/none", {}, server)).not.toHaveProperty("docs");
  expect(await ask("/v2/queues/none", { "svc-x": "1" }, server)).toHaveProperty("docs");
});

test("the page has an entry for each code", () => {
  const page = readFileSync(new URL("../../../docs/errors.md", import.meta.url), "utf8");
  for (const code of Object.keys(errorCodes) as (keyof typeof errorCodes)[]) {
    const [path, anchor] = linkErrorPage(code).split("#");
    expect(path).toBe("/docs/errors");
    expect(page).toContain(`\n### ${anchor}\n`);
  }
});
