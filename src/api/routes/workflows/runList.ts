import { z } from "zod";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { choice, count } from "../../http/parameters.ts";
import { route } from "../../route/route.ts";
import { toJson } from "../../fields/field.ts";
import { runEntryFields, runStates } from "../../fields/run.ts";
import { runEntrySchema } from "../../views/runSchemas.ts";
import { orderParameter } from "../lists/filters.ts";
import { nextPage } from "./failedRunEntries.ts";
import { makeStateParameter, runFilters, toMessageFilter, toRunFilter } from "./runFilters.ts";

/** The route that lists runs without their steps. */
export const runList = route({
  method: "GET",
  path: "/v2/workflows/runs",
  tag: "Workflow runs",
  summary: "List runs",
  about:
    "Lists active and ended runs without steps and results. GET /v2/workflows/logs has the " +
    "steps. A run must match every filter; a filter with several values matches if one does. One request " +
    "searches about 4,000 runs, so a page may have few runs, or none, and still have a cursor.",
  query: z.object({
    ...runFilters,
    state: makeStateParameter(runStates).describe("The state of the run. Several values match any of them."),
    order: orderParameter("latestFirst"),
    count: count({ max: 100, defaultCount: 100 }),
    progress: choice(["true", "false"])
      .default("false")
      .describe("true: each run has progress: how many steps are done, and why it waits."),
  }),
  answers: {
    200: {
      about: "A page of runs.",
      schema: z.object({
        runs: z.array(runEntrySchema).describe("The runs, in the requested order."),
        cursor: nextPage,
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query, context: { store, now } }) => {
    const { count, state, order, progress } = query;
    const page = await store.read.listRunEntries({
      account: account.id,
      filter: { ...toRunFilter(query), ...(state && !query.workflowRuns ? { states: toStates(state) } : {}) },
      cursor: readCursor(query.cursor),
      count,
      ascending: order === "earliestFirst",
      ...(progress === "true" ? { progressAt: now() } : {}),
      ...toMessageFilter(query),
    });
    return {
      status: 200,
      body: {
        runs: page.entries.map((entry) => toJson(runEntryFields, entry)),
        ...(page.cursor === null ? {} : { cursor: page.cursor }),
      },
    };
  },
});

const toStates = (texts: readonly string[]) => runStates.filter((state) => texts.includes(state));

function readCursor(cursor: string | undefined): string | null {
  if (cursor === undefined) return null;
  if (!/^run_[1-9A-Za-z]{20}$/.test(cursor))
    throw new Refusal("invalid", "cursor: unknown; use the cursor of the previous page");
  return cursor;
}
