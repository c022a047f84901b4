import { describe, expect, test } from "vitest";
import { parseSegment } from "../../../../src/api/settings/segment.ts";
import { endpoint } from "./workflow.ts";
import { testTime, createTestServer, token } from "../../testServer.ts";
import { resultIn, wait, waiting, waitingRun } from "./waitingRuns.ts";
import type { TestServer, Reply } from "../../testServer.ts";

describe("a waiting step", () => {
  test("shows no headers that its run hides", async () => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1", { redaction: { body: false, headers: ["X-Secret"] } });
    const { headers, body } = waiting("wfr_1");
    const secrets = { "Upstash-Forward-X-Secret": "s3cret", "Upstash-Forward-X-Open": "open" };
    const timeoutHeaders = { ...JSON.parse(body).timeoutHeaders, "upstash-forward-x-secret": ["s3cret"] };
    const posted = {
      headers: { ...headers, ...secrets },
      body: JSON.stringify({ ...JSON.parse(body), timeoutHeaders }),
    };
    expect((await server.ask("POST", "/v2/wait/paid", posted)).status).toBe(200);
    const shown = await server.ask("GET", "/v2/waiters/paid");
    const notified = await server.ask("POST", "/v2/notify/paid");
    expect(shown.body[0].headers).toMatchObject({
      "Upstash-Forward-X-Secret": [expect.stringMatching(/^REDACTED:/)],
      "Upstash-Forward-X-Open": ["open"],
    });
    expect(notified.body[0].waiter).toEqual(shown.body[0]);
    expect(JSON.stringify([shown.body, notified.body])).not.toContain("s3cret");
    expect(server.delivery().message.headers).toContainEqual(["X-Secret", "s3cret"]);
  });

  test("is shown without headers to tokens that may only publish", async () => {
    const server = await createTestServer();
    const verbs = (of: string[]): Promise<Reply> =>
      server.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs: of }) });
    const publishing = await verbs(["publish"]);
    const both = await verbs(["publish", "read"]);
    const shownHeaders: unknown[] = [];
    for (const [token, path] of [
      [publishing, "paid"],
      [publishing, "wfr_2/paid"],
      [both, "paid"],
    ] as const) {
      const runId = `wfr_${shownHeaders.length + 1}`;
      await waitingRun(server, runId);
      const { headers, body } = waiting(runId);
      const posted = { headers: { ...headers, "Upstash-Forward-Authorization": "Bearer s3cret" }, body };
      expect((await server.ask("POST", "/v2/wait/paid", posted)).status).toBe(200);
      const reply = await server.ask("POST", `/v2/notify/${path}`, { token: token.body.token });
      const known = [
        path === "paid" && token === publishing ? "" : runId,
        token === publishing ? "" : endpoint,
      ];
      expect(reply).toMatchObject({
        status: 200,
        body: [{ workflowRunId: known[0], waiter: { url: known[1] } }],
      });
      shownHeaders.push(reply.body[0].waiter.headers);
      server.delivery();
    }
    expect(shownHeaders).toEqual([
      {},
      {},
      expect.objectContaining({ "Upstash-Forward-Authorization": ["Bearer s3cret"] }),
    ]);
  });

  test("is shown with the headers of its request, and continues on a notification", async () => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    expect(await wait(server, "wfr_1")).toMatchObject({ status: 200, body: { waits: true } });
    const shown = await server.ask("GET", "/v2/waiters/paid");
    expect(shown).toMatchObject({
      status: 200,
      headers: { "content-type": "application/json; charset=utf-8" },
    });
    expect(shown.body).toEqual([
      {
        url: endpoint,
        headers: expect.objectContaining({
          "Upstash-Workflow-Runid": ["wfr_1"],
          "Content-Type": ["application/json"],
        }),
        deadline: testTime / 1000 + 7 * 86_400,
        timeoutUrl: endpoint,
        timeoutHeaders: expect.objectContaining({ "Upstash-Workflow-Runid": ["wfr_1", "wfr_1"] }),
        workflowRunId: "wfr_1",
        eventId: "paid",
      },
    ]);
    expect(JSON.stringify(shown.body)).not.toMatch(/bearer|authorization/i);
    const reply = await server.ask("POST", "/v2/notify/paid", { body: "yes ✓" });
    expect(reply.body).toEqual([
      {
        waiter: shown.body[0],
        messageId: expect.stringMatching(/^msg_/),
        url: endpoint,
        workflowRunId: "wfr_1",
        workflowCreatedAt: testTime,
        deduplicated: false,
      },
    ]);
    expect(server.deliveries[0]?.message).toMatchObject({
      id: reply.body[0].messageId,
      url: endpoint,
      headers: expect.arrayContaining([
        ["Upstash-Workflow-Sdk-Version", "1"],
        ["Content-Type", "application/json"],
      ]),
    });
    expect(resultIn(server)).toEqual({
      stepId: 1,
      stepType: "Wait",
      stepName: "w",
      concurrent: 1,
      waitEventId: "paid",
      timeout: "7d",
      out: Buffer.from("yes ✓").toString("base64"),
      waitTimeout: false,
    });
    expect((await server.ask("GET", "/v2/waiters/paid")).body).toEqual([]);
    expect((await server.ask("POST", "/v2/notify/paid", { body: "again" })).body).toEqual([]);
  });

  test("posted twice waits once", async () => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    await wait(server, "wfr_1");
    expect(await wait(server, "wfr_1")).toMatchObject({ status: 200, body: { waits: false } });
    expect((await server.ask("POST", "/v2/notify/paid")).body).toHaveLength(1);
  });

  test.each([
    ["0s", 0],
    [5, 5_000],
    ["0.5s", 500],
    ["1y", 365 * 86_400_000],
    ["366d", 366 * 86_400_000],
  ])("with the timeout %s continues by itself", async (timeout, millis) => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    expect(
      (
        await wait(server, "wfr_1", {
          timeout,
          timeoutUrl: "https://app.example/late",
          timeoutBody: null,
        })
      ).status,
    ).toBe(200);
    server.clock.now = testTime + millis - 1;
    if (millis > 0) expect(await claimed(server)).toBe(0);
    server.clock.now++;
    expect(await claimed(server)).toBe(1);
    expect(server.deliveries[0]?.message.url).toBe("https://app.example/late");
    expect(resultIn(server)).toMatchObject({
      waitTimeout: true,
      timeout: typeof timeout === "number" ? `${timeout}s` : timeout,
    });
  });

  const claimed = async (server: TestServer): Promise<number> => {
    await server.store.execute("claim", { limit: 10 });
    return server.deliveries.length;
  };

  test("without a timeout waits at most 7 days", async () => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    await wait(server, "wfr_1", {
      timeout: undefined,
      timeoutUrl: undefined,
      timeoutHeaders: undefined,
    });
    expect((await server.ask("GET", "/v2/waiters/paid")).body).toMatchObject([
      { deadline: testTime / 1000 + 7 * 86_400, timeoutUrl: endpoint, timeoutHeaders: {} },
    ]);
  });

  test("cannot have its result set in advance", async () => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    await wait(server, "wfr_1", {
      timeout: "0s",
      step: { stepId: 1, stepType: "Wait", stepName: "w", out: "forged", waitTimeout: false, concurrent: 1 },
    });
    await claimed(server);
    const result = resultIn(server);
    expect(result).toMatchObject({ waitTimeout: true });
    expect(result).not.toHaveProperty("out");
  });

  const refused: [what: string, change: Record<string, unknown>, status: number, error: RegExp][] = [
    ["no URL", { url: undefined }, 412, /^url: is missing/],
    ["an invalid URL", { url: "ftp://x" }, 412, /^url: /],
    ["an invalid timeout URL", { timeoutUrl: "x" }, 412, /^timeoutUrl: /],
    ["an invalid timeout", { timeout: "soon" }, 412, /^timeout: "soon" is not a duration/],
    ["a timeout that is an object", { timeout: {} }, 412, /^timeout: /],
    ["a negative timeout", { timeout: -1 }, 412, /^timeout: /],
    ["more than the longest timeout", { timeout: "367d" }, 412, /^timeout: .*limit/],
    ["a timeout of 101 years", { timeout: "101y" }, 412, /^timeout: /],
    ["no step", { step: undefined }, 412, /^step: /],
    ["a plan", { stepId: 0 }, 412, /^step\.stepId: must be at least 1/],
    ["a step id that is a string", { stepId: "1" }, 412, /^step\.stepId: /],
    ["invalid headers", { timeoutHeaders: { a: 1 } }, 412, /^timeoutHeaders/],
    [
      "headers that HTTP cannot carry",
      { timeoutHeaders: { "Upstash-Forward-A": ["a\r\nb: c"] } },
      412,
      /^timeoutHeaders: .*cannot carry/,
    ],
    [
      "too many headers",
      { timeoutHeaders: { a: ["x".repeat(70_000)] } },
      412,
      /^timeoutHeaders: .*limit is 65536/,
    ],
    [
      "a prototype",
      { ["__proto__x"]: 1, step: JSON.parse('{"__proto__":{},"stepId":1,"stepName":"s","stepType":"Wait"}') },
      412,
      /__proto__/,
    ],
  ];

  test.for(refused)("is refused with %s", async ([, change, status, error]) => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    expect(await wait(server, "wfr_1", change)).toMatchObject({
      status,
      body: { error: expect.stringMatching(error) },
    });
    expect((await server.ask("GET", "/v2/waiters/paid")).body).toEqual([]);
  });

  test.each(["", "[]", "null", "{", '"text"', Buffer.from([0xff])])(
    "is refused with a body that is not a JSON object: %o",
    async (body) => {
      const server = await createTestServer();
      await waitingRun(server, "wfr_1");
      const { headers } = waiting("wfr_1");
      expect(await server.ask("POST", "/v2/wait/paid", { headers, body })).toMatchObject({
        status: 412,
        body: { error: expect.stringMatching(/^body: /) },
      });
    },
  );

  test("is refused with 400 without an active run of the account", async () => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    await server.ask("DELETE", "/v2/workflows/runs/wfr_1?cancel=false");
    await waitingRun(server, "theirs", { as: "acc_2" });
    for (const runId of ["wfr_1", "unknown", "theirs"])
      expect(await wait(server, runId)).toMatchObject({
        status: 400,
        body: { error: expect.stringContaining(`no active run "${runId}"`) },
      });
    const { body } = waiting("wfr_1");
    expect(await server.ask("POST", "/v2/wait/paid", { body })).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/^workflow-runid: missing/) },
    });
    const two = { "svc-workflow-runid": "a", "upstash-workflow-runid": "b" };
    expect(await server.ask("POST", "/v2/wait/paid", { body, headers: two })).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/^workflow-runid: given twice/) },
    });
  });

  test("never shows the token", async () => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    const { headers, body } = waiting("wfr_1");
    await server.ask("POST", "/v2/wait/paid", {
      headers: { ...headers, "upstash-forward-x": `Bearer ${token}`, cookie: "c" },
      body,
    });
    const text = JSON.stringify((await server.ask("GET", "/v2/waiters/paid")).body);
    expect(text).not.toContain(token);
    expect(text).not.toMatch(/cookie/i);
  });
});

