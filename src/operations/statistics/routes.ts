import { z } from "zod";
import { readLimits } from "../../engine/core/accounts/plans.ts";
import {
  sumDeadLetters,
  toMonthRange,
  periods,
  sumPoints,
  sumStoredBytes,
  toPeriodRange,
} from "../../engine/core/accounts/statistics.ts";
import { choice } from "../../api/http/parameters.ts";
import type { AccountBrand } from "../../api/fields/accountRecord.ts";
import { toJson } from "../../api/fields/field.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import { makeStatisticsFields } from "./fields.ts";
import type { Route } from "../../api/route/route.ts";
import { accountRoute } from "../../api/route/route.ts";
import { requireOwnAccount } from "../../api/routes/accounts/accounts.ts";

const noPrices = { messages: 0, workflowMessages: 0, gigabyte: 0 };

function makeStatisticsRoute(brand: AccountBrand): Route {
  const fields = makeStatisticsFields(brand);
  return accountRoute({
    method: "GET",
    path: `/v2/${brand}/stats/{id}`,
    tag: "Accounts",
    summary: "Read the statistics of an account",
    about:
      "Each publish, retry and callback counts as one message. In a workflow, each step, each plan of a " +
      "parallel step and each response of a third party counts as one message. A period has 60 points; " +
      "the period of 30 days has 240 points of three hours each. The last point is the current one. Days " +
      "are in UTC.",
    takesTokens: true,
    params: z.object({ id: z.string().describe("The id of the account.") }),
    query: z.object({
      period: choice(periods)
        .default("1h")
        .describe("The length of the time that the series of the period cover, up to now."),
    }),
    answers: { 200: { about: "The statistics of the account.", schema: toSchema(fields) } },
    refusals: ["invalid", "not-found"],
    handle: async ({ account, params, query, context: { store, now, prices = noPrices } }) => {
      const { id } = requireOwnAccount(account, params.id);
      const at = now();
      const period = toPeriodRange(query.period, at);
      const threeHourCounts = await store.read.usage(id, "3h", 0);
      const periodCounts =
        period.size === "3h" ? threeHourCounts : await store.read.usage(id, period.size, period.from);
      const points = {
        month: sumPoints(threeHourCounts, toMonthRange(at)),
        period: sumPoints(periodCounts, period),
      };
      const used = {
        deadLetters: sumDeadLetters(threeHourCounts),
        stored: sumStoredBytes(threeHourCounts),
        maxStored: readLimits(account).storageBytes,
      };
      return { status: 200, body: toJson(fields, { ...points, ...used, prices }) };
    },
  });
}

/** The routes that read the usage of an account, under both brand names. */
export const statistics: Route[] = [makeStatisticsRoute("svc"), makeStatisticsRoute("qstash")];
