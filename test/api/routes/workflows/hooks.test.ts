import { describe, expect, test } from "vitest";
import { TestBrowser } from "../../../operations/console/browser.ts";
import type { TestServer } from "../../testServer.ts";
import { createTestServer } from "../../testServer.ts";
import { workflowResponse, endpoint, takeHistories, start } from "./workflow.ts";

const url = "/v2/workflows/hooks/acc_1/wfr_1/evt_1";

async function waitingRun(options: Parameters<typeof createTestServer>[0] = {}): Promise<TestServer> {
  const server = await createTestServer(options);
  await start(server, "wfr_1");
  await server.settle(server.delivery(), workflowResponse);
  return server;
}

async function wait(
  server: TestServer,
  stepId = 1,
  { stepType = "WaitForWebhook" }: { stepType?: "Wait" | "WaitForWebhook" } = {},
): Promise<boolean> {
  const body = JSON.stringify({
    url: endpoint,
    timeout: "7d",
    timeoutUrl: endpoint,
    step: { stepId, stepType, stepName: "w", concurrent: 1 },
  });
  return (
    await server.ask("POST", "/v2/wait/evt_1", { headers: { "upstash-workflow-runid": "wfr_1" }, body })
  ).body.waits;
}

/** Returns the call that ended the wait, from the last result of the run. */
function callIn(server: TestServer): Record<string, unknown> {
  const result = JSON.parse(takeHistories(server).at(-1)?.at(-1) ?? "null");
  return JSON.parse(Buffer.from(result.out, "base64").toString());
}

