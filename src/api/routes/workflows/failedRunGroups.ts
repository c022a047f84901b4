import { z } from "zod";
import {
  failedRunFilters,
  maxGrouped,
  readFailureGroups,
  toFailedRunFilter,
} from "../lists/failedRunLists.ts";
import { cursorParameter } from "../lists/filters.ts";
import { omitMissing } from "../../views/messages.ts";
import { route } from "../../route/route.ts";
import { failedRunsTag, nextPage } from "./failedRunEntries.ts";

const groupSchema = z.object({
  workflowUrl: z.string().describe("The URL of the workflow."),
  stepName: z
    .string()
    .optional()
    .describe("The name of the step that failed. Absent if neither the endpoint nor the message names it."),
  afterStep: z
    .string()
    .optional()
    .describe("The name of the last step before the failure. Present only if stepName is unknown."),
  error: z
    .string()
    .describe("The error. The parts that differ between runs (numbers, ids, quoted texts) appear as …"),
  count: z.int().min(1).describe("The number of failed runs in the group."),
  firstFailedAt: z.int().describe("When the first run of the group failed, in Unix milliseconds."),
  lastFailedAt: z.int().describe("When the latest run of the group failed, in Unix milliseconds."),
  dlqId: z.string().describe("The id of the latest failed run of the group in the dead letter queue."),
});

/** Groups failed runs by workflow, step and error. */
export const groupFailedRuns = route({
  method: "GET",
  path: "/v2/workflows/dlq/groups",
  tag: failedRunsTag,
  summary: "Group failed workflow runs",
  about:
    "Groups the runs of the same workflow that failed at the same step with the same error. The largest " +
    `group comes first. One request groups the latest ${maxGrouped} runs that pass all filters; the ` +
    "cursor continues with older runs. If bodies are large, or if few runs pass the filters, one request " +
    "groups fewer runs.",
  query: failedRunFilters.extend({ cursor: cursorParameter }),
  answers: {
    200: {
      about: "The groups.",
      schema: z.object({
        groups: z.array(groupSchema).describe("The groups, the largest first."),
        entries: z.int().min(0).describe("The number of failed runs that this response groups."),
        more: z
          .literal(true)
          .optional()
          .describe(
            "There are older failed runs, which this response does not group. Absent if there are none.",
          ),
        cursor: nextPage,
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const { groups, entries, cursor } = await readFailureGroups(context, account.id, {
      filter: toFailedRunFilter(query),
      cursor: query.cursor,
    });
    const shown = groups.map(({ url, firstAt, lastAt, ...rest }) =>
      omitMissing({ ...rest, workflowUrl: url, firstFailedAt: firstAt, lastFailedAt: lastAt }),
    );
    return {
      status: 200,
      body: { groups: shown, entries, ...(cursor === null ? {} : { more: true, cursor }) },
    };
  },
});
