import { describe, expect, test } from "vitest";
import { checkSegment } from "../../../../src/api/settings/segment.ts";
import { workflowResponse, endpoint, takeHistories, start } from "./workflow.ts";
import { testTime, createTestServer, otherToken, token } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";

/** What the client posts for a step that waits. */
function waiting(runId: string, { stepId = 1, ...more }: Record<string, unknown> = {}) {
  const headers = {
    "Upstash-Workflow-Init": "false",
    "Upstash-Workflow-RunId": runId,
    "Upstash-Workflow-Url": endpoint,
    "Upstash-Feature-Set": "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig",
    "Upstash-Workflow-Sdk-Version": "1",
    "Upstash-Forward-Upstash-Workflow-Sdk-Version": "1",
    "Upstash-Workflow-CallType": "step",
    "Upstash-Telemetry-Sdk": "x",
    "content-type": "application/json",
  };
  const lists = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]]));
  const step = { stepId, stepType: "Wait", stepName: "w", concurrent: 1 };
  const timeoutHeaders = { ...lists, "Upstash-Workflow-Runid": [runId] };
  const body = JSON.stringify({ url: endpoint, timeout: "7d", timeoutUrl: endpoint, timeoutHeaders, step, ...more });
  return { headers, body };
}

const wait = (home: TestServer, runId: string, event = "paid", more: Record<string, unknown> = {}): Promise<Reply> =>
  home.ask("POST", `/v2/wait/${encodeURIComponent(event)}`, waiting(runId, more));

/** A run whose first message is delivered. */
async function waitingRun(home: TestServer, runId: string, more: Parameters<typeof start>[2] = {}): Promise<void> {
  await start(home, runId, more);
  await home.settle(home.delivery(), workflowResponse);
}

const resultIn = (home: TestServer, position = 1): Record<string, unknown> => JSON.parse(takeHistories(home)[0]?.[position] ?? "null");

