import type { Delivery, InvokerPost, Letter } from "../../../../src/core/model/message.ts";
import { bytes } from "../../../core/broker.ts";
import type { House } from "../../house.ts";
import { at } from "../../house.ts";
import { answersAsWorkflow, endpoint, modern, start } from "./workflow.ts";

/** Headers of a run, and how its messages are sent, as its log shows them. */
export const versioned = { "Upstash-Workflow-Sdk-Version": ["1"] };
export const settings = { retries: 3, headers: versioned };

/** All runs, as they are shown. */
export const logs = async ({ ask }: House, query = "") => (await ask("GET", `/v2/workflows/logs${query}`)).body.runs;
/** The groups of the newest one. */
export const stepsOf = async (home: House, query = "") => (await logs(home, query))[0].steps;

/** The delivery of this message, which may be one of several. */
function taken({ deliveries }: House, id: string): Delivery {
  const index = deliveries.findIndex(({ message }) => message.id === id);
  const [delivery] = index < 0 ? [] : deliveries.splice(index, 1);
  if (!delivery) throw new Error(`no delivery of ${id}`);
  return delivery;
}

/** Ends the delivery of a message; of a call to the endpoint with what clients answer. */
export const answer = (home: House, id: string, outcome: Parameters<House["settle"]>[1] = answersAsWorkflow): Promise<void> =>
  home.settle(taken(home, id), outcome);

/** Ends a run as its endpoint does. */
export const finish = ({ store }: House, runId: string, result = '"done"') =>
  store.execute("finishRun", { account: "acc_1", runId, body: bytes(result) });

/** Sends what has fallen due. */
export const due = ({ store }: House) => store.execute("claim", { limit: 100 });

/** The first group of a log. */
export const initial = (messageId: string, createdAt = at) => ({
  type: "sequential",
  steps: [
    {
      ...{ stepName: "init", stepType: "Initial", callType: "step", messageId, out: "payload", concurrent: 1 },
      ...{ state: "STEP_SUCCESS", createdAt, ...settings },
    },
  ],
});

/** A group of one step that has its result, unless told otherwise. */
export const single = (fields: Record<string, unknown>) => ({
  type: "sequential",
  steps: [{ callType: "step", concurrent: 1, state: "STEP_SUCCESS", createdAt: at, ...settings, ...fields }],
});

/** What a step posts that waits for an event. */
export const waitFor = (event: string, stepId: number) => ({
  ...{ kind: "event" as const, event, url: endpoint, headers: [], given: [], timeout: "1h", wait: 3_600_000 },
  ...{ timeoutUrl: endpoint, timeoutHeaders: [], timeoutGiven: [] },
  step: { stepId, stepName: "w", stepType: "Wait", concurrent: 1 },
});

/** Starts a run that another one waits for. */
export function invoke(
  home: House,
  runId: string,
  { step: invoking, ...more }: Partial<Letter> & { step: InvokerPost["step"] },
): Promise<string> {
  const url = `${endpoint}/child`;
  const invoker = { runId: "parent", createdAt: at, url: endpoint, headers: [], step: invoking };
  const kind = { kind: "start" as const, runId, url, features: modern, origin: "sdk" as const, invoker };
  const headers = [
    ["Upstash-Workflow-Sdk-Version", "1"],
    ["X-Child", "c"],
  ] as const;
  return start(home, runId, { url, headers, post: kind, ...more });
}
