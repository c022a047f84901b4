import { isId } from "../../../engine/core/values/ids.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { maxOfCause } from "../../../engine/store/queries/causes.ts";
import {
  groupCountParameter,
  maxGrouped,
  runOnlyFilters,
  toFailedRunFilter,
} from "../lists/failedRunLists.ts";
import { cursorParameter, deadLetterFilters, orderParameter } from "../lists/filters.ts";
import { failureGroupFields } from "../../fields/failureGroup.ts";
import { choice } from "../../http/parameters.ts";
import { shorten } from "../../http/target.ts";
import { makeDeadLetterRoutes } from "./deadLetterRoutes.ts";
import { replayDeadLetter } from "./deadLetterReplay.ts";
import { deadLetterRetries } from "./deadLetterRetry.ts";
import {
  byId,
  countSelected,
  makeNotFound,
  nextPage,
  countParameter,
  selectEntries,
  selectionSchema,
  toMessageFilter,
} from "./deadLetterSelection.ts";

const runOnlyNames = Object.keys(runOnlyFilters) as (keyof typeof runOnlyFilters)[];

const routes = makeDeadLetterRoutes({
  path: "/v2/dlq",
  tag: "Dead letter queue",
  byId,
  nextPage,
  makeNotFound,
  list: {
    summary: "List dead letters",
    about:
      "Returns the messages whose attempts have all failed. With source=workflow, returns failed workflow " +
      "runs. fromDate and toDate apply to the time of the failure.",
    query: deadLetterFilters.extend({
      order: orderParameter("earliestFirst"),
      count: countParameter("A page with large bodies has fewer entries."),
      cursor: cursorParameter,
      source: choice(["workflow"])
        .optional()
        .describe(
          "`workflow`: list failed workflow runs instead of messages. The filters of runs require it.",
        ),
      ...runOnlyFilters,
    }),
    page: "A page of dead letters.",
    messages: "Dead letters, in the requested order.",
    toQuery: (query) => {
      const isOfRuns = query.source === "workflow";
      const runOnlyName = runOnlyNames.find((name) => !isOfRuns && query[name] !== undefined);
      if (runOnlyName) throw new Refusal("invalid", `${runOnlyName}: only valid with source=workflow`);
      return { ...query, filter: isOfRuns ? toFailedRunFilter(query) : toMessageFilter(query) };
    },
  },
  groups: {
    summary: "Group dead letters",
    about:
      "Groups the messages that failed with the same cause: the same URL without the parts that vary, the " +
      "same status and the same error. The largest group comes first. Without filters, or with cause, " +
      `fromDate and toDate alone, all dead letters are counted, up to ${maxOfCause} of each cause, and the ` +
      `cursor continues after 500 causes. With other filters, one request groups the latest ${maxGrouped} ` +
      "dead letters that pass all filters, and the cursor continues with older ones. It groups fewer if " +
      "bodies are large, or if few dead letters pass. Failed workflow runs are not included; GET " +
      "/v2/workflows/dlq/groups groups them.",
    query: deadLetterFilters.extend({ count: groupCountParameter, cursor: cursorParameter }),
    fields: failureGroupFields,
    entries: "The number of dead letters that this response counts.",
    more: "There are dead letters that this response does not count. Absent if there are none.",
    toQuery: (query) => ({
      filter: { ...toMessageFilter(query), belongsToRun: false },
      cursor: query.cursor,
      count: query.count,
    }),
  },
  read: {
    summary: "Read a dead letter",
    about: "Returns the dead letter of a message or of a workflow run; their ids have the same form.",
    answer: "The dead letter.",
    find: async ({ store }, account, dlqId) => {
      const entry = isId(dlqId) ? await store.read.deadLetter(account, dlqId) : null;
      if (!entry) throw makeNotFound(dlqId);
      return entry;
    },
  },
  remove: {
    summary: "Delete a dead letter",
    deleted: "Number of dead letters that were deleted.",
    answer: "The dead letter was deleted.",
    check: (_context, _account, dlqId) => {
      if (!isId(dlqId)) throw makeNotFound(dlqId);
    },
  },
  removeMany: {
    summary: "Delete many dead letters",
    about:
      "Deletes the dead letters with the given ids, or those that match all filters, oldest first. " +
      "Without a filter, every dead letter of a message matches.",
    answer: "The number of deleted dead letters. With dryRun=true, the number that would be deleted.",
    query: selectionSchema,
    countChosen: ({ account, query, context }) => countSelected(context, account, { query }),
    choose: async ({ account, query, context }) => {
      const { ids, cursor } = await selectEntries(context, account, query);
      const unknown = (query.dlqIds ?? [])
        .filter((id) => !isId(id))
        .map((id) => ({ id: shorten(id), reason: makeNotFound(id).message }));
      return { ids, cursor, listFailed: (failures) => [...failures, ...unknown] };
    },
  },
});

/** The routes of the dead letter queue. */
export const dlq = [...routes, ...deadLetterRetries, replayDeadLetter];
