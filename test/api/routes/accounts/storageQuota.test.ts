import { beforeEach, expect, test } from "vitest";
import { createStorageTask } from "../../../../src/engine/upkeep/weighStorage.ts";
import type { TestServer } from "../../testServer.ts";
import { createTestServer, operatorPassword } from "../../testServer.ts";
import { workflowResponse, endpoint, start } from "../workflows/workflow.ts";

let server: TestServer;
beforeEach(async () => {
  server = await createTestServer();
});

const operator = { authorization: `Basic ${Buffer.from(`operator:${operatorPassword}`).toString("base64")}` };
const holder = { authorization: `Basic ${Buffer.from("acc_1:pass").toString("base64")}` };
const limit = (storageBytes: number | string | null) =>
  server.ask("PATCH", "/v2/admin/accounts/acc_1", {
    token: null,
    headers: operator,
    body: JSON.stringify({ limits: { storageBytes } }),
  });
const record = async () =>
  (await server.ask("GET", "/v2/admin/accounts/acc_1", { token: null, headers: operator })).body;

/** Runs the check of the storage quotas that the server does every 10 s. */
const look = (): Promise<void> => {
  server.clock.now += 10_000;
  return createStorageTask({
    store: server.store,
    clock: { now: () => server.clock.now, sleep: async () => undefined },
  }).run();
};

const to = "/v2/publish/https://e.example/";
const full = new RegExp(
  "^(message 1 of 2: )?storage: \\d+ bytes stored exceed this account's limit of 70000; .* " +
    '"waypost account limits acc_1 --storage-bytes <n>"$',
);

/** Creates a dead letter that takes the account above its quota. */
async function filled(bytes = 60_000): Promise<string> {
  await limit(70_000);
  await server.ask("POST", to, { headers: { "svc-retries": "0" } });
  await server.settle(server.delivery(), { status: 500, body: Buffer.alloc(bytes) });
  await look();
  return (await server.ask("GET", "/v2/dlq")).body.messages[0].dlqId;
}

test("the operator sets the quota, and the account record shows its use", async () => {
  expect((await record()).limits.storageBytes).toBe(500_000_000_000_000);
  expect(await limit(2_000)).toMatchObject({
    status: 200,
    body: { limits: { storageBytes: 2_000 }, ownLimits: ["storageBytes"] },
  });
  await server.ask("POST", to, { body: "x".repeat(500) });
  const { storedBytes } = await record();
  expect(storedBytes).toBeGreaterThan(700);
  const shown = { storage_bytes: storedBytes, max_storage_bytes: 2_000 };
  const list = await server.ask("GET", "/v2/admin/accounts", { token: null, headers: operator });
  expect(list.body.accounts.find(({ id }: { id: string }) => id === "acc_1")).toMatchObject({ storedBytes });
  for (const path of ["user/acc_1", "stats/acc_1"])
    expect(await server.ask("GET", `/v2/svc/${path}`, { token: null, headers: holder })).toMatchObject({
      status: 200,
      body: shown,
    });
});

test("above the quota every way to publish is refused with 429 and Retry-After", async () => {
  const dlqId = await filled();
  const asked: [string, string, Parameters<TestServer["ask"]>[2]?][] = [
    ["POST", to, { body: "x" }],
    ["POST", "/v2/enqueue/q/https://e.example/", { body: "x" }],
    [
      "POST",
      "/v2/batch",
      {
        body: JSON.stringify([{ destination: "https://e.example/" }, { destination: "https://e.example/" }]),
      },
    ],
    ["POST", "/v2/schedules/https://e.example/", { headers: { "svc-cron": "0 0 1 1 *" } }],
    ["POST", to, { headers: { "svc-cron": "0 0 1 1 *" } }],
    ["POST", "/v2/trigger/https://e.example/"],
    [
      "POST",
      "/v2/topics/g/endpoints",
      { body: JSON.stringify({ endpoints: [{ url: "https://e.example/" }] }) },
    ],
    ["POST", `/v2/dlq/retry/${dlqId}`],
    ["POST", "/v2/dlq/retry"],
  ];
  for (const [method, path, more] of asked)
    expect(await server.ask(method, path, more), path).toMatchObject({
      status: 429,
      body: { error: expect.stringMatching(full) },
      headers: { "retry-after": "1" },
    });
  expect(server.deliveries).toEqual([]);
});

