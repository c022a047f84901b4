import { expect, test } from "vitest";
import { failRunAndRead } from "../routes/lists/failedRunLists.ts";
import { createTestServer } from "../testServer.ts";
import type { TestServer, Reply } from "../testServer.ts";
import { workflowResponse, endpoint, start } from "../routes/workflows/workflow.ts";

const hook = (server: TestServer, runId: string): Promise<Reply> =>
  server.ask("POST", `/v2/workflows/hooks/acc_1/${runId}/evt`, { body: "called", token: null });
const notify = (server: TestServer, runId: string): Promise<Reply> =>
  server.ask("POST", `/v2/notify/${runId}/evt`, { body: "told" });

async function wait(server: TestServer, runId: string, stepType: "Wait" | "WaitForWebhook"): Promise<void> {
  const step = { stepId: 1, stepType, stepName: "w", concurrent: 1 };
  const body = JSON.stringify({ url: endpoint, timeout: "7d", timeoutUrl: endpoint, step });
  const reply = await server.ask("POST", "/v2/wait/evt", {
    headers: { "upstash-workflow-runid": runId },
    body,
  });
  expect(reply).toMatchObject({ status: 200, body: { waits: true } });
}

/**
 * Creates a run that has failed and was resumed, and another run that has its id now. Returns the id of the
 * run that resumed it.
 */
async function idGivenAgain(server: TestServer): Promise<string> {
  const dlqId = await failRunAndRead(server, "order-1");
  const { body } = await server.ask("POST", `/v2/workflows/dlq/resume/${dlqId}`);
  server.clock.now += 1_000;
  await server.settle(server.delivery(), workflowResponse);
  await start(server, "order-1");
  await server.settle(server.delivery(), workflowResponse);
  return body.workflowRunId;
}

test.each([
  ["a webhook", "WaitForWebhook", hook],
  ["an event", "Wait", notify],
] as const)(
  "%s of a resumed run reaches the run that resumed it, even if another run has its id now",
  async (_, stepType, tell) => {
    const server = await createTestServer();
    const resumed = await idGivenAgain(server);
    await wait(server, resumed, stepType);
    expect((await tell(server, "order-1")).status).toBe(200);
    const { message } = server.delivery();
    expect(message.run?.runId).toBe(resumed);
  },
);

test.each([
  ["a webhook", "WaitForWebhook", hook],
  ["an event", "Wait", notify],
] as const)(
  "%s is for the run with the id if both wait, and then for the other run",
  async (_, stepType, tell) => {
    const server = await createTestServer();
    const resumed = await idGivenAgain(server);
    await wait(server, resumed, stepType);
    await wait(server, "order-1", stepType);
    const told: (string | undefined)[] = [];
    for (let time = 0; time < 2; time++) {
      expect((await tell(server, "order-1")).status).toBe(200);
      told.push(server.delivery().message.run?.runId);
    }
    expect(told).toEqual(["order-1", resumed]);
  },
);

test("the run that resumed another is reached after the other run with its id has ended", async () => {
  const server = await createTestServer();
  const resumed = await idGivenAgain(server);
  await wait(server, resumed, "WaitForWebhook");
  await server.ask("DELETE", "/v2/workflows/runs/order-1?cancel=false");
  expect((await hook(server, "order-1")).status).toBe(200);
  expect(server.delivery().message.run?.runId).toBe(resumed);
});

test("the run that resumed another is found among many waiters for the same event", async () => {
  const server = await createTestServer();
  for (let n = 0; n < 105; n++) {
    await start(server, `a${n}`);
    await server.settle(server.delivery(), workflowResponse);
    await wait(server, `a${n}`, "Wait");
  }
  const resumed = await idGivenAgain(server);
  await wait(server, resumed, "Wait");
  expect((await notify(server, "order-1")).body).toMatchObject([
    { workflowRunId: resumed, messageId: expect.any(String) },
  ]);
});
