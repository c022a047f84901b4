import { z } from "zod";
import { maxGrouped, readFailureGroups } from "../lists/failedRunLists.ts";
import { cursorParameter, deadLetterFilters } from "../lists/filters.ts";
import { failureGroupFields } from "../../fields/failureGroup.ts";
import { toJson } from "../../fields/field.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { route } from "../../route/route.ts";
import { nextPage, toMessageFilter } from "./deadLetterSelection.ts";

/** Groups the dead letters of messages by destination, status and error. */
export const groupDeadLetters = route({
  method: "GET",
  path: "/v2/dlq/groups",
  tag: "Dead letter queue",
  summary: "Group dead letters",
  about:
    "Groups the messages that failed at the same URL with the same status and the same error. The largest " +
    `group comes first. One request groups the latest ${maxGrouped} dead letters that pass all filters; ` +
    "the cursor continues with older ones. If bodies are large, or if few dead letters pass the filters, " +
    "one request groups fewer. Failed workflow runs are not included; GET /v2/workflows/dlq/groups groups " +
    "them.",
  query: deadLetterFilters.extend({ cursor: cursorParameter }),
  answers: {
    200: {
      about: "The groups.",
      schema: z.object({
        groups: z.array(toSchema(failureGroupFields)).describe("The groups, the largest first."),
        entries: z.int().min(0).describe("The number of dead letters that this response groups."),
        more: z
          .literal(true)
          .optional()
          .describe(
            "There are older dead letters, which this response does not group. Absent if there are none.",
          ),
        cursor: nextPage,
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const { groups, entries, cursor } = await readFailureGroups(context, account.id, {
      filter: { ...toMessageFilter(query), belongsToRun: false },
      cursor: query.cursor,
    });
    const shown = groups.map((group) => toJson(failureGroupFields, group));
    return {
      status: 200,
      body: { groups: shown, entries, ...(cursor === null ? {} : { more: true, cursor }) },
    };
  },
});
