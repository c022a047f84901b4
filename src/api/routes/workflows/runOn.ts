import { z } from "zod";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { parseStepHead } from "../../../engine/core/model/run.ts";
import type { RunOnRequest, StepHead } from "../../../engine/core/model/runPost.ts";
import type { Bytes } from "../../../engine/core/values/basics.ts";
import { readJson } from "../../http/json.ts";
import { route } from "../../route/route.ts";
import { readScope } from "../../route/scope.ts";
import { parseSegment } from "../../settings/segment.ts";
import { parseRunOn, runOnRule } from "../../settings/workflow.ts";

/** The route that stores a step after which its endpoint continues in the same call. */
export const runOnInCall = route({
  method: "POST",
  path: "/v2/workflows/runs/{workflowRunId}/run-on/{call}",
  operation: "step",
  onFastPath: true,
  unaudited: "stores a step, which the history of the run shows",
  needs: "publish",
  looksAtScope: true,
  tag: "Workflow runs",
  summary: "Store a step and run on",
  about:
    "Stores the result of a step if its endpoint may continue with the next step in the same call. " +
    "Otherwise nothing is stored, and the endpoint posts the step to /v2/batch. An endpoint uses this " +
    "request after a response of /v2/batch had `runOn` in the same call. The client of the run must keep " +
    "the settings of the start (WF_TriggerOnConfig).",
  params: z.object({
    workflowRunId: z.string().describe("The id of the run."),
    call: z
      .string()
      .describe(
        "The call: the id of its message, its attempt (Retried), and the id that the endpoint has made for " +
          "it, separated by periods, as in Workflow-Run-On.",
      ),
  }),
  body: {
    about: "The step, as in the body of a message of /v2/batch.",
    contentType: "application/json",
    schema: z.looseObject({}),
    required: true,
    maxBytes: { messages: 1 },
  },
  answers: {
    200: {
      about: "Whether the step is stored.",
      schema: z.object({
        runOn: z
          .boolean()
          .describe("true: the step is stored, and the endpoint continues. false: nothing is stored."),
      }),
    },
  },
  refusals: ["forbidden"],
  handle: async ({ account, params, incoming, context: { store } }) => {
    const { body } = incoming;
    const step = {
      runId: parseSegment("workflowRunId", params.workflowRunId),
      runOn: readCall(params.call),
      ...{ head: readHead(body), body },
    };
    const answer = await store.execute("runOnStep", { account: account.id, ...step, ...readScope(incoming) });
    return { status: 200, body: answer };
  },
});

function readCall(text: string): RunOnRequest {
  const call = parseRunOn(text);
  if (call) return call;
  throw new Refusal("invalid", `call: ${runOnRule}`);
}

function readHead(body: Bytes): StepHead {
  const head = parseStepHead(readJson(body));
  if (head) return head;
  throw new Refusal("invalid", "body: is not a step of a run; give a step as the client posts it");
}
