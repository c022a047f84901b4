import { z } from "zod";
import { limitsOf } from "../../../core/accounts/plans.ts";
import { deadLettersIn, monthOf, periods, pointsOf, storedBytesIn, stretchOf } from "../../../core/accounts/statistics.ts";
import { choice } from "../../http/parameters.ts";
import type { AccountBrand } from "../../views/accounts.ts";
import { statisticsJson, statisticsRecord } from "../../views/statistics.ts";
import type { Route } from "../../route/route.ts";
import { accountRoute } from "../../route/route.ts";
import { own } from "./accounts.ts";

const noPrices = { messages: 0, workflowMessages: 0, gigabyte: 0 };

const ofBrand = (brand: AccountBrand): Route =>
  accountRoute({
    ...{ method: "GET", path: `/v2/${brand}/stats/{id}`, tag: "Accounts", summary: "Read the statistics of an account" },
    about:
      "Each publish, retry and callback is one message. Of a workflow each step is one, and so are the plan of a branch and the answer of a third party. A period has 60 points, one of 30 days has 240 of three hours; the last point is that of now. Days are those of UTC.",
    params: z.object({ id: z.string() }),
    query: z.object({ period: choice(periods).default("1h").describe("How far back it goes.") }),
    answers: { 200: { about: "The statistics.", schema: statisticsRecord(brand) } },
    refusals: ["invalid", "not-found"],
    handle: async ({ account, params, query, parts: { store, now, prices = noPrices } }) => {
      const { id } = own(account, params.id);
      const at = now();
      const stretch = stretchOf(query.period, at);
      const large = await store.read.usage(id, "3h", 0);
      const fitting = stretch.size === "3h" ? large : await store.read.usage(id, stretch.size, stretch.from);
      const points = { month: pointsOf(large, monthOf(at)), period: pointsOf(fitting, stretch) };
      const used = { deadLetters: deadLettersIn(large), stored: storedBytesIn(large), mostStored: limitsOf(account).storageBytes };
      return { status: 200, body: statisticsJson({ ...points, ...used }, { prices, brand }) };
    },
  });

/** What accounts have used, under both names of the service. */
export const statistics: Route[] = [ofBrand("svc"), ofBrand("qstash")];