test("a refusal for storage does not show the daily quota, or clients would wait for midnight", async () => {
  await filled();
  const limits = { storageBytes: 70_000, requestsPerDay: 1_000, requestsPerDayHard: 1_000 };
  await server.ask("PATCH", "/v2/admin/accounts/acc_1", {
    token: null,
    headers: operator,
    body: JSON.stringify({ limits }),
  });
  const { status, headers } = await server.ask("POST", to, { body: "x" });
  expect([status, headers["retry-after"], headers["ratelimit-limit"]]).toEqual([429, "1", undefined]);
});

test("a call to a source is refused so that the sender retries, and its owner sees the reason", async () => {
  const source = (
    await server.ask("POST", "/v2/sources", { body: '{"destination":"https://e.example","name":"s"}' })
  ).body;
  await filled();
  const path = new URL(source.url).pathname;
  expect(await server.ask("POST", path, { token: null, body: "x" })).toMatchObject({ status: 503 });
  const { body } = await server.ask("GET", `/v2/sources/${source.sourceId}/rejections`);
  expect(JSON.stringify(body)).toContain("storage: ");
});

test("accepted messages are delivered, and deleting dead letters makes room again", async () => {
  await server.ask("POST", to, { body: "before" });
  const before = server.delivery();
  const dlqId = await filled();
  await server.settle(before, { status: 200 });
  expect((await server.ask("GET", "/v2/logs")).body.events).toEqual(
    expect.arrayContaining([expect.objectContaining({ messageId: before.message.id, state: "DELIVERED" })]),
  );
  expect((await server.ask("DELETE", `/v2/dlq/${dlqId}`)).status).toBe(200);
  expect((await server.ask("POST", to, { body: "x" })).status).toBe(429);
  await look();
  expect((await server.ask("POST", to, { body: "x" })).status).toBe(200);
});

test("above 125 % of the quota, steps, events and webhook calls get 429 until there is room", async () => {
  await start(server, "wfr_1");
  await server.settle(server.delivery(), workflowResponse);
  const headers = {
    "Upstash-Workflow-Init": "false",
    "Upstash-Workflow-RunId": "wfr_1",
    "Upstash-Workflow-Url": endpoint,
  };
  const step = JSON.stringify({ stepId: 1, stepName: "s", stepType: "Run", concurrent: 1, out: "1" });
  const statuses = async (): Promise<number[]> => [
    (await server.ask("POST", `/v2/publish/${endpoint}`, { headers, body: step })).status,
    (await server.ask("POST", "/v2/notify/wfr_1/paid", { body: "x" })).status,
    (await server.ask("POST", "/v2/workflows/hooks/acc_1/wfr_1/evt_1", { token: null, body: "x" })).status,
  ];
  const dlqId = await filled(90_000);
  expect(await statuses()).toEqual([429, 429, 429]);
  expect((await server.ask("DELETE", `/v2/dlq/${dlqId}`)).status).toBe(200);
  await look();
  expect(await statuses()).toEqual([200, 200, 200]);
});

test("a raised quota applies at once", async () => {
  await filled();
  await limit(1_000_000);
  expect((await server.ask("POST", to, { body: "x" })).status).toBe(200);
  await limit(70_000);
  await look();
  await limit(null);
  expect((await server.ask("POST", to, { body: "x" })).status).toBe(200);
});

test("an account is refused only for its own use", async () => {
  await filled();
  expect((await server.ask("POST", to, { token: "b3RoZXI=", body: "x" })).status).toBe(200);
});
