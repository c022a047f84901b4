import type { LimitedList } from "../core/commands/retention.ts";
import { limitedLists, readListLimit } from "../core/commands/retention.ts";
import type { Account, Millis } from "../core/model/message.ts";
import type { CommandInput } from "../core/commands/index.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";
import { WorkSignal } from "./workSignal.ts";
import type { MaintenanceTask } from "./scheduler.ts";
import { hour, minute, second } from "../core/values/time.ts";

/** So soon after something came in, lists may be longer than they may be. */
const trimDelay = 10 * second;
/** What was looked through is looked through again after this at the latest, while anything comes in. */
const maxCheckInterval = 10 * minute;
/** What began before may fail long after the last thing that came in, and tells nobody. */
const followUpDelay = hour;
/** So many entries a second are expected at most: a list that has room for more is left alone so long. */
const maxEntriesPerSecond = 1_000;
const batchSize = 500;

/**
 * Lets the oldest lines of the log and of the audit log, and the oldest dead letters, go where an account has more than it may: within seconds
 * of what came in, some hundred rows per transaction, and in the time of nobody. Accounts without such limits are not looked at.
 */
export function createTrimmingTask({ store, clock }: { store: Store; clock: Clock }): MaintenanceTask {
  // At the beginning nothing is known.
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
        // Word of a change may have been lost on its way from another node.
        if (limited === null || clock.now() >= readAt + maxCheckInterval || clock.now() < readAt) {
          readAt = clock.now();
          limited = (await store.read.accounts()).filter(isLimited);
          nextChecks.clear();
        }
        for (const account of limited) await trimAccount(store, clock, account, nextChecks);
      });
    },
  };
}

const limitedListNames = Object.keys(limitedLists) as LimitedList[];

const isLimited = (account: Account): boolean => limitedListNames.some((list) => readListLimit(account, list) !== null);

async function trimAccount(store: Store, clock: Clock, account: Account, nextChecks: Map<string, Millis>): Promise<void> {
  const overLimit = await findOverLimit(store, clock, account, nextChecks);
  if (Object.values(overLimit).every((one) => one === null)) return;
  for (let more = true; more;) ({ more } = await store.execute("trim", { account: account.id, tooMany: overLimit, limit: batchSize }));
}

async function findOverLimit(
  store: Store,
  clock: Clock,
  account: Account,
  nextChecks: Map<string, Millis>,
): Promise<CommandInput<"trim">["tooMany"]> {
  const overLimit: CommandInput<"trim">["tooMany"] = { log: null, keptLog: null, deadLetters: null, audit: null };
  for (const table of limitedListNames) {
    const name = `${table} ${account.id}`;
    const limit = readListLimit(account, table);
    if (limit === null || clock.now() < (nextChecks.get(name) ?? -Infinity)) continue;
    const { id, count } = await store.read.findOverLimit(table, account.id, limit);
    if (id !== null) overLimit[table] = { id, limit };
    nextChecks.set(name, clock.now() + Math.min(maxCheckInterval, ((limit - count) / maxEntriesPerSecond) * second));
  }
  return overLimit;
}
