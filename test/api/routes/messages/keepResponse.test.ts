import { hash } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { Outcome } from "../../../../src/engine/core/model/attempt.ts";
import { bytes, takeDelivery, start, step, workflowAnswer } from "../lists/failedRunLists.ts";
import { createTestServer } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

const url = "https://e.example/";
const answer = {
  status: 201,
  headers: [["X-A", "1"]],
  body: bytes("made 7"),
  keepsInLog: true,
} as const satisfies Partial<Outcome>;
const kept = { responseStatus: 201, responseHeaders: { "X-A": ["1"] }, responseBody: btoa("made 7") };

/** Returns the newest log entry of a delivered message. */
const delivered = async ({ ask }: TestServer, query = ""): Promise<Record<string, unknown>> =>
  (await ask("GET", `/v2/events?state=DELIVERED${query}`)).body.events[0];

/** Publishes a message and settles its delivery like a node: with the response only if the log keeps it. */
async function deliver(
  server: TestServer,
  path: string,
  { headers = {}, outcome = answer }: { headers?: Record<string, string>; outcome?: Partial<Outcome> } = {},
) {
  await server.ask("POST", path, { headers, body: "b" });
  const delivery = server.delivery();
  const { keepsInLog, ...others } = { ...answer, ...outcome };
  await server.settle(
    delivery,
    delivery.message.keepResponse && keepsInLog ? { ...others, keepsInLog } : others,
  );
  return delivered(server);
}

describe("the log entry of a delivered message", () => {
  test("has only the status of the response by default", async () => {
    const entry = await deliver(await createTestServer(), `/v2/publish/${url}`);
    expect(entry).toMatchObject({ state: "DELIVERED", responseStatus: 201 });
    for (const name of ["responseHeaders", "responseBody", "error", "truncated"])
      expect(entry).not.toHaveProperty(name);
  });

  test.each([
    ["a header of the neutral brand", `/v2/publish/${url}`, { "svc-keep-response": "true" }],
    ["a header of the other brand", `/v2/publish/${url}`, { "Upstash-Keep-Response": "true" }],
    ["a query parameter", `/v2/publish/${url}?upstash-keep-response=true`, {}],
  ])("has the response with %s", async (_, path, headers) => {
    expect(await deliver(await createTestServer(), path, { headers })).toMatchObject(kept);
  });

  test("has the response if the URL group asks for it and the message does not decline", async () => {
    const server = await createTestServer();
    await server.ask("POST", "/v2/topics/g/endpoints", { body: JSON.stringify({ endpoints: [{ url }] }) });
    await server.ask("PATCH", "/v2/topics/g", {
      body: JSON.stringify({ headers: { "Svc-Keep-Response": "true" } }),
    });
    expect(await deliver(server, "/v2/publish/g")).toMatchObject(kept);
    server.clock.now += 10;
    expect(
      await deliver(server, "/v2/publish/g", { headers: { "svc-keep-response": "false" } }),
    ).not.toHaveProperty("responseBody");
  });

  test("marks a body that was cut, and hides the parts that the message redacts", async () => {
    const large = bytes("x".repeat(20_000));
    const cut = { body: large, digest: hash("sha256", large, "hex") };
    const keep = { "svc-keep-response": "true" };
    const entry = await deliver(await createTestServer(), `/v2/publish/${url}`, {
      headers: keep,
      outcome: cut,
    });
    expect(entry).toMatchObject({ truncated: true, responseBody: btoa("x".repeat(16_384)) });
    const hidden = await deliver(await createTestServer(), `/v2/publish/${url}`, {
      headers: { ...keep, "svc-redact-fields": "body,header[X-A]" },
      outcome: cut,
    });
    expect(hidden).toMatchObject({
      responseBody: `REDACTED:${cut.digest}`,
      responseHeaders: { "X-A": [`REDACTED:${hash("sha256", "1")}`] },
    });
    expect(hidden).not.toHaveProperty("truncated");
    const unread = await deliver(await createTestServer(), `/v2/publish/${url}`, {
      headers: keep,
      outcome: { cut: true },
    });
    expect(unread).toMatchObject({ ...kept, truncated: true });
  });

  test("has the response after a retry of a dead letter, unless the retry declines", async () => {
    for (const [headers, expected] of [
      [{}, true],
      [{ "svc-keep-response": "false" }, undefined],
    ] as const) {
      const server = await createTestServer();
      await server.ask("POST", `/v2/publish/${url}`, {
        headers: { "svc-keep-response": "true", "svc-retries": "0" },
      });
      await server.settle(server.delivery(), { status: 500 });
      await server.ask("POST", "/v2/dlq/retry", { headers });
      expect(server.delivery().message.keepResponse).toBe(expected);
    }
  });

  test.each(["svc-callback-keep-response", "svc-failure-callback-keep-response"])(
    "cannot have the response of a callback: %s",
    async (name) => {
      const headers = { "svc-callback": url, "svc-failure-callback": url, [name]: "true" };
      const { ask } = await createTestServer();
      expect(await ask("POST", `/v2/publish/${url}`, { headers })).toMatchObject({
        status: 400,
        body: { error: `${name}: not valid for callbacks; set it on the message` },
      });
    },
  );
});

describe("a run", () => {
  test("keeps the responses of all of its messages and shows them in its log", async () => {
    const server = await createTestServer();
    const first = takeDelivery(server, await start(server, "wfr_1", { keepResponse: true }));
    expect(first.message.keepResponse).toBe(true);
    await server.settle(first, { ...workflowAnswer, keepsInLog: true });
    const next = takeDelivery(server, await step(server, "wfr_1", {}));
    expect(next.message.keepResponse).toBe(true);
    const { events } = (await server.ask("GET", "/v2/workflows/events?workflowRunId=wfr_1&state=DELIVERED"))
      .body;
    expect(events).toMatchObject([
      { responseStatus: 200, responseBody: "{}", responseHeaders: { "Upstash-Workflow-Sdk": ["v1.0.0"] } },
    ]);
  });

  test("shows only the status by default", async () => {
    const server = await createTestServer();
    await server.settle(takeDelivery(server, await start(server, "wfr_1")), workflowAnswer);
    const [event] = (await server.ask("GET", "/v2/workflows/events?workflowRunId=wfr_1&state=DELIVERED")).body
      .events;
    expect(event).toMatchObject({ responseStatus: 200 });
    for (const name of ["responseBody", "responseHeaders"]) expect(event).not.toHaveProperty(name);
  });
});
