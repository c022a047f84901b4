import { z } from "zod";
import { operatorRoute } from "../../api/route/operator.ts";
import { count, singleText } from "../../api/http/parameters.ts";
import type { Route, RouteContext } from "../../api/route/route.ts";
import { route } from "../../api/route/route.ts";
import { toJson } from "../../api/fields/field.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import { serverAccount } from "../../engine/core/values/basics.ts";
import { seriesFields } from "./fields.ts";
import { nameSeries } from "./names.ts";
import { maxSeries, readLastHour } from "./series.ts";

const about =
  "Requests to publish that were refused, messages that repeat an earlier one, and calls that a source " +
  "rejected, as series by token or source, and by reason. " +
  `An account has at most ${maxSeries} series; all others are counted together in one more. ` +
  "A series is removed when it has counted nothing for a week. A node stores its counts every 10 s, and " +
  "loses those that it has not stored if it is killed. The series of another node may be that old.";

/** Returns the series of an account, those with the most within an hour first, then the newest. */
async function listSeries(
  account: AccountId,
  { store, now }: Pick<RouteContext, "store" | "now">,
): Promise<Record<string, unknown>[]> {
  const at = now();
  const all = (await store.read.series(account)).map((series) => ({ series, now: at }));
  return (await nameSeries(store, account, all))
    .toSorted(
      ({ series: a }, { series: b }) => readLastHour(b, at) - readLastHour(a, at) || b.last.at - a.last.at,
    )
    .map((one) => toJson(seriesFields, one));
}

const own = route({
  method: "GET",
  path: "/v2/unpublished",
  tag: "Overview",
  summary: "List what never became a message",
  about,
  answers: {
    200: {
      about: "The series, those with the most within an hour first.",
      schema: z.object({ series: z.array(toSchema(seriesFields)).describe("The series.") }),
    },
  },
  refusals: [],
  handle: async ({ account, context }) => {
    await context.storeUnpublished?.();
    return { status: 200, body: { series: await listSeries(account.id, context) } };
  },
});

const maxAccounts = 100;

const ofAll = operatorRoute({
  method: "GET",
  path: "/v2/admin/unpublished",
  tag: "Administration",
  summary: "List what never became a message, of all accounts",
  about: `${about} The first account has an empty id: it has the requests that name no account.`,
  query: z.object({
    count: count({ max: maxAccounts, defaultCount: maxAccounts }),
    cursor: singleText()
      .optional()
      .describe("The cursor that the previous page returned. Omit it for the first page."),
  }),
  answers: {
    200: {
      about: "A page of accounts with series. A page may have fewer accounts than the count.",
      schema: z.object({
        accounts: z
          .array(
            z.object({
              account: z.string().describe("The id of the account. Empty for the server."),
              name: z.string().describe("The name of the account. Empty for the server."),
              series: z.array(toSchema(seriesFields)).describe("The series of the account."),
            }),
          )
          .describe("Accounts with series."),
        cursor: z
          .string()
          .optional()
          .describe("The cursor to pass for the next page. Absent on the last page."),
      }),
    },
  },
  refusals: [],
  handle: async ({ query, context, accountAdmin }) => {
    await context.storeUnpublished?.();
    const known = (await accountAdmin.accounts()).map(({ id, name }) => ({ id, name }));
    const sorted = [{ id: serverAccount, name: "" }, ...known.toSorted((a, b) => (a.id < b.id ? -1 : 1))];
    const { cursor } = query;
    const rest = cursor === undefined ? sorted : sorted.filter(({ id }) => id > cursor);
    const page = rest.slice(0, query.count);
    const last = rest.length > page.length ? page.at(-1) : undefined;
    const accounts = await Promise.all(
      page.map(async ({ id, name }) => ({ account: id, name, series: await listSeries(id, context) })),
    );
    return {
      status: 200,
      body: {
        accounts: accounts.filter(({ series }) => series.length > 0),
        ...(last && { cursor: last.id }),
      },
    };
  },
});

/** The routes that show what never became a message. */
export const routes: readonly Route[] = [own, ofAll];
