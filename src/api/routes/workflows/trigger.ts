import { z } from "zod";
import { Refusal, toRefusal } from "../../../engine/core/values/errors.ts";
import type { PublishResult } from "../../../engine/core/commands/publish.ts";
import { readPublishRequest } from "../../publishing/read.ts";
import { makeResultHeaders } from "../../http/rateLimitHeaders.ts";
import { createMessageWarnings, makePublishWarnings, warningsAbout } from "../../publishing/refusedHosts.ts";
import { route } from "../../route/route.ts";
import { readScope } from "../../route/scope.ts";
import { triggerSettings } from "../../publishing/trigger.ts";
import { readItems } from "../messages/batch.ts";
import { batchBody } from "../messages/batchItems.ts";
import { publishing } from "../messages/publish.ts";

const triggeredSchema = z.object({
  workflowRunId: z.string().describe("The id of the run: the given one, or a new one."),
  workflowCreatedAt: z
    .int()
    .describe(
      "When the run was created, in Unix milliseconds. The id and this time together identify one run, " +
        "even if several runs have had the same id.",
    ),
  deduplicated: z
    .literal(true)
    .optional()
    .describe(
      "Present if no run was started because an active run has this id. The time is that of the active run.",
    ),
  warnings: z.array(z.string()).optional().describe(warningsAbout),
});

const triggerOne = route({
  method: "POST",
  path: "/v2/trigger/{destination}",
  operation: "publish",
  unaudited: "publishes a message, which the message log records",
  tag: "Workflows",
  summary: "Start a workflow run",
  about:
    "Starts a run of the workflow at the URL, as the workflow client would. The URL is the rest of the " +
    "path plus the query without the parameters of this API. The body is the payload of the run. The " +
    "settings apply to all messages of the run; a delay applies only to the first one. The header " +
    "Svc-Workflow-RunId chooses the id of the run. The published client puts wfr_ before the id that it " +
    "is given. If the run fails, the server calls the Failure-Callback or, without one, the workflow " +
    "itself. With Workflow-Unknown-Sdk: true, the first request asks the endpoint to start the run " +
    "itself. Deliveries have the header names that published clients expect, and also the Svc- names if " +
    "this request uses them.",
  settings: publishing.settings,
  runSettings: triggerSettings,
  needs: "publish",
  looksAtScope: true,
  body: publishing.body,
  answers: {
    200: { about: "The run that was started, or the active run that has this id.", schema: triggeredSchema },
  },
  refusals: ["limit-exceeded", "day-limit-exceeded", "storage-quota-exceeded", "disk-low", "forbidden"],
  handle: async ({ account, incoming, context }) => {
    const { store } = context;
    const destination = incoming.target.path.slice("/v2/trigger/".length);
    const { input, ignored } = await readPublishRequest(incoming, {
      destination,
      account: account.id,
      store,
      purpose: "triggers",
    });
    const [result] = await store.execute("publish", {
      account: account.id,
      inputs: [input],
      ...readScope(incoming),
    });
    const results = result ? [result] : [];
    const warnings = makePublishWarnings({ incoming, context }, [input], results);
    const warn = createMessageWarnings({ incoming, context }, warnings);
    return {
      status: 200,
      body: { ...triggeredJson(result), ...warn(input, input.url) },
      ignored,
      headers: makeResultHeaders(results, warnings),
    };
  },
});

const triggerMany = route({
  method: "POST",
  path: "/v2/batch/trigger",
  operation: "publish",
  unaudited: "publishes a message, which the message log records",
  tag: "Workflows",
  summary: "Start many workflow runs",
  about: "Starts one run per item. If any item is refused, no run is started.",
  needs: "publish",
  looksAtScope: true,
  body: batchBody,
  answers: { 201: { about: "The runs, in the order of the list.", schema: z.array(triggeredSchema) } },
  refusals: ["limit-exceeded", "day-limit-exceeded", "storage-quota-exceeded", "disk-low", "forbidden"],
  handle: async ({ account, incoming, context }) => {
    const { read, ignored } = await readItems(incoming, { account, context, purpose: "triggers" });
    const inputs = read.flatMap((one) => (one instanceof Refusal ? [] : [one]));
    const results =
      inputs.length === 0
        ? []
        : await context.store.execute("publish", { account: account.id, inputs, ...readScope(incoming) });
    const warnings = makePublishWarnings({ incoming, context }, inputs, results);
    const warn = createMessageWarnings({ incoming, context }, warnings);
    return {
      status: 201,
      body: results.map((result, at) => {
        const input = inputs[at];
        return { ...triggeredJson(result), ...(input && warn(input, input.url)) };
      }),
      ignored,
      headers: makeResultHeaders(results, warnings),
    };
  },
});

/** The routes that start workflow runs without the workflow client. */
export const trigger = [triggerOne, triggerMany];

/** Returns the response for a run. Throws `Refusal` if the run was refused. */
function triggeredJson(result: PublishResult | undefined): z.output<typeof triggeredSchema> {
  if (result && "refused" in result) throw toRefusal(result);
  if (!result || "each" in result || !result.run) throw new Error("trigger: no run was started");
  const { run, deduplicated } = result;
  return {
    workflowRunId: run.runId,
    workflowCreatedAt: run.createdAt,
    ...(deduplicated ? { deduplicated: true as const } : {}),
  };
}
