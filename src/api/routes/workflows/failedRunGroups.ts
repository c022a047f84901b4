import { z } from "zod";
import { readIdTime } from "../../../core/values/ids.ts";
import { groupFailures } from "../../../core/workflows/failureGroups.ts";
import { memory } from "../../../core/values/limits.ts";
import type { AccountId } from "../../../core/model/message.ts";
import { findFailedStep, formatFailure } from "../../../core/model/failureText.ts";
import type { DeadLetterEntry } from "../../../store/queries/deadLetters.ts";
import { readEntries, toFailedRunFilter, failedRunFilters } from "../lists/failedRunLists.ts";
import { cursorParameter } from "../lists/filters.ts";
import { omitMissing } from "../../views/messages.ts";
import type { RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import type { FailedRunSelection } from "./failedRunEntries.ts";
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

/**
 * The maximum number of failed runs that one request groups. Reading also stops when the bodies exceed
 * `memory.page`.
 */
const maxGrouped = 1_000;

/** Groups failed runs by workflow, step and error. */
export const groupFailedRuns = route({
  method: "GET",
  path: "/v2/workflows/dlq/groups",
  tag: failedRunsTag,
  summary: "Group failed workflow runs",
  about:
    "Groups the runs of the same workflow that failed at the same step with the same error. The largest " +
    `group comes first. One request groups the latest ${maxGrouped} runs that pass all filters; the ` +
    "cursor continues with older runs. If bodies are large, one request groups fewer runs.",
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
    const { entries, cursor } = await readLatestFailures(context, account.id, query);
    const shown = groupFailures(entries).map(({ url, firstAt, lastAt, ...rest }) =>
      omitMissing({ ...rest, workflowUrl: url, firstFailedAt: firstAt, lastFailedAt: lastAt }),
    );
    return {
      status: 200,
      body: { groups: shown, entries: entries.length, ...(cursor === null ? {} : { more: true, cursor }) },
    };
  },
});

/** Returns the latest failures that pass the filters. Only one page of bodies is in memory at a time. */
async function readLatestFailures(context: RouteContext, account: AccountId, query: FailedRunSelection) {
  const filter = toFailedRunFilter(query);
  const entries: ReturnType<typeof toFailure>[] = [];
  let cursor = query.cursor ?? null;
  let bytes = 0;
  do {
    const page = await readEntries(context, account, { filter, order: "latestFirst", cursor, count: 100 });
    for (const entry of page.entries) {
      bytes +=
        entry.deadLetter.body.byteLength +
        entry.message.body.byteLength +
        (entry.failed?.payload.byteLength ?? 0);
      entries.push(toFailure(entry));
    }
    ({ cursor } = page);
  } while (cursor !== null && entries.length < maxGrouped && bytes < memory.page);
  return { entries, cursor };
}

const toFailure = ({ deadLetter, message, failed }: DeadLetterEntry) => ({
  dlqId: deadLetter.id,
  time: readIdTime(deadLetter.id),
  url: deadLetter.run?.url ?? "",
  error: formatFailure(deadLetter, message.redaction),
  ...findFailedStep(message.run?.stepKey, failed?.step?.head, deadLetter.headers),
});
