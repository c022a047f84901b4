import { workflowResponse, endpoint, takeHistories, start } from "./workflow.ts";
import type { TestServer, Reply } from "../../testServer.ts";

/** Returns the headers and body of the request by which a client makes a step wait. */
export function waiting(runId: string, { stepId = 1, ...more }: Record<string, unknown> = {}) {
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
  const body = JSON.stringify({
    url: endpoint,
    timeout: "7d",
    timeoutUrl: endpoint,
    timeoutHeaders,
    step,
    ...more,
  });
  return { headers, body };
}

/** Makes a step of a run wait for an event, by default `paid`. */
export const wait = (
  server: TestServer,
  runId: string,
  { event = "paid", ...more }: Record<string, unknown> & { event?: string } = {},
): Promise<Reply> => server.ask("POST", `/v2/wait/${encodeURIComponent(event)}`, waiting(runId, more));

/** Starts a run whose first message is delivered. */
export async function waitingRun(
  server: TestServer,
  runId: string,
  more: Parameters<typeof start>[2] = {},
): Promise<void> {
  await start(server, runId, more);
  await server.settle(server.delivery(), workflowResponse);
}

/** Returns the result at this position of the history in the next delivery. */
export const resultIn = (server: TestServer, position = 1): Record<string, unknown> =>
  JSON.parse(takeHistories(server)[0]?.[position] ?? "null");
