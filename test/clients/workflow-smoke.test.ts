import { once } from "node:events";
import { createServer } from "node:http";
import type { IncomingMessage } from "node:http";
import { Client as QueueClient } from "@upstash/qstash";
import { Client, serve } from "@upstash/workflow";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { House, Newcomer } from "./house.ts";
import { eventually, startHouse } from "./house.ts";

let house: House;
beforeAll(async () => void (house = await startHouse("SQLite")));
afterAll(() => house.close());

type Handler = (request: Request) => Promise<Response>;

/** Serves a workflow, and counts its calls. */
async function startEndpoint(handlerAt: (url: string) => Handler): Promise<{ url: string; calls(): number }> {
  let calls = 0;
  let handler: Handler = async () => new Response(null, { status: 500 });
  const server = createServer((request, response) => {
    calls++;
    void answer(handler, request, `${url}${request.url ?? "/"}`).then(async (answered) => {
      response.writeHead(answered.status, Object.fromEntries(answered.headers)).end(Buffer.from(await answered.arrayBuffer()));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  const address = server.address();
  const url = `http://127.0.0.1:${address && typeof address === "object" ? address.port : 0}`;
  handler = handlerAt(`${url}/order`);
  return { url: `${url}/order`, calls: () => calls };
}

async function answer(handler: Handler, request: IncomingMessage, url: string): Promise<Response> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const headers = Object.entries(request.headers).map(([name, value]): [string, string] => [name, String(value)]);
  return handler(new Request(url, { method: "POST", headers, body: Buffer.concat(chunks) }));
}

/** Whether the history of a run is there: only until it has ended. */
const statusOf = async ({ url, token }: Newcomer, runId: string): Promise<number> => {
  const path = `${url}/v2/workflows/runs/${encodeURIComponent(runId)}`;
  return (await fetch(path, { headers: { authorization: `Bearer ${token}` } })).status;
};

type Ended = { results: unknown[]; headers: (string | null)[]; labels: (string | undefined)[]; runId: string };

/** A workflow of two steps with a nap between, which notes what it came to. */
async function startWorkflow({ url, token }: Newcomer) {
  const ended: Ended = { results: [], headers: [], labels: [], runId: "" };
  const qstashClient = new QueueClient({ baseUrl: url, token, retry: false });
  const endpoint = await startEndpoint((at) => {
    const { handler } = serve<string>(
      async (context) => {
        ended.headers.push(context.headers.get("x-mine"));
        ended.labels.push(context.label);
        ended.runId = context.workflowRunId;
        const payload = context.requestPayload;
        const first = await context.run("first", async () => `${payload} 1`);
        await context.sleep("nap", 1);
        const second = await context.run("second", async () => `${first} 2`);
        ended.results.push(second);
        return second;
      },
      { qstashClient, url: at, env: {}, disableTelemetry: true },
    );
    return handler;
  });
  return { ...endpoint, ended, client: new Client({ baseUrl: url, token, retry: false }) };
}

test("a workflow of the published client comes through, with the headers and the label of its trigger", async () => {
  const newcomer = house.newcomer();
  const { client, url, ended, calls } = await startWorkflow(newcomer);
  const { workflowRunId } = await client.trigger({
    url,
    body: "payload",
    headers: { "x-mine": "a" },
    label: "blue",
    workflowRunId: "meiné 1",
  });
  expect(workflowRunId).toBe("wfr_meiné 1");
  await eventually(
    async () => ended.results,
    ({ length }) => length > 0,
  );
  expect(ended.results).toEqual(["payload 1 2"]);
  expect(new Set(ended.headers)).toEqual(new Set(["a"]));
  expect(new Set(ended.labels)).toEqual(new Set(["blue"]));
  expect(calls()).toBe(4);
  // Once it has ended, its history is not served any more.
  expect(
    await eventually(
      () => statusOf(newcomer, workflowRunId),
      (status) => status !== 200,
    ),
  ).toBe(404);
});

test("so does one that was triggered without a client, and one whose client is not known", async () => {
  const newcomer = house.newcomer();
  const { url, ended, calls } = await startWorkflow(newcomer);
  const headers = { authorization: `Bearer ${newcomer.token}`, "upstash-forward-x-mine": "b" };
  const trigger = (more: Record<string, string>) =>
    fetch(`${newcomer.url}/v2/trigger/${url}`, { method: "POST", headers: { ...headers, ...more }, body: "rest" });
  const plain = await trigger({ "upstash-label": "green" });
  expect(await plain.json()).toEqual({ workflowRunId: expect.stringMatching(/^wfr_/), workflowCreatedAt: expect.any(Number) });
  await eventually(
    async () => ended.results,
    ({ length }) => length > 0,
  );
  expect(ended.results).toEqual(["rest 1 2"]);
  expect(new Set(ended.labels)).toEqual(new Set(["green"]));
  expect(calls()).toBe(4);
  const unknown = await trigger({
    "upstash-workflow-unknown-sdk": "true",
    "upstash-workflow-runid": Buffer.from("日本").toString("latin1"),
  });
  expect(await unknown.json()).toMatchObject({ workflowRunId: "日本" });
  await eventually(
    async () => ended.results,
    ({ length }) => length > 1,
  );
  expect(ended.results).toEqual(["rest 1 2", "rest 1 2"]);
  expect(calls()).toBe(9);
  expect(
    await eventually(
      () => statusOf(newcomer, "日本"),
      (status) => status !== 200,
    ),
  ).toBe(404);
});

test("a plain publish starts it as well", async () => {
  const newcomer = house.newcomer();
  const { url, ended, calls } = await startWorkflow(newcomer);
  await newcomer.client.publish({ url, body: "plain", headers: { "x-mine": "c" } });
  await eventually(
    async () => ended.results,
    ({ length }) => length > 0,
  );
  expect(ended.results).toEqual(["plain 1 2"]);
  expect(new Set(ended.headers)).toEqual(new Set(["c"]));
  expect(calls()).toBe(5);
  expect(
    await eventually(
      () => statusOf(newcomer, ended.runId),
      (status) => status !== 200,
    ),
  ).toBe(404);
});