describe("waiting", () => {
  test("shows nothing that its run hides", async () => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1", { redaction: { body: false, headers: ["X-Secret"] } });
    const { headers, body } = waiting("wfr_1");
    const secrets = { "Upstash-Forward-X-Secret": "s3cret", "Upstash-Forward-X-Open": "open" };
    const timeoutHeaders = { ...JSON.parse(body).timeoutHeaders, "upstash-forward-x-secret": ["s3cret"] };
    const posted = { headers: { ...headers, ...secrets }, body: JSON.stringify({ ...JSON.parse(body), timeoutHeaders }) };
    expect((await home.ask("POST", "/v2/wait/paid", posted)).status).toBe(200);
    const shown = await home.ask("GET", "/v2/waiters/paid");
    const told = await home.ask("POST", "/v2/notify/paid");
    expect(shown.body[0].headers).toMatchObject({
      "Upstash-Forward-X-Secret": [expect.stringMatching(/^REDACTED:/)],
      "Upstash-Forward-X-Open": ["open"],
    });
    expect(told.body[0].waiter).toEqual(shown.body[0]);
    expect(JSON.stringify([shown.body, told.body])).not.toContain("s3cret");
    expect(home.delivery().message.headers).toContainEqual(["X-Secret", "s3cret"]);
  });

  test("is told to whoever may publish only without what it was made of", async () => {
    const home = await createTestServer();
    const verbs = (of: string[]): Promise<Reply> => home.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs: of }) });
    const publishing = await verbs(["publish"]);
    const both = await verbs(["publish", "read"]);
    const told: unknown[] = [];
    for (const [token, path] of [
      [publishing, "paid"],
      [publishing, "wfr_2/paid"],
      [both, "paid"],
    ] as const) {
      const runId = `wfr_${told.length + 1}`;
      await waitingRun(home, runId);
      const { headers, body } = waiting(runId);
      const posted = { headers: { ...headers, "Upstash-Forward-Authorization": "Bearer s3cret" }, body };
      expect((await home.ask("POST", "/v2/wait/paid", posted)).status).toBe(200);
      const reply = await home.ask("POST", `/v2/notify/${path}`, { token: token.body.token });
      const known = [path === "paid" && token === publishing ? "" : runId, token === publishing ? "" : endpoint];
      expect(reply).toMatchObject({ status: 200, body: [{ workflowRunId: known[0], waiter: { url: known[1] } }] });
      told.push(reply.body[0].waiter.headers);
      home.delivery();
    }
    expect(told).toEqual([{}, {}, expect.objectContaining({ "Upstash-Forward-Authorization": ["Bearer s3cret"] })]);
  });

  test("is shown with the headers of the request, and ends with a notification", async () => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    expect(await wait(home, "wfr_1")).toMatchObject({ status: 200, body: { waits: true } });
    const shown = await home.ask("GET", "/v2/waiters/paid");
    expect(shown).toMatchObject({ status: 200, headers: { "content-type": "application/json; charset=utf-8" } });
    expect(shown.body).toEqual([
      {
        url: endpoint,
        headers: expect.objectContaining({ "Upstash-Workflow-Runid": ["wfr_1"], "Content-Type": ["application/json"] }),
        deadline: testTime / 1000 + 7 * 86_400,
        timeoutUrl: endpoint,
        timeoutHeaders: expect.objectContaining({ "Upstash-Workflow-Runid": ["wfr_1", "wfr_1"] }),
        workflowRunId: "wfr_1",
        eventId: "paid",
      },
    ]);
    expect(JSON.stringify(shown.body)).not.toMatch(/bearer|authorization/i);
    const reply = await home.ask("POST", "/v2/notify/paid", { body: "yes ✓" });
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
    expect(home.deliveries[0]?.message).toMatchObject({
      id: reply.body[0].messageId,
      url: endpoint,
      headers: expect.arrayContaining([
        ["Upstash-Workflow-Sdk-Version", "1"],
        ["Content-Type", "application/json"],
      ]),
    });
    expect(resultIn(home)).toEqual({
      stepId: 1,
      stepType: "Wait",
      stepName: "w",
      concurrent: 1,
      waitEventId: "paid",
      timeout: "7d",
      out: Buffer.from("yes ✓").toString("base64"),
      waitTimeout: false,
    });
    expect((await home.ask("GET", "/v2/waiters/paid")).body).toEqual([]);
    expect((await home.ask("POST", "/v2/notify/paid", { body: "again" })).body).toEqual([]);
  });

  test("posted twice waits once", async () => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    await wait(home, "wfr_1");
    expect(await wait(home, "wfr_1")).toMatchObject({ status: 200, body: { waits: false } });
    expect((await home.ask("POST", "/v2/notify/paid")).body).toHaveLength(1);
  });

  test.each([
    ["0s", 0],
    [5, 5_000],
    ["0.5s", 500],
    ["1y", 365 * 86_400_000],
    ["366d", 366 * 86_400_000],
  ])("of %s ends by itself", async (timeout, millis) => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    expect((await wait(home, "wfr_1", "paid", { timeout, timeoutUrl: "https://app.example/late", timeoutBody: null })).status).toBe(200);
    home.clock.now = testTime + millis - 1;
    if (millis > 0) expect(await claimed(home)).toBe(0);
    home.clock.now++;
    expect(await claimed(home)).toBe(1);
    expect(home.deliveries[0]?.message.url).toBe("https://app.example/late");
    expect(resultIn(home)).toMatchObject({ waitTimeout: true, timeout: typeof timeout === "number" ? `${timeout}s` : timeout });
  });

  const claimed = async (home: TestServer): Promise<number> => {
    await home.store.execute("claim", { limit: 10 });
    return home.deliveries.length;
  };

  test("with a body of no time limits itself to a week", async () => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    await wait(home, "wfr_1", "paid", { timeout: undefined, timeoutUrl: undefined, timeoutHeaders: undefined });
    expect((await home.ask("GET", "/v2/waiters/paid")).body).toMatchObject([
      { deadline: testTime / 1000 + 7 * 86_400, timeoutUrl: endpoint, timeoutHeaders: {} },
    ]);
  });

  test("cannot be given its result in advance", async () => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    await wait(home, "wfr_1", "paid", {
      timeout: "0s",
      step: { stepId: 1, stepType: "Wait", stepName: "w", out: "forged", waitTimeout: false, concurrent: 1 },
    });
    await claimed(home);
    const result = resultIn(home);
    expect(result).toMatchObject({ waitTimeout: true });
    expect(result).not.toHaveProperty("out");
  });

  const refused: [what: string, change: Record<string, unknown>, status: number, error: RegExp][] = [
    ["no URL", { url: undefined }, 412, /^url: is missing/],
    ["a URL that is none", { url: "ftp://x" }, 412, /^url: /],
    ["a timeout URL that is none", { timeoutUrl: "x" }, 412, /^timeoutUrl: /],
    ["a time that is none", { timeout: "soon" }, 412, /^timeout: "soon" is not a duration/],
    ["a time that is no text", { timeout: {} }, 412, /^timeout: /],
    ["a negative time", { timeout: -1 }, 412, /^timeout: /],
    ["more than the longest time", { timeout: "367d" }, 412, /^timeout: .*limit/],
    ["more than anybody lives", { timeout: "101y" }, 412, /^timeout: /],
    ["no step", { step: undefined }, 412, /^step: /],
    ["a plan", { stepId: 0 }, 412, /^step\.stepId: must be at least 1/],
    ["a step that is named by a text", { stepId: "1" }, 412, /^step\.stepId: /],
    ["headers that are none", { timeoutHeaders: { a: 1 } }, 412, /^timeoutHeaders/],
    ["headers that HTTP cannot carry", { timeoutHeaders: { "Upstash-Forward-A": ["a\r\nb: c"] } }, 412, /^timeoutHeaders: .*cannot carry/],
    ["too many headers", { timeoutHeaders: { a: ["x".repeat(70_000)] } }, 412, /^timeoutHeaders: .*limit is 65536/],
    [
      "a prototype",
      { ["__proto__x"]: 1, step: JSON.parse('{"__proto__":{},"stepId":1,"stepName":"s","stepType":"Wait"}') },
      412,
      /__proto__/,
    ],
  ];

  test.each(refused)("is refused with %s", async (_, change, status, error) => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    expect(await wait(home, "wfr_1", "paid", change)).toMatchObject({ status, body: { error: expect.stringMatching(error) } });
    expect((await home.ask("GET", "/v2/waiters/paid")).body).toEqual([]);
  });

  test.each(["", "[]", "null", "{", '"text"', Buffer.from([0xff])])("is refused with a body that is no JSON object: %o", async (body) => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    const { headers } = waiting("wfr_1");
    expect(await home.ask("POST", "/v2/wait/paid", { headers, body })).toMatchObject({
      status: 412,
      body: { error: expect.stringMatching(/^body: /) },
    });
  });

  test("is refused with 400 for runs that have ended, are unknown, or of others, and without the name of one", async () => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    await home.ask("DELETE", "/v2/workflows/runs/wfr_1?cancel=false");
    await waitingRun(home, "theirs", { as: "acc_2" });
    for (const runId of ["wfr_1", "nobody", "theirs"])
      expect(await wait(home, runId)).toMatchObject({ status: 400, body: { error: expect.stringContaining(`no run "${runId}"`) } });
    const { body } = waiting("wfr_1");
    expect(await home.ask("POST", "/v2/wait/paid", { body })).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/^workflow-runid: missing/) },
    });
    const two = { "svc-workflow-runid": "a", "upstash-workflow-runid": "b" };
    expect(await home.ask("POST", "/v2/wait/paid", { body, headers: two })).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/^workflow-runid: given twice/) },
    });
  });

  test("never shows the token", async () => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    const { headers, body } = waiting("wfr_1");
    await home.ask("POST", "/v2/wait/paid", { headers: { ...headers, "upstash-forward-x": `Bearer ${token}`, cookie: "c" }, body });
    const text = JSON.stringify((await home.ask("GET", "/v2/waiters/paid")).body);
    expect(text).not.toContain(token);
    expect(text).not.toMatch(/cookie/i);
  });
});

