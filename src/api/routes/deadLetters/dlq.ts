import { z } from "zod";
import { isId } from "../../../engine/core/values/ids.ts";
import type { NotDone } from "../../../engine/core/values/errors.ts";
import { toFailedMember, Refusal } from "../../../engine/core/values/errors.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import { retentionFor } from "../../../engine/core/accounts/retention.ts";
import { dryRunSchema } from "../../publishing/dryRun.ts";
import { runBulk } from "../lists/bulk.ts";
import { readEntries, toFailedRunFilter, runOnlyFilters } from "../lists/failedRunLists.ts";
import { cursorParameter, deadLetterFilters, orderParameter } from "../lists/filters.ts";
import { choice } from "../../http/parameters.ts";
import { entryJson, entrySchema } from "../../views/failedRuns.ts";
import type { RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { notDoneSchema } from "../../views/schemas.ts";
import { shorten } from "../../http/target.ts";
import { groupDeadLetters } from "./deadLetterGroups.ts";
import { replayDeadLetter } from "./deadLetterReplay.ts";
import { deadLetterRetries } from "./deadLetterRetry.ts";
import {
  byId,
  countSelected,
  makeNotFound,
  nextPage,
  portion,
  selectEntries,
  selectionSchema,
  toMessageFilter,
} from "./deadLetterSelection.ts";

const runOnlyNames = Object.keys(runOnlyFilters) as (keyof typeof runOnlyFilters)[];

const list = route({
  method: "GET",
  path: "/v2/dlq",
  tag: "Dead letter queue",
  summary: "List dead letters",
  about:
    "Returns the messages whose attempts have all failed. With source=workflow, returns failed workflow " +
    "runs. fromDate and toDate apply to the time of the failure.",
  query: deadLetterFilters.extend({
    order: orderParameter("earliestFirst"),
    count: portion("A page with large bodies has fewer entries."),
    cursor: cursorParameter,
    source: choice(["workflow"])
      .optional()
      .describe("`workflow`: list failed workflow runs instead of messages. The filters of runs require it."),
    ...runOnlyFilters,
  }),
  answers: {
    200: {
      about: "A page of dead letters.",
      schema: z.object({
        messages: z.array(entrySchema).describe("Dead letters, in the requested order."),
        cursor: nextPage,
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const { source, order } = query;
    const isOfRuns = source === "workflow";
    const runOnlyName = runOnlyNames.find((name) => !isOfRuns && query[name] !== undefined);
    if (runOnlyName) throw new Refusal("invalid", `${runOnlyName}: only valid with source=workflow`);
    const filter = isOfRuns ? toFailedRunFilter(query) : toMessageFilter(query);
    const { entries, cursor } = await readEntries(context, account.id, { ...query, filter, order });
    return {
      status: 200,
      body: { messages: entries.map(entryJson), ...(cursor === null ? {} : { cursor }) },
    };
  },
});

const get = route({
  method: "GET",
  path: "/v2/dlq/{dlqId}",
  tag: "Dead letter queue",
  summary: "Read a dead letter",
  about: "Returns the dead letter of a message or of a workflow run; their ids have the same form.",
  params: byId,
  answers: { 200: { about: "The dead letter.", schema: entrySchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => {
    const entry = isId(params.dlqId) ? await context.store.read.deadLetter(account.id, params.dlqId) : null;
    if (!entry) throw makeNotFound(params.dlqId);
    return { status: 200, body: entryJson(entry) };
  },
});

const deletedSchema = z.object({
  deleted: z.int().min(0).describe("Number of dead letters that were deleted."),
  failed: notDoneSchema,
  cursor: nextPage,
});

const remove = route({
  method: "DELETE",
  path: "/v2/dlq/{dlqId}",
  tag: "Dead letter queue",
  summary: "Delete a dead letter",
  params: byId,
  answers: { 200: { about: "The dead letter was deleted.", schema: deletedSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => {
    const result = await removeAll(context, account, [params.dlqId].filter(isId));
    if (result.deleted === 0) throw makeNotFound(params.dlqId);
    return { status: 200, body: { deleted: result.deleted } };
  },
});

const removeMany = route({
  method: "DELETE",
  path: "/v2/dlq",
  runsManyBatches: true,
  tag: "Dead letter queue",
  summary: "Delete many dead letters",
  about:
    "Deletes the dead letters with the given ids, or those that match all filters, oldest first. " +
    "Without a filter, every dead letter of a message matches.",
  query: selectionSchema,
  answers: {
    200: {
      about: "The number of deleted dead letters. With dryRun=true, the number that would be deleted.",
      schema: z.union([deletedSchema, dryRunSchema]),
    },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    if (query.dryRun === "true")
      return { status: 200, body: await countSelected(context, account, { query }) };
    const { ids, cursor } = await selectEntries(context, account, query);
    const entries = ids.map((id) => ({ id }));
    const { done: deleted, failures } = await runBulk(context, { account, action: "dlq.delete", entries });
    const unknownIds = (query.dlqIds ?? []).filter((id) => !isId(id)).map((id) => describeMissing(id));
    return {
      status: 200,
      body: {
        deleted,
        ...toFailedMember([...failures, ...unknownIds]),
        ...(cursor === null ? {} : { cursor }),
      },
    };
  },
});

const removeAll = ({ store, retention }: RouteContext, account: Account, dlqIds: readonly string[]) =>
  store.execute("deleteDeadLetters", {
    account: account.id,
    dlqIds,
    logRetention: retentionFor(account, retention).log,
  });

const describeMissing = (dlqId: string): NotDone => ({
  id: shorten(dlqId),
  reason: makeNotFound(dlqId).message,
});

/** The routes of the dead letter queue. */
export const dlq = [list, groupDeadLetters, get, remove, removeMany, ...deadLetterRetries, replayDeadLetter];
