import { hash } from "node:crypto";
import { describe, expect, test } from "vitest";
import {
  bytes,
  callbackTo,
  takeDelivery,
  endpoint,
  failRunAndRead,
  start,
  step,
} from "../lists/failedRunLists.ts";
import { createTestServer } from "../../testServer.ts";

// Every response that shows only a part of a body or a response is marked as truncated.

const large = bytes("x".repeat(20_000));
const digest = hash("sha256", large, "hex");
/**
 * The outcomes that a node reports for a large response, and for a response that it has not read to the end.
 */
const long = { status: 500, body: large, digest } as const;
const unread = { status: 500, body: bytes("begin"), cut: true } as const;

describe("a response that is cut", () => {
  test.each([
    ["in the log", unread],
    ["in the log, by length", long],
  ])("is marked %s", async (_, outcome) => {
    const server = await createTestServer();
    await server.ask("POST", "/v2/publish/https://e.example", { headers: { "svc-retries": "0" }, body: "b" });
    await server.settle(server.delivery(), outcome);
    const [entry] = (await server.ask("GET", "/v2/events?state=ERROR")).body.events;
    expect(entry).toMatchObject({ truncated: true });
  });

  test("is marked in dead letters of messages and runs, and redacted with its whole hash", async () => {
    const server = await createTestServer();
    for (const redact of [{}, { "svc-redact-fields": "body" }]) {
      await server.ask("POST", "/v2/publish/https://e.example", {
        headers: { "svc-retries": "0", ...redact },
        body: "b",
      });
      await server.settle(server.delivery(), { ...long, keptBytes: 10 });
      server.clock.now += 10;
    }
    await server.ask("POST", "/v2/publish/https://e.example", { headers: { "svc-retries": "0" }, body: "b" });
    await server.settle(server.delivery(), unread);
    const [shown, hidden, other] = (await server.ask("GET", "/v2/dlq")).body.messages;
    expect(shown).toMatchObject({ truncated: true, responseBody: "x".repeat(10) });
    expect(hidden.responseBody).toBe(`REDACTED:${digest}`);
    expect(hidden).not.toHaveProperty("truncated");
    expect(other).toMatchObject({ truncated: true, responseBody: "begin" });
    const dlqId = await failRunAndRead(server, "wfr_1", { outcome: { ...long, keptBytes: 10 } });
    const { body } = await server.ask("GET", `/v2/workflows/dlq/${dlqId}`);
    expect(body).toMatchObject({ truncated: true, responseBody: "x".repeat(10) });
  });

  test("is marked in the state of a failure callback", async () => {
    const server = await createTestServer();
    const dlqId = await failRunAndRead(server, "wfr_1", {
      failureCallback: callbackTo("https://f.example"),
      outcome: long,
    });
    const [callback] = server.deliveries.splice(0);
    if (callback) await server.settle(callback, { ...long, status: 200 });
    const { body } = await server.ask("GET", `/v2/workflows/dlq/${dlqId}`);
    expect(body.failureCallbackInfo).toMatchObject({ truncated: true });
    expect(body.failureCallbackInfo).not.toHaveProperty("digest");
    expect(body.failureCallbackInfo).not.toHaveProperty("cut");
    const [run] = (await server.ask("GET", "/v2/workflows/logs")).body.runs;
    expect(run.failureFunction).toMatchObject({
      truncated: true,
      failResponse: "x".repeat(16_384),
      responseBody: "x".repeat(16_384),
    });
    expect(run.steps.at(-1).steps[0].errors).toMatchObject([{ status: 500, truncated: true }]);
    const [event] = (await server.ask("GET", "/v2/workflows/events?state=ERROR")).body.events;
    expect(event).toMatchObject({ truncated: true, responseStatus: 500 });
  });

  test("is marked if a failure callback is sent again with the kept part", async () => {
    const server = await createTestServer();
    const told = { failureCallback: { ...callbackTo("https://f.example"), retries: 0 } };
    const dlqId = await failRunAndRead(server, "wfr_1", { ...told, outcome: { ...long, keptBytes: 10 } });
    const bodyOf = (): { body: string; truncated?: true } =>
      JSON.parse(new TextDecoder().decode(server.deliveries[0]?.message.body));
    expect(bodyOf()).not.toHaveProperty("truncated");
    expect(atob(bodyOf().body)).toBe("x".repeat(20_000));
    await server.settle(server.deliveries.splice(0)[0] as never, { status: 500 });
    await server.ask("POST", `/v2/workflows/dlq/callback/${dlqId}`);
    expect(bodyOf()).toMatchObject({ truncated: true, body: btoa("x".repeat(10)) });
  });

  test("is not marked if it is complete", async () => {
    const server = await createTestServer();
    const dlqId = await failRunAndRead(server, "wfr_1", { failureCallback: callbackTo("https://f.example") });
    for (const path of [
      `/v2/workflows/dlq/${dlqId}`,
      "/v2/workflows/logs",
      "/v2/workflows/events",
      "/v2/events",
    ])
      expect(JSON.stringify((await server.ask("GET", path)).body)).not.toContain("truncated");
  });
});

