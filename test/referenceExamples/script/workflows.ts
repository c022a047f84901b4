import type { Author } from "../../recording/workflows.ts";
import { headersOfRun, ran, startAuthor } from "../../recording/workflows.ts";
import type { Recorder } from "../recorder.ts";

/** Runs. */
export async function showRuns(recorder: Recorder): Promise<void> {
  const author = await startAuthor(recorder.session, "runs", { brand: "Svc", label: "order" });
  const path = { workflowRunId: "order-1001" };
  await recorder.show(author, "POST /v2/trigger/{destination}", {
    path: { destination: author.endpoint },
    headers: { "Svc-Workflow-RunId": "order-1001", "Svc-Label": "orders" },
    body: { item: "tea" },
  });
  await author.called(1);
  await author.post("order-1001", [{ body: ran(1, "charge") }]);
  await author.called(2);
  await recorder.show(author, "POST /v2/batch/trigger", {
    body: [1002, 1003].map((number) => ({
      destination: author.endpoint,
      headers: { "Svc-Workflow-RunId": `order-${number}`, "Svc-Delay": "1h" },
      body: { item: "milk" },
    })),
  });
  const query = { workflowRunId: "order-1001" };
  for (const list of ["runs", "logs", "events", "messageLogs"])
    await recorder.show(author, `GET /v2/workflows/${list}`, { query });
  await recorder.show(author, "GET /v2/workflows/runs/{workflowRunId}", { path });
  await recorder.show(author, "GET /v2/workflows/runs/{workflowRunId}/status", { path });
  await recorder.show(author, "POST /v2/workflows/runs/{workflowRunId}/run-on/{call}", {
    path: { ...path, call: "msg_7YoJxFpwk.0.k3J9fQ" },
    body: { stepId: 2, stepName: "ship", stepType: "Run", out: '"tomorrow"', concurrent: 1 },
  });
  await recorder.show(author, "DELETE /v2/workflows/runs/{workflowRunId}", { path });
  await recorder.show(author, "DELETE /v2/workflows/runs", { body: { workflowUrl: author.endpoint } });
}

type Waiting = { eventId: string; stepId: number; stepType?: string };

function makeWait({ brand, endpoint }: Author, { eventId, stepId, stepType = "Wait" }: Waiting) {
  const { "content-type": _json, ...headers } = headersOfRun(brand, "order-1001", endpoint);
  return {
    path: { eventId },
    headers: { ...headers, [`${brand}-Workflow-CallType`]: "step" },
    body: { url: endpoint, timeout: "1d", step: { stepId, stepName: "shipped", stepType, concurrent: 1 } },
  };
}

/** Events. */
export async function showEvents(recorder: Recorder): Promise<void> {
  const author = await startAuthor(recorder.session, "events", { brand: "Svc", label: "order" });
  await author.begin("order-1001");
  await author.called(1);
  await recorder.show(
    author,
    "POST /v2/wait/{eventId}",
    makeWait(author, { eventId: "shipped-1001", stepId: 1 }),
  );
  await recorder.show(author, "GET /v2/waiters");
  await recorder.show(author, "GET /v2/waiters/{eventId}", { path: { eventId: "shipped-1001" } });
  await recorder.show(author, "POST /v2/notify/{eventId}", {
    path: { eventId: "shipped-1001" },
    body: { at: "noon" },
  });
  await author.called(2);
  await recorder.show(author, "POST /v2/notify/{workflowRunId}/{eventId}", {
    path: { workflowRunId: "order-1001", eventId: "returned-1001" },
    body: { reason: "broken" },
  });
}

/** Hooks of runs: URLs that other systems call. */
export async function showHooks(recorder: Recorder): Promise<void> {
  const author = await startAuthor(recorder.session, "hooks", { brand: "Svc", label: "order" });
  const { UserID: userId } = JSON.parse(atob(author.account.token)) as { UserID: string };
  await author.begin("order-1001");
  await author.called(1);
  let stepId = 0;
  for (const method of ["POST", "GET", "PUT", "PATCH", "DELETE"]) {
    const eventId = "evt_paid";
    const { path, headers, body } = makeWait(author, {
      eventId,
      stepId: ++stepId,
      stepType: "WaitForWebhook",
    });
    await author.json(`POST /v2/wait/${path.eventId}`, body, { headers });
    await recorder.show(author, `${method} /v2/workflows/hooks/{userId}/{workflowRunId}/{eventId}`, {
      path: { userId, workflowRunId: "order-1001", eventId },
      ...(method !== "GET" && { body: { paid: true } }),
    });
    await author.called(stepId + 1);
  }
}

/** Failed runs. */
export async function showFailedRuns(recorder: Recorder): Promise<void> {
  const author = await startAuthor(recorder.session, "failed", {
    brand: "Svc",
    kind: "workflow-489",
    label: "order",
  });
  const letters = new Map<string, string>();
  for (const [run, kind] of [
    ["order-1001", "workflow"],
    ["order-1002", "workflow"],
    ["order-1003", "workflow"],
    ["order-1004", "workflow"],
    ["order-1005", "workflow"],
    ["order-1006", "workflow"],
    ["order-1007", "500"],
    ["order-1008", "held"],
  ] as const) {
    await author.begin(run, {
      "Svc-Label": run,
      "Svc-Failure-Callback": author.url(kind, "failed"),
      "Svc-Failure-Callback-Retries": "0",
    });
    const state = { workflow: "SUCCESS", 500: "FAIL", held: "INPROGRESS" }[kind];
    const { json } = await author.eventually(
      `/v2/workflows/dlq?workflowRunId=${run}`,
      ({ messages }) => messages?.[0]?.failureCallbackInfo?.state === `CALLBACK_${state}`,
    );
    letters.set(run, json.messages[0].dlqId as string);
  }
  const letter = (number: number) => ({ path: { dlqId: letters.get(`order-${number}`) ?? "" } });
  const label = (number: number) => ({ query: { label: `order-${number}` } });
  await recorder.show(author, "GET /v2/workflows/dlq", label(1001));
  await recorder.show(author, "GET /v2/workflows/dlq/groups");
  await recorder.show(author, "GET /v2/workflows/dlq/{dlqId}", letter(1001));
  await recorder.show(author, "POST /v2/workflows/dlq/callback/{dlqId}", letter(1007));
  await recorder.show(author, "DELETE /v2/workflows/dlq/callback/{dlqId}", letter(1008));
  await recorder.show(author, "POST /v2/workflows/dlq/resume/{dlqId}", letter(1001));
  await recorder.show(author, "POST /v2/workflows/dlq/resume", label(1002));
  await recorder.show(author, "POST /v2/workflows/dlq/restart/{dlqId}", letter(1003));
  await recorder.show(author, "POST /v2/workflows/dlq/restart", label(1004));
  await recorder.show(author, "DELETE /v2/workflows/dlq/{dlqId}", letter(1005));
  await recorder.show(author, "DELETE /v2/workflows/dlq", label(1006));
}
