import { z } from "zod";
import { bulkActions, selectsDeadLetters } from "../../engine/core/bulk/actions.ts";
import type { BulkActionName, BulkSelection } from "../../engine/core/bulk/entries.ts";
import { firstIdAt, isDlqId, readIdTime } from "../../engine/core/values/ids.ts";
import { readEntryName } from "../../engine/core/bulk/entries.ts";
import { readSelection } from "../../engine/store/queries/selection.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import { dryRun, dryRunSchema } from "../../api/publishing/dryRun.ts";
import { choice, mergeParameters, readFields } from "../../api/http/parameters.ts";
import type { RouteContext } from "../../api/route/route.ts";
import {
  continuedRunFilters,
  failedRunFilters,
  toFailedRunFilter,
} from "../../api/routes/lists/failedRunLists.ts";
import { actionKeyFilters, deadLetterFilters } from "../../api/routes/lists/filters.ts";
import { findNewestId, readSweep } from "../../api/routes/lists/sweep.ts";
import { toMessageFilter } from "../../api/routes/deadLetters/deadLetterSelection.ts";
import { chosenMessageFilters, toChosenFilter } from "../../api/routes/messages/unfinished.ts";
import { runSelectionSchema, toRunFilter } from "../../api/routes/workflows/runs.ts";

const deadLetters = deadLetterFilters.extend(actionKeyFilters);
const deletedEntries = failedRunFilters.extend({
  ...deadLetters.shape,
  source: choice(["workflow"]).optional(),
});

/** The filters of each action, as in the request that does the same without a job. */
const filterSchemas = {
  "dlq.retry": deadLetters,
  "dlq.delete": deletedEntries,
  "runs.resume": continuedRunFilters,
  "runs.restart": continuedRunFilters,
  "runs.cancel": runSelectionSchema.omit({ count: true, dryRun: true, details: true }),
  "messages.cancel": chosenMessageFilters,
} as const satisfies Record<BulkActionName, z.ZodObject>;

/** Returns what a job selects, from the filter of its request. Throws `Refusal` for an unknown field. */
export function readJobFilter(action: BulkActionName, members: unknown): BulkSelection {
  const fields = mergeParameters(null, members);
  const read = <T extends z.ZodObject>(schema: T): z.output<T> => readFields(schema, fields) as z.output<T>;
  switch (action) {
    case "dlq.retry":
      return { action, filter: { ...toMessageFilter(read(filterSchemas[action])), belongsToRun: false } };
    case "dlq.delete": {
      const parameters = read(filterSchemas[action]);
      if (parameters.source === "workflow") return { action, filter: toFailedRunFilter(parameters) };
      const runOnly = Object.keys(parameters).find((name) => !(name in deadLetters.shape));
      if (runOnly !== undefined)
        throw new Refusal("invalid", `${runOnly}: only valid with source: "workflow"`);
      return { action, filter: toMessageFilter(parameters) };
    }
    case "runs.resume":
    case "runs.restart":
      return { action, filter: toFailedRunFilter(read(filterSchemas[action]), "runIdStarts") };
    case "runs.cancel":
      return { action, filter: toRunFilter({ ...read(filterSchemas[action]), count: 0 }) };
    case "messages.cancel": {
      const chosen = toChosenFilter(read(filterSchemas[action]));
      return { action, filter: { ...chosen, belongsToRun: false } };
    }
  }
}

/**
 * Returns the highest id that an entry of a new job may have: `last`, or that of the newest entry. A dead
 * letter that fails again during the job has a higher one. Null: the store sets the highest id, because its
 * clock makes the ids of messages and runs. Throws `Refusal` if `last` cannot be such an id.
 */
export async function findLastJobId(
  context: RouteContext,
  account: AccountId,
  { action, last = null }: { action: BulkActionName; last?: string | undefined | null },
): Promise<string | null> {
  const { list } = bulkActions[action];
  if (last !== null && last !== "" && !isIdOf[list](last))
    throw new Refusal("invalid", "last: not the field last of a dry run of this action");
  if (list !== "deadLetters") return last;
  const newest = (await findNewestId(context, account)) ?? "";
  return last !== null && last < newest ? last : newest;
}

const isIdOf = {
  deadLetters: isDlqId,
  messages: (id: string) => /^msg_\w{1,40}$/.test(id),
  runs: (id: string) => /^run_\w{1,40}$/.test(id),
};

/**
 * Counts the entries that a job would have. `last`: the id of the newest one, so that a job with the same
 * bound has no entries that are added meanwhile.
 */
export async function countJobEntries(
  context: RouteContext,
  account: AccountId,
  selection: BulkSelection,
): Promise<z.output<typeof jobDryRunSchema>> {
  if (selectsDeadLetters(selection)) {
    const last = (await findNewestId(context, account)) ?? "";
    const filter = { ...selection.filter, to: Math.min(selection.filter.to ?? Infinity, readIdTime(last)) };
    const found = await dryRun(async (cursor, count) => {
      const page = await readSweep(context, account, { filter, cursor, count });
      return { ...page, ids: page.ids.filter((id) => id <= last) };
    });
    return { ...found, last };
  }
  let last = "";
  const found = await dryRun(async (cursor, count) => {
    const page = await readSelection(context.store.read, { ...selection, account }, { cursor, count });
    for (const { id } of page.entries) if (id > last) last = id;
    return { ids: page.entries.map(readEntryName), cursor: page.cursor };
  });
  // Entries that were not counted may be newer.
  const kind = bulkActions[selection.action].list === "runs" ? "run" : "msg";
  return { ...found, last: found.more ? firstIdAt(kind, context.now() + 1) : last };
}

/** The response of a dry run of a job. */
export const jobDryRunSchema = dryRunSchema.extend({
  last: z
    .string()
    .describe(
      "The newest entry, or an empty string. If the request that starts the job has it as its field last, " +
        "the job leaves out entries that were added after this dry run.",
    ),
});
