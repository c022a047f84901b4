import type { Decision } from "../../engine/core/decision/command.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import { serverAccount } from "../../engine/core/values/basics.ts";
import type { Increment } from "./series.ts";
import { addToSeries, maxSeries, other, toSeriesId } from "./series.ts";

/**
 * Adds to series of an account what a node has counted. An account has a limited number of series; beyond it,
 * one more series has all others. Nothing is kept for an account that does not exist.
 */
export const addToAllSeries: Decision<
  { account: AccountId; increments: readonly Increment[] },
  { added: number }
> = {
  hint: ({ account, increments }) => ({
    series: increments.map((one) => [account, toSeriesId(one)] as const),
  }),
  decide: ({ account, increments }, draft, { now }) => {
    const owner = account === serverAccount ? null : draft.get("accounts", account);
    if (owner === undefined || owner?.deletedAt !== undefined) return { added: 0 };
    for (const one of increments) {
      const known = draft.get("series", account, toSeriesId(one));
      const isFull =
        !known && draft.readQuotaCount({ account, name: "series", limit: maxSeries }) >= maxSeries;
      const increment = isFull ? { ...one, subject: other, reason: other } : one;
      const series = known ?? draft.get("series", account, toSeriesId(increment));
      draft.put("series", addToSeries(account, { series, increment }, now));
    }
    return { added: increments.length };
  },
};

/** Removes series. With `reason` age, only those that have counted nothing for a week. */
export const removeSeries: Decision<
  { account: AccountId; ids: readonly string[]; reason: "age" | "request" },
  { removed: number }
> = {
  decide: ({ account, ids, reason }, draft, { now }) => {
    const known = ids.flatMap((id) => draft.get("series", account, id) ?? []);
    const removed = known.filter(({ dueAt }) => reason === "request" || dueAt <= now);
    for (const { id } of removed) draft.drop("series", account, id);
    return { removed: removed.length };
  },
};
