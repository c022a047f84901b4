import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import type { PublishResult } from "../../../core/commands/publish.ts";
import { readPublishRequest } from "../../publishing/read.ts";
import { makeResultHeaders } from "../../http/rateLimitHeaders.ts";
import { makePublishWarnings } from "../../publishing/refusedHosts.ts";
import { route } from "../../route/route.ts";
import { readScope } from "../../route/scope.ts";
import { triggerSettings } from "../../publishing/trigger.ts";
import { batchBody, readItems } from "../messages/batch.ts";
import { publishing } from "../messages/publish.ts";

const triggeredSchema = z.object({
  workflowRunId: z.string().describe("The id of the run: the one that was given, or a new one."),
  workflowCreatedAt: z
    .int()
    .describe("When it was started, in unix milliseconds. With the id it names one run, among all that had that id."),
  deduplicated: z
    .literal(true)
    .optional()
    .describe("A run of this id has not ended, and none was started. The time is that of the older one."),
});

const triggerOne = route({
  method: "POST",
  path: "/v2/trigger/{destination}",
  operation: "publish",
  unaudited: "it publishes, which the log of messages tells",
  tag: "Workflows",
  summary: "Start a workflow run",
  about:
    "Starts a run of the workflow at the URL, as its client would do. The rest of the path, and the query without the parameters of this interface, are the URL; the body is the payload. The settings hold for all messages of the run, a delay for the first one. The header Svc-Workflow-RunId chooses the id of the run; the published client puts wfr_ before the id that it is given. When the run fails, the workflow itself is told of it, or the Failure-Callback. With Workflow-Unknown-Sdk: true the workflow is asked to start the run itself, once more. What is delivered has the names of the published clients; those of the neutral brand as well, where this request uses them.",
  settings: publishing.settings,
  runSettings: triggerSettings,
  needs: "publish",
  looksAtScope: true,
  body: publishing.body,
  answers: { 200: { about: "The run, which exists from now on.", schema: triggeredSchema } },
  refusals: ["limit-exceeded", "day-limit-exceeded", "storage-quota-exceeded", "forbidden"],
  handle: async ({ account, incoming, context }) => {
    const { store } = context;
    const destination = incoming.target.path.slice("/v2/trigger/".length);
    const { input, ignored } = await readPublishRequest(incoming, { destination, account: account.id, store, purpose: "triggers" });
    const [result] = await store.execute("publish", { account: account.id, inputs: [input], ...readScope(incoming) });
    const results = result ? [result] : [];
    const headers = makeResultHeaders(results, makePublishWarnings({ incoming, context }, [input], results));
    return { status: 200, body: triggeredJson(result), ignored, headers };
  },
});

const triggerMany = route({
  method: "POST",
  path: "/v2/batch/trigger",
  operation: "publish",
  unaudited: "it publishes, which the log of messages tells",
  tag: "Workflows",
  summary: "Start many workflow runs",
  about: "Starts a run for each item of the list, or none at all when one of them is refused.",
  needs: "publish",
  looksAtScope: true,
  body: batchBody,
  answers: { 201: { about: "The runs, in the order of the list.", schema: z.array(triggeredSchema) } },
  refusals: ["limit-exceeded", "day-limit-exceeded", "storage-quota-exceeded", "forbidden"],
  handle: async ({ account, incoming, context }) => {
    const { read, ignored } = await readItems(incoming, { account, context, purpose: "triggers" });
    const inputs = read.flatMap((one) => (one instanceof Refusal ? [] : [one]));
    const results =
      inputs.length === 0 ? [] : await context.store.execute("publish", { account: account.id, inputs, ...readScope(incoming) });
    const warnings = makePublishWarnings({ incoming, context }, inputs, results);
    return { status: 201, body: results.map(triggeredJson), ignored, headers: makeResultHeaders(results, warnings) };
  },
});

/** Starting workflow runs without their client. */
export const trigger = [triggerOne, triggerMany];

/** The answer for a run. Throws `Refusal` when it was refused. */
function triggeredJson(result: PublishResult | undefined): z.output<typeof triggeredSchema> {
  if (result && "refused" in result) throw new Refusal(result.refused, result.message, { remainingQuota: result.remainingQuota });
  if (!result || "each" in result || !result.run) throw new Error("trigger: no run was started");
  const { run, deduplicated } = result;
  return { workflowRunId: run.runId, workflowCreatedAt: run.createdAt, ...(deduplicated ? { deduplicated: true as const } : {}) };
}
