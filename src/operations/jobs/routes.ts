import { z } from "zod";
import { retentionFor } from "../../engine/core/accounts/retention.ts";
import { bulkActionNames } from "../../engine/core/bulk/entries.ts";
import { isId } from "../../engine/core/values/ids.ts";
import type { BulkActionName } from "../../engine/core/bulk/entries.ts";
import type { GroupChange } from "../../engine/core/deadLetters/groupChange.ts";
import { assertVerb } from "../../engine/core/model/rights.ts";
import type { PatchOperation } from "../../engine/core/values/jsonPatch.ts";
import { maxPatchOperations } from "../../engine/core/values/jsonPatch.ts";
import { assertUrl } from "../../api/http/target.ts";
import { readDeliveryHeaders } from "../../api/routes/deadLetters/deadLetterReplay.ts";
import type { IncomingRequest } from "../../api/route/route.ts";
import { readScope } from "../../api/route/scope.ts";
import { headersSchema } from "../../api/settings/forwardedHeaders.ts";
import { limits } from "../../engine/core/values/limits.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { readActor } from "../../api/route/actor.ts";
import { readObject } from "../../api/route/readObject.ts";
import { route } from "../../api/route/route.ts";
import { toJson } from "../../api/fields/field.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import { jobFields } from "./fields.ts";
import { toKeptFilter } from "./job.ts";
import { countJobEntries, findLastJobId, jobDryRunSchema, readJobFilter } from "./filter.ts";

const tag = "Jobs";
const maxRate = 1_000;
const maxCanary = 100;

const byJobId = z.object({ jobId: z.string().describe("The id of the job.") });

const wholeNumber = (max: number) =>
  z.int("is not a whole number").min(1, "must be at least 1").max(max, `must be at most ${max}`);

const changeSchema = z.strictObject({
  url: z.string("is not a string").optional().describe("The new destination URL."),
  headers: headersSchema
    .optional()
    .describe(
      "Headers of the delivery, with a value or a list of values for each name. They replace those of the " +
        "same name.",
    ),
  jsonPatch: z
    .array(
      z.strictObject({
        op: z.enum(["add", "replace", "remove", "test"], { error: "must be add, replace, remove or test" }),
        path: z
          .string("is not a string")
          .max(1_000, "is longer than 1000 characters")
          .describe("A JSON pointer."),
        value: z.unknown().optional().describe("The value of add, replace and test."),
      }),
    )
    .max(maxPatchOperations, `has more than ${maxPatchOperations} operations`)
    .optional()
    .describe("A JSON patch of the body (RFC 6902), without copy and move."),
});

const requestSchema = z.strictObject({
  action: z
    .enum(bulkActionNames, { error: `must be one of ${bulkActionNames.join(", ")}` })
    .describe("The action to do with each entry."),
  filter: z
    .record(z.string(), z.unknown(), "is not a JSON object")
    .describe(
      "The entries: the filters of the same action without a job, as fields with a value or a list of " +
        'values. {} means all. With the action dlq.delete, source: "workflow" selects failed runs.',
    ),
  dryRun: z
    .boolean("is neither true nor false")
    .optional()
    .describe("true: create no job, count the entries."),
  last: z
    .string("is not a string")
    .optional()
    .describe(
      "The newest entry that the job may have: the field last of a dry run with the same filter. Default: " +
        "all entries that exist when the job is created.",
    ),
  rate: wholeNumber(maxRate)
    .optional()
    .describe(`The maximum number of entries per second, from 1 to ${maxRate}. Default: no limit.`),
  change: changeSchema
    .optional()
    .describe(
      "What changes in each message before it is sent again. Only for dlq.retry. Messages that it does not " +
        "fit fail, and stay dead letters. A token needs the verb read in addition to manage.",
    ),
  canary: wholeNumber(maxCanary)
    .optional()
    .describe(
      `The number of entries, from 1 to ${maxCanary}, that must succeed before the others are handled: ` +
        "their messages delivered, or their runs successful. Only for dlq.retry, runs.resume and " +
        "runs.restart. Default: all entries are handled at once.",
    ),
});

