import type { Delivery, InvokerPost, MessageInput } from "../../../../src/core/model/message.ts";
import { bytes } from "../../../core/commandRunner.ts";
import type { TestServer } from "../../testServer.ts";
import { testTime } from "../../testServer.ts";
import { workflowResponse, endpoint, modernFeatures, start } from "./workflow.ts";

/** Headers of a run, and how its messages are sent, as its log shows them. */
export const versioned = { "Upstash-Workflow-Sdk-Version": ["1"] };
export const settings = { retries: 3, headers: versioned };

/** All runs, as they are shown. */
export const readRunLog = async ({ ask }: TestServer, query = "") => (await ask("GET", `/v2/workflows/logs${query}`)).body.runs;
/** The groups of the newest one. */
export const readSteps = async (testServer: TestServer, query = "") => (await readRunLog(testServer, query))[0].steps;

/** The delivery of this message, which may be one of several. */
function takeDelivery({ deliveries }: TestServer, id: string): Delivery {
  const index = deliveries.findIndex(({ message }) => message.id === id);
  const [delivery] = index < 0 ? [] : deliveries.splice(index, 1);
  if (!delivery) throw new Error(`no delivery of ${id}`);
  return delivery;
}

/** Ends the delivery of a message; of a call to the endpoint with what clients answer. */
export const settleStep = (
  testServer: TestServer,
  id: string,
  outcome: Parameters<TestServer["settle"]>[1] = workflowResponse,
): Promise<void> => testServer.settle(takeDelivery(testServer, id), outcome);

/** Ends a run as its endpoint does. */
export const finish = ({ store }: TestServer, runId: string, result = '"done"') =>
  store.execute("finishRun", { account: "acc_1", runId, body: bytes(result) });

/** Sends what has fallen due. */
export const claimDue = ({ store }: TestServer) => store.execute("claim", { limit: 100 });

/** The first group of a log. */
export const makeInitialGroup = (messageId: string, createdAt = testTime) => ({
  type: "sequential",
  steps: [
    {
      stepName: "init",
      stepType: "Initial",
      callType: "step",
      messageId,
      out: "payload",
      concurrent: 1,
      state: "STEP_SUCCESS",
      createdAt,
      ...settings,
    },
  ],
});

/** A group of one step that has its result, unless told otherwise. */
export const makeSingleGroup = (fields: Record<string, unknown>) => ({
  type: "sequential",
  steps: [{ callType: "step", concurrent: 1, state: "STEP_SUCCESS", createdAt: testTime, ...settings, ...fields }],
});

/** Starts a run that another one waits for. */
export function startInvoked(
  testServer: TestServer,
  runId: string,
  { step: invoking, ...more }: Partial<MessageInput> & { step: InvokerPost["step"] },
): Promise<string> {
  const url = `${endpoint}/child`;
  const invoker = { runId: "parent", createdAt: testTime, url: endpoint, headers: [], step: invoking };
  const kind = { kind: "start" as const, runId, url, features: modernFeatures, origin: "sdk" as const, invoker };
  const headers = [
    ["Upstash-Workflow-Sdk-Version", "1"],
    ["X-Child", "c"],
  ] as const;
  return start(testServer, runId, { url, headers, post: kind, ...more });
}
