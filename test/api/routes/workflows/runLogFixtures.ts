import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { InvokerPost } from "../../../../src/engine/core/model/runPost.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import { bytes } from "../../../engine/core/commandRunner.ts";
import type { TestServer } from "../../testServer.ts";
import { testTime } from "../../testServer.ts";
import { workflowResponse, endpoint, modernFeatures, start } from "./workflow.ts";

/** The headers of a run, as its log shows them. */
export const versioned = { "Upstash-Workflow-Sdk-Version": ["1"] };
/** The retries and headers of a step, as the log shows them. */
export const settings = { retries: 3, headers: versioned };

/** Returns all runs from the log. */
export const readRunLog = async ({ ask }: TestServer, query = "") =>
  (await ask("GET", `/v2/workflows/logs${query}`)).body.runs;
/** Returns the step groups of the newest run. */
export const readSteps = async (testServer: TestServer, query = "") =>
  (await readRunLog(testServer, query))[0].steps;

/** Removes and returns the delivery of this message. */
function takeDelivery({ deliveries }: TestServer, id: string): Delivery {
  const index = deliveries.findIndex(({ message }) => message.id === id);
  const [delivery] = index < 0 ? [] : deliveries.splice(index, 1);
  if (!delivery) throw new Error(`no delivery of ${id}`);
  return delivery;
}

/** Ends the delivery of a message, by default with the response of a workflow endpoint. */
export const settleStep = (
  testServer: TestServer,
  id: string,
  outcome: Parameters<TestServer["settle"]>[1] = workflowResponse,
): Promise<void> => testServer.settle(takeDelivery(testServer, id), outcome);

/** Finishes a run as its endpoint does. */
export const finish = ({ store }: TestServer, runId: string, result = '"done"') =>
  store.execute("finishRun", { account: "acc_1", runId, body: bytes(result) });

/** Claims the messages that are due. */
export const claimDue = ({ store }: TestServer) => store.execute("claim", { limit: 100 });

/** Returns the first group of a log. */
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
      endedAt: createdAt,
      ...settings,
    },
  ],
});

/**
 * Returns a group of one step, by default a step that has its result. A step that has a result ended when it
 * was accepted, unless `fields` says otherwise.
 */
export function makeSingleGroup(fields: Record<string, unknown>) {
  const { createdAt = testTime, state = "STEP_SUCCESS" } = fields;
  const end = state === "STEP_SUCCESS" ? { endedAt: createdAt } : {};
  return {
    type: "sequential",
    steps: [{ callType: "step", concurrent: 1, state, createdAt, ...end, ...settings, ...fields }],
  };
}

/** Starts a run that another run waits for. */
export function startInvoked(
  testServer: TestServer,
  runId: string,
  { step: invoking, ...more }: Partial<MessageInput> & { step: InvokerPost["step"] },
): Promise<string> {
  const url = `${endpoint}/child`;
  const invoker = { runId: "parent", createdAt: testTime, url: endpoint, headers: [], step: invoking };
  const kind = {
    kind: "start" as const,
    runId,
    url,
    features: modernFeatures,
    origin: "sdk" as const,
    invoker,
  };
  const headers = [
    ["Upstash-Workflow-Sdk-Version", "1"],
    ["X-Child", "c"],
  ] as const;
  return start(testServer, runId, { url, headers, post: kind, ...more });
}