const create = route({
  method: "POST",
  path: "/v2/jobs",
  tag,
  summary: "Start a bulk action",
  about:
    "Starts a job, which does one action with all entries that match a filter, in the background. The job " +
    "handles only entries that exist when it is created, each once, also if a server fails meanwhile. An " +
    `account has at most ${limits.jobs} jobs; a new one replaces the oldest that has ended.`,
  body: {
    about: "The action, and the entries to do it with.",
    contentType: "application/json",
    schema: requestSchema,
    required: true,
    maxBytes: 1024 * 1024,
  },
  answers: {
    200: { about: "With dryRun: true, the number of entries.", schema: jobDryRunSchema },
    201: { about: "The job was created.", schema: z.object({ jobId: z.string().describe("Its id.") }) },
  },
  refusals: ["limit-exceeded"],
  handle: async ({ account, incoming, context }) => {
    const {
      action,
      filter,
      dryRun,
      rate = null,
      canary = null,
      ...given
    } = readObject(requestSchema, incoming);
    if (canary !== null && action !== "dlq.retry" && action !== "runs.resume" && action !== "runs.restart")
      throw new Refusal("invalid", `canary: not valid for ${action}; remove it`);
    const change = given.change && readChange(action, given.change, incoming);
    const selection = readJobFilter(action, filter);
    if (dryRun) return { status: 200, body: await countJobEntries(context, account.id, selection) };
    const last = await findLastJobId(context, account.id, { action, last: given.last });
    const range = { account: account.id, limit: 2 * limits.jobs };
    const known = (await context.store.read.jobs(range)).map(({ id }) => id);
    const job = await context.store.execute("createJob", {
      ...toKeptFilter(selection, change),
      ...(change && { change }),
      account: account.id,
      startedBy: readActor({ access: "token" }, incoming),
      last,
      rate,
      canary,
      known,
      logRetention: retentionFor(account, context.retention).log,
    });
    context.wakeJobs?.();
    return { status: 201, body: { jobId: job.id } };
  },
});

const list = route({
  method: "GET",
  path: "/v2/jobs",
  tag,
  summary: "List jobs",
  answers: {
    200: {
      about: "The jobs, the newest first.",
      schema: z.object({ jobs: z.array(toSchema(jobFields)).describe("The jobs of the account.") }),
    },
  },
  refusals: [],
  handle: async ({ account, context }) => {
    const range = { account: account.id, descending: true, limit: 2 * limits.jobs };
    const jobs = await context.store.read.jobs(range);
    return { status: 200, body: { jobs: jobs.map((job) => toJson(jobFields, job)) } };
  },
});

const get = route({
  method: "GET",
  path: "/v2/jobs/{jobId}",
  tag,
  summary: "Read a job",
  params: byJobId,
  answers: { 200: { about: "The job.", schema: toSchema(jobFields) } },
  refusals: ["not-found"],
  handle: async ({ account, params: { jobId }, context }) => {
    const job = isId(jobId) ? await context.store.read.job(account.id, jobId) : null;
    if (!job) throw makeNotFound(jobId);
    return { status: 200, body: toJson(jobFields, job) };
  },
});

const stop = route({
  method: "DELETE",
  path: "/v2/jobs/{jobId}",
  tag,
  summary: "Stop a job",
  about:
    "Stops a job after the entries that it is handling. The other entries stay as they are. A job that has " +
    "ended does not change.",
  params: byJobId,
  answers: { 200: { about: "The job.", schema: toSchema(jobFields) } },
  refusals: ["not-found"],
  handle: async ({ account, params: { jobId }, incoming, context }) => {
    const stoppedBy = readActor({ access: "token" }, incoming);
    const answer = isId(jobId)
      ? await context.store.execute("stopJob", { account: account.id, id: jobId, stoppedBy })
      : null;
    if (!answer) throw makeNotFound(jobId);
    return { status: 200, body: toJson(jobFields, answer.job) };
  },
});

/** Returns the change of a request. Throws `Refusal` if it is invalid, or if the token may not make it. */
function readChange(
  action: BulkActionName,
  { url, headers, jsonPatch }: z.output<typeof changeSchema>,
  incoming: IncomingRequest,
): GroupChange {
  if (action !== "dlq.retry") throw new Refusal("invalid", `change: not valid for ${action}; remove it`);
  const { scope } = readScope(incoming);
  if (scope) assertVerb(scope, "read", " to send dead letters with changes");
  if (url !== undefined) assertUrl("change.url", url);
  return {
    ...(url !== undefined && { url }),
    ...(headers && { headers: readDeliveryHeaders(headers) }),
    ...(jsonPatch && { jsonPatch: jsonPatch.map(toOperation) }),
  };
}

type GivenOperation = { op: PatchOperation["op"]; path: string; value?: unknown };

function toOperation({ op, path, value }: GivenOperation): PatchOperation {
  if (op === "remove") return { op, path };
  if (value === undefined) throw new Refusal("invalid", `change.jsonPatch: ${op} has no value`);
  return { op, path, value };
}

const makeNotFound = (jobId: string): Refusal =>
  new Refusal("not-found", `jobId: there is no job ${JSON.stringify(jobId.slice(0, 200))}`);

/** The routes of jobs. */
export const routes = [create, list, get, stop];
