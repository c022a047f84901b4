import { z } from "zod";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { isId } from "../../../engine/core/values/ids.ts";
import type { AccountId } from "../../../engine/core/values/basics.ts";
import type { RunKey } from "../../../engine/core/model/runPost.ts";
import type { UnfinishedFilter } from "../../../engine/core/explain/listedState.ts";
import { unfinishedSorts } from "../../../engine/store/queries/unfinishedSets.ts";
import { choice, count, positiveNumber, textList, timestamp } from "../../http/parameters.ts";
import type { RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { aboutGates, aboutListedStates, unfinishedFields } from "../../fields/unfinished.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { gateSchema, listedStateSchema, unfinishedJson } from "../../views/unfinished.ts";
import { runIds } from "../lists/failedRunLists.ts";
import { cursorParameter, messageFilters, orderParameter, toFilter } from "../lists/filters.ts";

/** The filters by which unfinished messages are chosen that belong to no run. */
export const chosenMessageFilters = messageFilters.extend({
  state: textList()
    .pipe(z.array(listedStateSchema))
    .optional()
    .describe(`The state of the message. ${aboutListedStates}`),
  gate: textList().pipe(z.array(gateSchema)).optional().describe(`The gate at which it waits. ${aboutGates}`),
  dueFrom: timestamp()
    .optional()
    .describe(
      "The earliest due time, inclusive, in Unix milliseconds. Only messages in the states pending and " +
        "retrying have a due time.",
    ),
  dueTo: timestamp().optional().describe("The latest due time, inclusive, in Unix milliseconds."),
  minAttempts: positiveNumber().optional().describe("The smallest number of attempts that have ended."),
});

const filters = chosenMessageFilters.extend({
  workflowRunId: runIds
    .optional()
    .describe("The id of an active run. Repeat the parameter for several ids; a comma is part of an id."),
});

const list = route({
  method: "GET",
  path: "/v2/messages",
  tag: "Messages",
  summary: "List unfinished messages",
  about:
    "Lists the messages that are neither delivered nor failed nor cancelled, with what each waits for. " +
    "A message must match every filter; a filter with several values matches if one does. fromDate and " +
    "toDate limit the time when the message was accepted. One request searches about 4,000 messages, so a " +
    "page may have few messages, or none, and still have a cursor.",
  query: filters.extend({
    sort: choice(unfinishedSorts)
      .default("created")
      .describe(
        "created: in the order of acceptance. due: in the order of due times; messages without a due time " +
          "are omitted.",
      ),
    order: orderParameter("earliestFirst"),
    count: count({ max: 100, defaultCount: 100 }),
    cursor: cursorParameter,
  }),
  answers: {
    200: {
      about: "A page of unfinished messages.",
      schema: z.object({
        messages: z.array(toSchema(unfinishedFields)).describe("The messages, in the requested order."),
        cursor: z
          .string()
          .optional()
          .describe("Cursor of the next page, for the parameter `cursor`. Absent on the last page."),
        total: z
          .int()
          .min(0)
          .optional()
          .describe(
            "The number of messages that match, counted up to 10,000. Absent if counting them would take " +
              "a search.",
          ),
        more: z.literal(true).optional().describe("Present if more messages match than total says."),
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const { sort, order, count, cursor = null } = query;
    const filter = await toUnfinishedFilter(context, account.id, query);
    const page = await context.store.read.listUnfinished({
      ...{ account: account.id, filter, sort },
      ...{ order, count, cursor },
    });
    const situation = { now: context.now(), isOnHold: context.isOnHold?.() ?? false };
    return {
      status: 200,
      body: {
        messages: page.entries.map((entry) => unfinishedJson(entry, situation)),
        ...(page.cursor === null ? {} : { cursor: page.cursor }),
        ...(page.total && { total: page.total.count, ...(page.total.more ? { more: true } : {}) }),
      },
    };
  },
});

/** Returns the filter for the given parameters. Run ids are replaced by the keys of the active runs. */
async function toUnfinishedFilter(
  { store }: RouteContext,
  account: AccountId,
  { workflowRunId, ...parameters }: z.output<typeof filters>,
): Promise<UnfinishedFilter> {
  const filter = toChosenFilter(parameters);
  if (parameters.messageIds || !workflowRunId) return filter;
  const runs: RunKey[] = [];
  for (const runId of workflowRunId) {
    const active = await store.read.activeRun(account, runId);
    if (active) runs.push(active.run.id);
  }
  return { ...filter, runs };
}

/** Returns the filter for the given parameters. Throws `Refusal` if `dueFrom` is later than `dueTo`. */
export function toChosenFilter(parameters: z.output<typeof chosenMessageFilters>): UnfinishedFilter {
  const { messageIds, state, gate, dueFrom, dueTo, minAttempts } = parameters;
  if (messageIds) return { messageIds: messageIds.filter(isId) };
  if ((dueFrom ?? 0) > (dueTo ?? Infinity))
    throw new Refusal("invalid", "dueFrom: is later than dueTo; swap them");
  const { state: _ofLog, ...others } = parameters;
  return {
    ...toFilter(others),
    ...(state ? { listedStates: state } : {}),
    ...(gate ? { gates: gate } : {}),
    ...(dueFrom === undefined ? {} : { dueFrom }),
    ...(dueTo === undefined ? {} : { dueTo }),
    ...(minAttempts === undefined ? {} : { minAttempts }),
  };
}

/** The routes that list unfinished messages. */
export const unfinishedMessages = [list];