describe("a body that is cut at the request of the caller", () => {
  test("is marked in the same object", async () => {
    const server = await createTestServer();
    await server.settle(takeDelivery(server, await start(server, "wfr_1", { body: bytes("pay") })), {
      status: 500,
    });
    server.clock.now += 1_000;
    await start(server, "wfr_2", { body: bytes("payload") });
    await step(server, "wfr_2", {
      message: { body: bytes('{"stepId":1,"stepName":"s","stepType":"Run","out":"four","concurrent":1}') },
    });
    await server.store.execute("finishRun", { account: "acc_1", runId: "wfr_2", body: bytes("result") });
    const runs = async (trim: number) =>
      (await server.ask("GET", `/v2/workflows/logs?trimBody=${trim}`)).body.runs;
    const [two, one] = await runs(4);
    expect(two).toMatchObject({ workflowRunResponse: "resu", truncated: true });
    const [[payload], [made]] = two.steps.map(({ steps }: { steps: unknown[] }) => steps);
    expect(payload).toMatchObject({ out: "payl", truncated: true });
    expect(made).toMatchObject({ out: "four" });
    expect(made).not.toHaveProperty("truncated");
    expect(JSON.stringify(one)).not.toContain("truncated");
    expect(JSON.stringify(await runs(7))).not.toContain("truncated");
    expect(JSON.stringify(await runs(-1))).not.toContain("truncated");
  });
});

test("the status of a run marks a result that is cut", async () => {
  const server = await createTestServer();
  for (const [runId, size] of [
    ["wfr_1", 16_384],
    ["wfr_2", 16_385],
  ] as const) {
    await start(server, runId, { url: endpoint });
    await server.store.execute("finishRun", { account: "acc_1", runId, body: bytes("r".repeat(size)) });
  }
  expect((await server.ask("GET", "/v2/workflows/runs/wfr_1/status")).body).not.toHaveProperty("truncated");
  expect((await server.ask("GET", "/v2/workflows/runs/wfr_2/status")).body).toMatchObject({
    resultBytes: 16_385,
    truncated: true,
  });
});

test("a run's error that is cut ends with an ellipsis", async () => {
  const server = await createTestServer();
  const says = (length: number) => ({
    outcome: { body: bytes(JSON.stringify({ error: "Error", message: "m".repeat(length) })) },
  });
  const whole = await failRunAndRead(server, "a", says(1_200));
  const cut = await failRunAndRead(server, "b", says(1_201));
  expect((await server.ask("GET", `/v2/workflows/dlq/${whole}`)).body.error).toBe("m".repeat(1_200));
  expect((await server.ask("GET", `/v2/workflows/dlq/${cut}`)).body.error).toBe(`${"m".repeat(1_199)}…`);
});

test("a rejected call of a source is marked if its body or its headers are cut", async () => {
  const server = await createTestServer();
  const source = {
    name: "s",
    destination: "https://e.example",
    verification: { scheme: "github", secret: "s" },
  };
  const made = (await server.ask("POST", "/v2/sources", { body: JSON.stringify(source) })).body;
  const path = new URL(made.url).pathname;
  const reject = async (headers: Record<string, string>, body: string): Promise<Record<string, unknown>> => {
    expect((await server.ask("POST", path, { headers, body, token: null })).status).toBe(401);
    server.clock.now += 60_000;
    return (await server.ask("GET", `/v2/sources/${made.sourceId}/rejections`)).body.rejections[0];
  };
  expect(await reject({}, "small")).not.toHaveProperty("truncated");
  expect(await reject({}, "b".repeat(16_385))).toMatchObject({ truncated: true, bodySize: 16_385 });
  expect(await reject({ "x-a": "v".repeat(1_025) }, "small")).toMatchObject({ truncated: true, bodySize: 5 });
});
