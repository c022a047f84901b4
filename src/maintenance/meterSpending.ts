import { hasBudget } from "../core/accounts/budget.ts";
import type { Account, Millis } from "../core/model/message.ts";
import type { Prices } from "../core/accounts/statistics.ts";
import { costOf, monthOf, pointsOf } from "../core/accounts/statistics.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";
import { News } from "./workSignal.ts";
import type { Duty } from "./scheduler.ts";
import { second } from "../core/values/time.ts";

/** So often what accounts have spent is added up, while anything comes in. */
const period: Millis = 30 * second;

/** Adds up what accounts with a budget have spent in the month, where anything costs anything. Others are not looked at. */
export function spendingDuty({ store, clock, prices }: { store: Store; clock: Clock; prices: Prices }): Duty {
  const isFree = Object.values(prices).every((price) => price === 0);
  // At the beginning nothing is known.
  const news = new News({ store, clock, since: -Infinity });
  return {
    name: "adding up what is spent",
    pause: period,
    nextAt: async () => (news.since === null || isFree ? Infinity : news.since + period),
    onNews: (listener) => news.listen(listener),
    run: () =>
      news.dealWith(async () => {
        for (const account of await store.read.accounts())
          if (hasBudget(account)) await addUp(store, { account, now: clock.now(), prices });
      }),
  };
}

async function addUp(store: Store, { account, now, prices }: { account: Account; now: Millis; prices: Prices }): Promise<void> {
  const month = monthOf(now);
  const points = pointsOf(await store.read.usage(account.id, "3h", month.from), month);
  const dollars = Math.round(points.reduce((sum, { counts }) => sum + costOf(counts, prices), 0) * 1e6) / 1e6;
  await store.execute("noteSpending", { account: account.id, dollars, month: month.from });
}
