import type { LimitedList } from "../core/limits/listLimits.ts";
import { limitedLists, readListLimit } from "../core/limits/listLimits.ts";
import type { Account } from "../core/model/account.ts";
import type { Millis } from "../core/values/basics.ts";
import type { CommandInput } from "../store/catalog/commands.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";
import { WorkSignal } from "./workSignal.ts";
import type { MaintenanceTask } from "./scheduler.ts";
import { hour, minute, second } from "../core/values/time.ts";

/** Lists may exceed their limits for this long after something was stored. */
const trimDelay = 10 * second;
/** Lists are checked again after this time at the latest, while anything is stored. */
const maxCheckInterval = 10 * minute;
/**
 * Work that began earlier may fail, and create entries, long after the last notification. One more check is
 * therefore made after this time.
 */
const followUpDelay = hour;
/**
 * The assumed maximum number of new entries per second. A list with room for more is skipped until it could
 * be full.
 */
const maxEntriesPerSecond = 1_000;
const batchSize = 500;

/**
 * Returns the task that deletes the oldest entries of the log and the audit log, and the oldest dead letters,
 * of accounts that exceed their limits. It deletes them within seconds, in transactions of a few hundred
 * rows, and delays no request. It skips accounts without such limits.
 */
export function createTrimmingTask({ store, clock }: { store: Store; clock: Clock }): MaintenanceTask {
  // At the start, the lengths of the lists are unknown.
  const workSignal = new WorkSignal({ store, clock, since: -Infinity });
  let followUpAt: Millis | null = null;
  let readAt: Millis = 0;
  let limited: readonly Account[] | null = null;
  const nextChecks = new Map<string, Millis>();
  store.onAccounts(() => {
    limited = null;
  });
  return {
    name: "trimming",
    pause: trimDelay,
    nextAt: async () => (workSignal.since === null ? (followUpAt ?? Infinity) : workSignal.since + trimDelay),
    onWork: (listener) => workSignal.listen(listener),
    run: () => {
      followUpAt = workSignal.since === null ? null : clock.now() + followUpDelay;
      return workSignal.handle(async () => {
        // A notification of another node's change may have been lost.
        if (limited === null || clock.now() >= readAt + maxCheckInterval || clock.now() < readAt) {
          readAt = clock.now();
          limited = (await store.read.accounts()).filter(isLimited);
          nextChecks.clear();
        }
        for (const account of limited) await trimAccount(account, { store, clock, nextChecks });
      });
    },
  };
}

const limitedListNames = Object.keys(limitedLists) as LimitedList[];

const isLimited = (account: Account): boolean =>
  limitedListNames.some((list) => readListLimit(account, list) !== null);

/** `nextChecks` holds the time of the next check of each list. */
type TrimContext = { store: Store; clock: Clock; nextChecks: Map<string, Millis> };

async function trimAccount(account: Account, context: TrimContext): Promise<void> {
  const { store } = context;
  const overLimit = await findOverLimit(account, context);
  if (Object.values(overLimit).every((one) => one === null)) return;
  for (let more = true; more;)
    ({ more } = await store.execute("trim", { account: account.id, tooMany: overLimit, limit: batchSize }));
}

async function findOverLimit(
  account: Account,
  { store, clock, nextChecks }: TrimContext,
): Promise<CommandInput<"trim">["tooMany"]> {
  const overLimit: CommandInput<"trim">["tooMany"] = {
    log: null,
    keptLog: null,
    deadLetters: null,
    audit: null,
  };
  for (const table of limitedListNames) {
    const name = `${table} ${account.id}`;
    const limit = readListLimit(account, table);
    if (limit === null || clock.now() < (nextChecks.get(name) ?? -Infinity)) continue;
    const { id, count } = await store.read.findOverLimit(table, account.id, limit);
    if (id !== null) overLimit[table] = { id, limit };
    nextChecks.set(
      name,
      clock.now() + Math.min(maxCheckInterval, ((limit - count) / maxEntriesPerSecond) * second),
    );
  }
  return overLimit;
}
