import { hash } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { Outcome } from "../../../../src/core/model/message.ts";
import { bytes, takeDelivery, start, step, workflowAnswer } from "../lists/failedRunLists.ts";
import { createTestServer } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

const url = "https://e.example/";
const answer = { status: 201, headers: [["X-A", "1"]], body: bytes("made 7"), keepsInLog: true } as const satisfies Partial<Outcome>;
const kept = { responseStatus: 201, responseHeaders: { "X-A": ["1"] }, responseBody: btoa("made 7") };

/** The entry of the log that says that a message was delivered. */
const delivered = async ({ ask }: TestServer, query = ""): Promise<Record<string, unknown>> =>
  (await ask("GET", `/v2/events?state=DELIVERED${query}`)).body.events[0];

/** Publishes, and settles the delivery as a node does, with the response only if it is kept. */
async function deliver(home: TestServer, path: string, headers: Record<string, string> = {}, outcome: Partial<Outcome> = answer) {
  await home.ask("POST", path, { headers, body: "b" });
  const delivery = home.delivery();
  const { keepsInLog, ...others } = { ...answer, ...outcome };
  await home.settle(delivery, delivery.message.keepResponse && keepsInLog ? { ...others, keepsInLog } : others);
  return delivered(home);
}

describe("the entry of a message that was delivered", () => {
  test("has the status of the response, and nothing else of it", async () => {
    const entry = await deliver(await createTestServer(), `/v2/publish/${url}`);
    expect(entry).toMatchObject({ state: "DELIVERED", responseStatus: 201 });
    for (const name of ["responseHeaders", "responseBody", "error", "truncated"]) expect(entry).not.toHaveProperty(name);
  });

  test.each([
    ["a header of the neutral brand", `/v2/publish/${url}`, { "svc-keep-response": "true" }],
    ["a header of the other brand", `/v2/publish/${url}`, { "Upstash-Keep-Response": "true" }],
    ["a query parameter", `/v2/publish/${url}?upstash-keep-response=true`, {}],
  ])("has the response when asked to with %s", async (_, path, headers) => {
    expect(await deliver(await createTestServer(), path, headers as Record<string, string>)).toMatchObject(kept);
  });

  test("has it when the URL group asks for it, unless the message does not want it", async () => {
    const home = await createTestServer();
    await home.ask("POST", "/v2/topics/g/endpoints", { body: JSON.stringify({ endpoints: [{ url }] }) });
    await home.ask("PATCH", "/v2/topics/g", { body: JSON.stringify({ headers: { "Svc-Keep-Response": "true" } }) });
    expect(await deliver(home, "/v2/publish/g")).toMatchObject(kept);
    home.clock.now += 10;
    expect(await deliver(home, "/v2/publish/g", { "svc-keep-response": "false" })).not.toHaveProperty("responseBody");
  });

  test("says that the body was cut, and hides what the message hides", async () => {
    const large = bytes("x".repeat(20_000));
    const cut = { body: large, digest: hash("sha256", large, "hex") };
    const keep = { "svc-keep-response": "true" };
    const entry = await deliver(await createTestServer(), `/v2/publish/${url}`, keep, cut);
    expect(entry).toMatchObject({ truncated: true, responseBody: btoa("x".repeat(16_384)) });
    const hidden = await deliver(await createTestServer(), `/v2/publish/${url}`, { ...keep, "svc-redact-fields": "body,header[X-A]" }, cut);
    expect(hidden).toMatchObject({
      responseBody: `REDACTED:${cut.digest}`,
      responseHeaders: { "X-A": [`REDACTED:${hash("sha256", "1")}`] },
    });
    expect(hidden).not.toHaveProperty("truncated");
    const unread = await deliver(await createTestServer(), `/v2/publish/${url}`, keep, { cut: true });
    expect(unread).toMatchObject({ ...kept, truncated: true });
  });

  test("has it again when a dead letter is sent again, unless that says otherwise", async () => {
    for (const [headers, expected] of [
      [{}, true],
      [{ "svc-keep-response": "false" }, undefined],
    ] as const) {
      const home = await createTestServer();
      await home.ask("POST", `/v2/publish/${url}`, { headers: { "svc-keep-response": "true", "svc-retries": "0" } });
      await home.settle(home.delivery(), { status: 500 });
      await home.ask("POST", "/v2/dlq/retry", { headers });
      expect(home.delivery().message.keepResponse).toBe(expected);
    }
  });

  test.each(["svc-callback-keep-response", "svc-failure-callback-keep-response"])("is no setting of callbacks: %s", async (name) => {
    const headers = { "svc-callback": url, "svc-failure-callback": url, [name]: "true" };
    const { ask } = await createTestServer();
    expect(await ask("POST", `/v2/publish/${url}`, { headers })).toMatchObject({
      status: 400,
      body: { error: `${name}: is a setting of messages, not of callbacks` },
    });
  });
});

describe("a run", () => {
  test("keeps the responses of all of its messages when asked to, and tells them in its log", async () => {
    const home = await createTestServer();
    const first = takeDelivery(home, await start(home, "wfr_1", { keepResponse: true }));
    expect(first.message.keepResponse).toBe(true);
    await home.settle(first, { ...workflowAnswer, keepsInLog: true });
    const next = takeDelivery(home, await step(home, "wfr_1", {}));
    expect(next.message.keepResponse).toBe(true);
    const { events } = (await home.ask("GET", "/v2/workflows/events?workflowRunId=wfr_1&state=DELIVERED")).body;
    expect(events).toMatchObject([{ responseStatus: 200, responseBody: "{}", responseHeaders: { "Upstash-Workflow-Sdk": ["v1.0.0"] } }]);
  });

  test("shows the status alone otherwise", async () => {
    const home = await createTestServer();
    await home.settle(takeDelivery(home, await start(home, "wfr_1")), workflowAnswer);
    const [event] = (await home.ask("GET", "/v2/workflows/events?workflowRunId=wfr_1&state=DELIVERED")).body.events;
    expect(event).toMatchObject({ responseStatus: 200 });
    for (const name of ["responseBody", "responseHeaders"]) expect(event).not.toHaveProperty(name);
  });
});
