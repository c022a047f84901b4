import { hasBudget } from "../core/limits/budget.ts";
import type { Account } from "../core/model/account.ts";
import type { Millis } from "../core/values/basics.ts";
import type { Prices } from "../core/accounts/statistics.ts";
import { calculateCost, toMonthRange, sumPoints } from "../core/accounts/statistics.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";
import { WorkSignal } from "./workSignal.ts";
import type { MaintenanceTask } from "./scheduler.ts";
import { second } from "../core/values/time.ts";

/**
 * The interval at which the spending of accounts is added up, in milliseconds. Nothing is added up if nothing
 * was stored since the last time.
 */
const meterInterval: Millis = 30 * second;

/**
 * Returns the task that adds up the spending of accounts with a budget in the current month. The task does
 * nothing if all prices are 0.
 */
export function createSpendingDuty({
  store,
  clock,
  prices,
}: {
  store: Store;
  clock: Clock;
  prices: Prices;
}): MaintenanceTask {
  const isFree = Object.values(prices).every((price) => price === 0);
  // At the start, the spending is unknown.
  const workSignal = new WorkSignal({ store, clock, since: -Infinity });
  return {
    name: "adding up the spending of accounts",
    pause: meterInterval,
    nextAt: async () => (workSignal.since === null || isFree ? Infinity : workSignal.since + meterInterval),
    onWork: (listener) => workSignal.listen(listener),
    run: () =>
      workSignal.handle(async () => {
        for (const account of await store.read.accounts())
          if (hasBudget(account)) await recordSpending(store, { account, now: clock.now(), prices });
      }),
  };
}

async function recordSpending(
  store: Store,
  { account, now, prices }: { account: Account; now: Millis; prices: Prices },
): Promise<void> {
  const month = toMonthRange(now);
  const points = sumPoints(await store.read.usage(account.id, "3h", month.from), month);
  const dollars =
    Math.round(points.reduce((sum, { counts }) => sum + calculateCost(counts, prices), 0) * 1e6) / 1e6;
  await store.execute("recordSpending", { account: account.id, dollars, month: month.from });
}
