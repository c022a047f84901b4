import { z } from "zod";
import { maxGrouped, readFailureGroups } from "../lists/failedRunLists.ts";
import { cursorParameter, deadLetterFilters } from "../lists/filters.ts";
import { omitMissing } from "../../views/messages.ts";
import { route } from "../../route/route.ts";
import { nextPage, toMessageFilter } from "./deadLetterSelection.ts";

const groupSchema = z.object({
  url: z.string().describe("The destination URL of the messages."),
  responseStatus: z
    .int()
    .optional()
    .describe("The HTTP status of the last responses. Absent if there was none; error gives the reason."),
  error: z
    .string()
    .describe("The error. The parts that differ between messages (numbers, ids, quoted texts) appear as …"),
  count: z.int().min(1).describe("The number of dead letters in the group."),
  firstFailedAt: z.int().describe("When the first message of the group failed, in Unix milliseconds."),
  lastFailedAt: z.int().describe("When the latest message of the group failed, in Unix milliseconds."),
  dlqId: z.string().describe("The id of the latest dead letter of the group."),
});

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
        groups: z.array(groupSchema).describe("The groups, the largest first."),
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
    const shown = groups.map(({ url, status, error, count, firstAt, lastAt, dlqId }) =>
      omitMissing({
        url,
        responseStatus: status,
        error,
        count,
        firstFailedAt: firstAt,
        lastFailedAt: lastAt,
        dlqId,
      }),
    );
    return {
      status: 200,
      body: { groups: shown, entries, ...(cursor === null ? {} : { more: true, cursor }) },
    };
  },
});
