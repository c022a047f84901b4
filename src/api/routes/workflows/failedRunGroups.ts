import { z } from "zod";
import {
  failedRunFilters,
  maxGrouped,
  readFailureGroups,
  toFailedRunFilter,
} from "../lists/failedRunLists.ts";
import { cursorParameter } from "../lists/filters.ts";
import { failedRunGroupFields } from "../../fields/failureGroup.ts";
import { toJson } from "../../fields/field.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { route } from "../../route/route.ts";
import { failedRunsTag, nextPage } from "./failedRunEntries.ts";

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
        groups: z.array(toSchema(failedRunGroupFields)).describe("The groups, the largest first."),
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
    const shown = groups.map((group) => toJson(failedRunGroupFields, group));
    return {
      status: 200,
      body: { groups: shown, entries, ...(cursor === null ? {} : { more: true, cursor }) },
    };
  },
});