describe("a call to the webhook of a run", () => {
  test("needs no token, and ends the wait with all parts of the call", async () => {
    const server = await waitingRun();
    expect(await wait(server)).toBe(true);
    const headers = {
      host: "hooks.example:8080",
      "x-test-header": "v",
      "content-type": "application/json",
      authorization: "Basic abc",
      connection: "x-gone",
      "x-gone": "1",
    };
    const reply = await server.ask("POST", `${url}?q=1&qstash_token=z`, {
      headers,
      body: '{"ü":1}',
      token: null,
    });
    expect(reply).toMatchObject({ status: 200, body: { accepted: true } });
    const call = callIn(server);
    expect(call).toEqual({
      method: "POST",
      header: expect.objectContaining({
        "Content-Type": ["application/json"],
        "X-Test-Header": ["v"],
        Authorization: ["Basic abc"],
      }),
      body: Buffer.from('{"ü":1}').toString("base64"),
      proto: "http",
      host: "hooks.example:8080",
      url: `${url}?q=1&qstash_token=z`,
    });
    for (const name of ["Host", "Connection", "X-Gone", "Content-Length"])
      expect(call["header"]).not.toHaveProperty(name);
    expect(
      () => new Request(`${String(call["proto"])}://${String(call["host"])}${String(call["url"])}`),
    ).not.toThrow();
  });

  test.each(["GET", "POST", "PUT", "PATCH", "DELETE"])(
    "may be a %s, and has no body if it was empty",
    async (method) => {
      const server = await waitingRun();
      await wait(server);
      expect((await server.ask(method, url, { token: null })).status).toBe(200);
      const call = callIn(server);
      expect(call).toMatchObject({ method, url });
      expect(call).not.toHaveProperty("body");
    },
  );

  test("may come from a browser in which the console is open, and has none of its cookies", async () => {
    const server = await waitingRun({ console: {} });
    await wait(server);
    const browser = new TestBrowser(server, { "sec-fetch-site": "none" });
    browser.cookies.set("waypost-session", `YWNjXzE.${"A".repeat(43)}`);
    browser.cookies.set("__Host-waypost-operator", "a.b");
    browser.cookies.set("theirs", "1");
    expect((await browser.send("GET", url)).status).toBe(200);
    expect(callIn(server)["header"]).toMatchObject({ Cookie: ["theirs=1"] });
  });

  test("is kept until the run waits, in order, one for each wait", async () => {
    const server = await waitingRun();
    for (const body of ["1", "2", "3"]) await server.ask("POST", url, { body, token: null });
    for (const stepId of [1, 2, 3]) {
      expect(await wait(server, stepId)).toBe(false);
      expect(callIn(server)["body"]).toBe(btoa(String(stepId)));
    }
    expect(await wait(server, 4)).toBe(true);
    expect(await wait(server, 5)).toBe(true);
    await server.ask("POST", url, { body: "4", token: null });
    expect(server.deliveries).toHaveLength(1);
  });

  test("does not end a wait for an event, and an event does not end a wait for a call", async () => {
    const server = await waitingRun();
    await wait(server, 1, { stepType: "Wait" });
    await server.ask("POST", url, { token: null });
    expect(server.deliveries).toHaveLength(0);
    expect((await server.ask("GET", "/v2/waiters/evt_1")).body).toHaveLength(1);
    expect((await server.ask("POST", "/v2/notify/wfr_1/evt_1")).body).toMatchObject([
      { messageId: expect.any(String) },
    ]);
    expect(await wait(server, 2)).toBe(false);
  });

  test("has the address that the caller used, if the proxy is trusted", async () => {
    const forwarded = { host: "inner:1", "x-forwarded-proto": "https", "x-forwarded-host": "hooks.example" };
    for (const [trustProxy, expected] of [
      [true, { proto: "https", host: "hooks.example" }],
      [false, { proto: "http", host: "inner:1" }],
      [["10.0.0.0/8"], { proto: "http", host: "inner:1" }],
    ] as const) {
      const server = await waitingRun({
        trustProxy: typeof trustProxy === "boolean" ? trustProxy : [...trustProxy],
      });
      await wait(server);
      await server.ask("POST", url, { headers: forwarded, token: null });
      const call = callIn(server);
      expect(call).toMatchObject(expected);
      expect(call["header"]).not.toHaveProperty("X-Forwarded-Proto");
    }
  });

  test.each([
    [{ host: "a b" }],
    [{ host: "user@x" }],
    [{ host: "x/y" }],
    [{ host: "[" }],
    [{ host: "x:99999" }],
    [{ "x-forwarded-proto": "javascript", host: "x" }],
  ])("is refused if no request can be made from it: %o", async (headers) => {
    const server = await waitingRun({ trustProxy: true });
    await wait(server);
    expect(await server.ask("POST", url, { headers, token: null })).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/^host: /) },
    });
    expect((await server.ask("POST", url, { headers: { host: "x" }, token: null })).status).toBe(200);
  });

  test("has the same 404 for every unknown part of the URL, before its body is read", async () => {
    const server = await waitingRun();
    await start(server, "theirs", { as: "acc_2" });
    await start(server, "ended");
    await server.ask("DELETE", "/v2/workflows/runs/ended?cancel=false");
    const body = Buffer.alloc(10 * 1024 * 1024 + 1);
    const answers = new Set<string>();
    for (const path of [
      "acc_1/nobody/evt_1",
      "acc_1/theirs/evt_1",
      "acc_2/wfr_1/evt_1",
      "nobody/wfr_1/evt_1",
      "acc_1/ended/evt_1",
      "acc_1/a%00/evt_1",
      "acc_1/wfr_1/a%00",
    ]) {
      const reply = await server.ask("POST", `/v2/workflows/hooks/${path}`, { body, token: null });
      expect([path, reply.status]).toEqual([path, 404]);
      answers.add(JSON.stringify(reply.body));
    }
    expect(answers.size).toBe(1);
    expect((await server.ask("POST", url, { body, token: null })).status).toBe(413);
    expect((await server.ask("POST", url, { body: body.subarray(1), token: null })).status).toBe(200);
  });

  test("is refused if the run keeps too many calls or too many bytes", async () => {
    const server = await waitingRun();
    for (let n = 0; n < 1_000; n++)
      await server.store.execute("notify", {
        account: "acc_1",
        event: "evt_1",
        body: Buffer.from("{}"),
        runId: "wfr_1",
        kind: "webhook",
      });
    expect(await server.ask("POST", url, { token: null })).toMatchObject({
      status: 412,
      body: { error: expect.stringContaining("1000") },
    });
    const other = await waitingRun();
    const statuses = [];
    for (let n = 0; n < 4; n++)
      statuses.push(
        (await other.ask("POST", url, { body: Buffer.alloc(10 * 1024 * 1024), token: null })).status,
      );
    expect(statuses).toEqual([200, 200, 412, 412]);
  });

  test("finds a run whose id its endpoint has read from a header, in Latin-1", async () => {
    const server = await createTestServer();
    await start(server, "wfr_日本");
    const seen = Buffer.from("wfr_日本").toString("latin1");
    expect(
      (
        await server.ask("POST", `/v2/workflows/hooks/acc_1/${encodeURIComponent(seen)}/evt_1`, {
          token: null,
        })
      ).status,
    ).toBe(200);
  });

  test("reaches the run that resumed a failed one, like an event sent to its id", async () => {
    const server = await createTestServer();
    await start(server, "wfr_1", { retries: 0 });
    await server.settle(server.delivery(), { status: 500 });
    expect((await server.ask("POST", url, { token: null })).status).toBe(404);
    const [{ dlqId }] = (await server.ask("GET", "/v2/workflows/dlq")).body.messages;
    const { workflowRunId } = (await server.ask("POST", `/v2/workflows/dlq/resume/${dlqId}`)).body;
    expect(workflowRunId).not.toBe("wfr_1");
    expect((await server.ask("POST", url, { token: null, body: "call" })).status).toBe(200);
    expect((await server.ask("POST", "/v2/notify/wfr_1/paid", { body: "yes" })).body).toEqual([
      { workflowRunId },
    ]);
    const active = await server.store.read.activeRun("acc_1", workflowRunId);
    const kept = await server.store.read.listNotifications("acc_1", active?.run.id ?? "");
    expect(kept.map(({ kind, event }) => [kind, event])).toEqual([
      ["webhook", "evt_1"],
      ["event", "paid"],
    ]);
  });

  test("is logged without its URL", async () => {
    const server = await waitingRun();
    for (const path of [
      url,
      `${url}/`,
      url.replace("hooks", "%68ooks"),
      "/v2/workflows/hooks/acc_1/nobody/evt_1",
      "/v3/hooks/acc_1/wfr_1",
    ])
      await server.ask("POST", `${path}?secret=1`, { body: "secret", token: null });
    expect(server.lines.map(({ path, status }) => [path, status])).toEqual([
      ["/v2/workflows/hooks/…", 200],
      ["/v2/workflows/hooks/…", 200],
      ["/v2/workflows/hooks/…", 200],
      ["/v2/workflows/hooks/…", 404],
      ["/v3/hooks/…", 404],
    ]);
    expect(JSON.stringify(server.lines)).not.toMatch(/secret|wfr_1|evt_1/);
  });
});
