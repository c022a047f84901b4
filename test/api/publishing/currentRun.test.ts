import { expect, test } from "vitest";
import { failRunAndRead } from "../routes/lists/failedRunLists.ts";
import { createTestServer } from "../testServer.ts";
import type { TestServer, Reply } from "../testServer.ts";
import { workflowResponse, endpoint, start } from "../routes/workflows/workflow.ts";

const hook = (home: TestServer, runId: string): Promise<Reply> =>
  home.ask("POST", `/v2/workflows/hooks/acc_1/${runId}/evt`, { body: "called", token: null });
const notify = (home: TestServer, runId: string): Promise<Reply> =>
  home.ask("POST", `/v2/notify/${runId}/evt`, { body: "told" });

async function wait(home: TestServer, runId: string, stepType: "Wait" | "WaitForWebhook"): Promise<void> {
  const step = { stepId: 1, stepType, stepName: "w", concurrent: 1 };
  const body = JSON.stringify({ url: endpoint, timeout: "7d", timeoutUrl: endpoint, step });
  const reply = await home.ask("POST", "/v2/wait/evt", {
    headers: { "upstash-workflow-runid": runId },
    body,
  });
  expect(reply).toMatchObject({ status: 200, body: { waits: true } });
}

/**
 * Creates a run that has failed and was resumed, and another run that has its id now. Returns the id of the
 * run that resumed it.
 */
async function idGivenAgain(home: TestServer): Promise<string> {
  const dlqId = await failRunAndRead(home, "order-1");
  const { body } = await home.ask("POST", `/v2/workflows/dlq/resume/${dlqId}`);
  home.clock.now += 1_000;
  await home.settle(home.delivery(), workflowResponse);
  await start(home, "order-1");
  await home.settle(home.delivery(), workflowResponse);
  return body.workflowRunId;
}

test.each([
  ["a webhook", "WaitForWebhook", hook],
  ["an event", "Wait", notify],
] as const)(
  "%s of a resumed run reaches the run that resumed it, even if another run has its id now",
  async (_, stepType, tell) => {
    const home = await createTestServer();
    const resumed = await idGivenAgain(home);
    await wait(home, resumed, stepType);
    expect((await tell(home, "order-1")).status).toBe(200);
    const { message } = home.delivery();
    expect(message.run?.runId).toBe(resumed);
  },
);

test.each([
  ["a webhook", "WaitForWebhook", hook],
  ["an event", "Wait", notify],
] as const)(
  "%s is for the run with the id if both wait, and then for the other run",
  async (_, stepType, tell) => {
    const home = await createTestServer();
    const resumed = await idGivenAgain(home);
    await wait(home, resumed, stepType);
    await wait(home, "order-1", stepType);
    const told: (string | undefined)[] = [];
    for (let time = 0; time < 2; time++) {
      expect((await tell(home, "order-1")).status).toBe(200);
      told.push(home.delivery().message.run?.runId);
    }
    expect(told).toEqual(["order-1", resumed]);
  },
);

test("the run that resumed another is reached after the other run with its id has ended", async () => {
  const home = await createTestServer();
  const resumed = await idGivenAgain(home);
  await wait(home, resumed, "WaitForWebhook");
  await home.ask("DELETE", "/v2/workflows/runs/order-1?cancel=false");
  expect((await hook(home, "order-1")).status).toBe(200);
  expect(home.delivery().message.run?.runId).toBe(resumed);
});

test("the run that resumed another is found among many waiters for the same event", async () => {
  const home = await createTestServer();
  for (let n = 0; n < 105; n++) {
    await start(home, `a${n}`);
    await home.settle(home.delivery(), workflowResponse);
    await wait(home, `a${n}`, "Wait");
  }
  const resumed = await idGivenAgain(home);
  await wait(home, resumed, "Wait");
  expect((await notify(home, "order-1")).body).toMatchObject([
    { workflowRunId: resumed, messageId: expect.any(String) },
  ]);
});