describe("names of events", () => {
  test.each(["a/b", "ünïcödé 🎉", "x".repeat(512), "100%", "a?b#c", " "])("%s is one", async (event) => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    expect((await wait(home, "wfr_1", event)).status).toBe(200);
    const path = encodeURIComponent(event);
    expect((await home.ask("GET", `/v2/waiters/${path}`)).body).toHaveLength(1);
    expect((await home.ask("POST", `/v2/notify/wfr_1/${path}`, { body: "e" })).body).toMatchObject([{ workflowRunId: "wfr_1" }]);
    expect(resultIn(home)).toMatchObject({ waitEventId: event });
  });

  test.each(["\u0000", "\ud800", "a\udfffb", ""])("no part of a path can be %j", (text) => {
    expect(() => checkSegment("eventId", text)).toThrow(/^eventId: .*is not possible/);
  });

  test.each(["a%00b", "%0a", "x".repeat(513), "%ed%b0%80", "%zz"])("%s is none", async (event) => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    for (const [method, url] of [
      ["POST", `/v2/wait/${event}`],
      ["POST", `/v2/notify/${event}`],
      ["POST", `/v2/notify/wfr_1/${event}`],
      ["POST", `/v2/notify/${event}/paid`],
      ["GET", `/v2/waiters/${event}`],
    ] as const) {
      const reply = await home.ask(method, url, method === "GET" ? {} : waiting("wfr_1"));
      const status = url.startsWith("/v2/wait/") ? 412 : 400;
      expect([url, reply.status, reply.body.error]).toEqual([url, status, expect.stringMatching(/^(eventId|workflowRunId|path): /)]);
    }
  });
});

