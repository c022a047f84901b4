import { z } from "zod";
import { retentionFor } from "../../engine/core/accounts/retention.ts";
import { bulkActionNames } from "../../engine/core/bulk/entries.ts";
import { isId } from "../../engine/core/values/ids.ts";
import { limits } from "../../engine/core/values/limits.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { dryRunSchema } from "../../api/publishing/dryRun.ts";
import { readActor } from "../../api/route/actor.ts";
import { readObject } from "../../api/route/readObject.ts";
import { route } from "../../api/route/route.ts";
import { toJson } from "../../api/fields/field.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import { jobFields } from "./fields.ts";
import { countJobEntries, findLastJobId, readJobFilter } from "./filter.ts";

const tag = "Jobs";
const maxRate = 1_000;
const maxCanary = 100;

const byJobId = z.object({ jobId: z.string().describe("The id of the job.") });

const wholeNumber = (max: number) =>
  z.int("is not a whole number").min(1, "must be at least 1").max(max, `must be at most ${max}`);

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
  rate: wholeNumber(maxRate)
    .optional()
    .describe(`The maximum number of entries per second, from 1 to ${maxRate}. Default: no limit.`),
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
    200: { about: "With dryRun: true, the number of entries.", schema: dryRunSchema },
    201: { about: "The job was created.", schema: z.object({ jobId: z.string().describe("Its id.") }) },
  },
  refusals: ["limit-exceeded"],
  handle: async ({ account, incoming, context }) => {
    const { action, filter, dryRun, rate = null, canary = null } = readObject(requestSchema, incoming);
    if (canary !== null && action !== "dlq.retry" && action !== "runs.resume" && action !== "runs.restart")
      throw new Refusal("invalid", `canary: not valid for ${action}; remove it`);
    const selection = readJobFilter(action, filter);
    if (dryRun) return { status: 200, body: await countJobEntries(context, account.id, selection) };
    const last = await findLastJobId(context, account.id, action);
    const range = { account: account.id, limit: 2 * limits.jobs };
    const known = (await context.store.read.jobs(range)).map(({ id }) => id);
    const job = await context.store.execute("createJob", {
      ...selection,
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

const makeNotFound = (jobId: string): Refusal =>
  new Refusal("not-found", `jobId: there is no job ${JSON.stringify(jobId.slice(0, 200))}`);

/** The routes of jobs. */
export const routes = [create, list, get, stop];