describe("ids of events", () => {
  test.each(["a/b", "ünïcödé 🎉", "x".repeat(512), "100%", "a?b#c", " "])("%s is accepted", async (event) => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    expect((await wait(server, "wfr_1", { event })).status).toBe(200);
    const path = encodeURIComponent(event);
    expect((await server.ask("GET", `/v2/waiters/${path}`)).body).toHaveLength(1);
    expect((await server.ask("POST", `/v2/notify/wfr_1/${path}`, { body: "e" })).body).toMatchObject([
      { workflowRunId: "wfr_1" },
    ]);
    expect(resultIn(server)).toMatchObject({ waitEventId: event });
  });

  test.each(["\u0000", "\ud800", "a\udfffb", ""])("%j is refused as a part of a path", (text) => {
    expect(() => parseSegment("eventId", text)).toThrow(/^eventId: .*is not a valid name/);
  });

  test.each(["a%00b", "%0a", "x".repeat(513), "%ed%b0%80", "%zz"])("%s is refused", async (event) => {
    const server = await createTestServer();
    await waitingRun(server, "wfr_1");
    for (const [method, url] of [
      ["POST", `/v2/wait/${event}`],
      ["POST", `/v2/notify/${event}`],
      ["POST", `/v2/notify/wfr_1/${event}`],
      ["POST", `/v2/notify/${event}/paid`],
      ["GET", `/v2/waiters/${event}`],
    ] as const) {
      const reply = await server.ask(method, url, method === "GET" ? {} : waiting("wfr_1"));
      const status = url.startsWith("/v2/wait/") ? 412 : 400;
      expect([url, reply.status, reply.body.error]).toEqual([
        url,
        status,
        expect.stringMatching(/^(eventId|workflowRunId|path): /),
      ]);
    }
  });
});