describe("notifying", () => {
  test("reaches all that wait in all runs of the account, and in no other", async () => {
    const home = await createTestServer();
    for (let n = 0; n < 120; n++) {
      await waitingRun(home, `r${n}`);
      await wait(home, `r${n}`, n === 7 ? "other" : "paid");
    }
    await waitingRun(home, "theirs", { as: "acc_2" });
    await home.ask("POST", "/v2/wait/paid", { ...waiting("theirs"), token: otherToken });
    const reply = await home.ask("POST", "/v2/notify/paid", { body: "x" });
    expect(reply.status).toBe(200);
    expect(reply.headers).not.toHaveProperty("waypost-more");
    expect(reply.body.map(({ workflowRunId }: { workflowRunId: string }) => workflowRunId)).toEqual(
      Array.from({ length: 120 }, (_, n) => `r${n}`).filter((id) => id !== "r7"),
    );
    expect((await home.ask("GET", "/v2/waiters/paid", { token: otherToken })).body).toHaveLength(1);
    expect((await home.ask("POST", "/v2/notify/nothing")).body).toEqual([]);
  });

  test("says where more wait than one request can tell", { tags: "long" }, async () => {
    const home = await createTestServer();
    const body = Buffer.alloc(8 * 1024 * 1024, "a");
    const most = (256 * 1024 * 1024) / body.length;
    for (let n = 0; n < most + 1; n++) {
      await waitingRun(home, `r${n}`, { delay: null });
      await wait(home, `r${n}`);
    }
    const lists = [];
    for (let n = 0; n < 2; n++) {
      const { headers, body: told } = await home.ask("POST", "/v2/notify/paid", { body });
      lists.push([told.length, headers["waypost-more"]]);
      home.deliveries.splice(0);
    }
    expect(lists).toEqual([
      [most, "true"],
      [1, undefined],
    ]);
  });

  test("one run keeps what it does not wait for yet, the oldest first", async () => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    for (const body of ["first", "second"])
      expect(await home.ask("POST", "/v2/notify/wfr_1/paid", { body })).toMatchObject({ status: 200, body: [{ workflowRunId: "wfr_1" }] });
    expect((await home.ask("POST", "/v2/notify/paid", { body: "lost" })).body).toEqual([]);
    expect((await wait(home, "wfr_1", "paid", { stepId: 1 })).body).toEqual({ waits: false });
    expect((await wait(home, "wfr_1", "paid", { stepId: 2 })).body).toEqual({ waits: false });
    expect((await wait(home, "wfr_1", "paid", { stepId: 3 })).body).toEqual({ waits: true });
    expect(
      takeHistories(home)
        .at(-1)
        ?.slice(1)
        .map((text) => atob(JSON.parse(text).out)),
    ).toEqual(["first", "second"]);
  });

  test("one run that has ended, is unknown, or of others is 404", async () => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    await home.ask("DELETE", "/v2/workflows/runs/wfr_1");
    await waitingRun(home, "theirs", { as: "acc_2" });
    for (const runId of ["wfr_1", "nobody", "theirs"])
      expect(await home.ask("POST", `/v2/notify/${runId}/paid`, { body: "x" })).toMatchObject({
        status: 404,
        body: { error: expect.stringContaining(runId) },
      });
  });

  test("a run that does not listen keeps 1,000 events", async () => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    for (let n = 0; n < 1_000; n++)
      await home.store.execute("notify", { account: "acc_1", event: `e${n % 7}`, body: Buffer.from("x"), runId: "wfr_1", kind: "event" });
    expect(await home.ask("POST", "/v2/notify/wfr_1/paid", { body: "x" })).toMatchObject({
      status: 412,
      body: { error: expect.stringContaining("1000") },
    });
    expect((await wait(home, "wfr_1", "e3")).body).toEqual({ waits: false });
    expect((await home.ask("POST", "/v2/notify/wfr_1/paid", { body: "x" })).status).toBe(200);
  });

  test("with more than a message can hold is 413", async () => {
    const home = await createTestServer();
    await waitingRun(home, "wfr_1");
    const body = Buffer.alloc(8 * 1024 * 1024 + 1);
    for (const path of ["/v2/notify/paid", "/v2/notify/wfr_1/paid"]) expect((await home.ask("POST", path, { body })).status).toBe(413);
  });
});
