import { describe, expect, test } from "vitest";
import { failRunAndRead, start } from "../lists/failedRunLists.ts";
import { createTestServer } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";
import { endpoint } from "./workflow.ts";
import { sendBatch, startHeaders } from "./workflowPosts.ts";

/** Ids that no client can put into a path, with the reason that the refusal gives. */
const impossible = [
  ["order/123", 'contains "/"'],
  ["a\\b", 'contains "\\\\"'],
  ["a?b", 'contains "?"'],
  ["a#b", 'contains "#"'],
  ["50%", 'contains "%"'],
  ["a b", "contains white space"],
  ["a\u00a0b", "contains white space"],
  ["..", "is a relative path"],
  [".", "is a relative path"],
] as const;
const possible = ["user:1@x.com", "...", "a..b", "é日", "a+b", "(1)", "wfr_1", "~!$&'*,;="];

/** Every way to choose the id of a new run. */
const ways: readonly (readonly [
  name: string,
  choose: (server: TestServer, runId: string) => Promise<Reply>,
])[] = [
  [
    "trigger",
    ({ ask }, id) => ask("POST", `/v2/trigger/${endpoint}`, { headers: { "svc-workflow-runid": latin(id) } }),
  ],
  [
    "trigger by query",
    ({ ask }, id) => ask("POST", `/v2/trigger/${endpoint}?svc-workflow-runid=${encodeURIComponent(id)}`),
  ],
  [
    "many triggers",
    ({ ask }, id) =>
      ask("POST", "/v2/batch/trigger", {
        body: JSON.stringify([{ destination: endpoint, headers: { "Upstash-Workflow-RunId": id } }]),
      }),
  ],
  [
    "publish",
    ({ ask }, id) => ask("POST", `/v2/publish/${endpoint}`, { headers: startHeaders(latin(id)), body: "x" }),
  ],
  ["batch", (server, id) => sendBatch(server, [{ headers: startHeaders(id), body: "x" }])],
  [
    "resume",
    async (server, id) =>
      server.ask("POST", `/v2/workflows/dlq/resume/${await failRunAndRead(server, "old")}`, {
        headers: { "svc-workflow-runid": latin(id) },
      }),
  ],
  [
    "restart",
    async (server, id) =>
      server.ask("POST", `/v2/workflows/dlq/restart/${await failRunAndRead(server, "old")}`, {
        headers: { "svc-workflow-runid": latin(id) },
      }),
  ],
];

/** Returns text as Node.js passes it on from a header: each byte of the UTF-8 form as one character. */
const latin = (text: string): string => Buffer.from(text).toString("latin1");

describe.each(ways)("the id of a run, chosen by %s,", (_, choose) => {
  test.each(impossible)("is refused if no path can contain it: %j", async (runId, problem) => {
    const server = await createTestServer();
    const { status, body } = await choose(server, runId);
    expect(status).toBe(400);
    expect(body.error).toContain(`${JSON.stringify(runId)} ${problem}`);
    expect(body.error).toMatch(/^(message 1 of 1: )?(svc|upstash)-workflow-runid: /i);
    expect(await server.store.read.activeRun("acc_1", runId)).toBeNull();
  });

  test.each(possible)("is accepted unchanged: %j", async (runId) => {
    const server = await createTestServer();
    const { status } = await choose(server, runId);
    expect([200, 201]).toContain(status);
    expect(await server.store.read.activeRun("acc_1", runId)).not.toBeNull();
    const finished = await server.ask(
      "DELETE",
      `/v2/workflows/runs/${encodeURIComponent(runId)}?cancel=false`,
    );
    expect(finished).toMatchObject({ status: 200, body: { finished: true } });
  });
});

test("a run that invokes another run by an invalid id gets an error and does not wait forever", async () => {
  const server = await createTestServer();
  await sendBatch(server, [{ headers: startHeaders("parent"), body: "x" }]);
  const step = { stepId: 1, stepName: "inv", stepType: "Invoke", concurrent: 1 };
  const { status, body } = await server.ask("POST", `/v2/publish/${endpoint}`, {
    headers: startHeaders("a/b", { "upstash-workflow-invoke": "true" }),
    body: JSON.stringify({ body: "x", workflowRunId: "parent", workflowUrl: endpoint, step }),
  });
  expect([status, body.error]).toEqual([412, expect.stringContaining('"a/b" contains "/"')]);
});

test("a run that already has an invalid id still accepts steps", async () => {
  const server = await createTestServer();
  await start(server, "a/b");
  const body = JSON.stringify({ stepId: 1, stepName: "s", stepType: "Run", out: "1", concurrent: 1 });
  expect(
    (await sendBatch(server, [{ headers: startHeaders("a/b", { "upstash-workflow-init": "false" }), body }]))
      .status,
  ).toBe(200);
});
