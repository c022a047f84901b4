import type { Account } from "../core/model/account.ts";
import type { AccountId, Millis } from "../core/values/basics.ts";
import { readLimit } from "../core/accounts/plans.ts";
import { hasStorageQuota, readStorageLevel, toStorageLevel } from "../core/limits/storageQuota.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";
import { WorkSignal } from "./workSignal.ts";
import type { MaintenanceTask } from "./scheduler.ts";
import { minute, second } from "../core/values/time.ts";

/** The time between two checks while accounts change. */
const checkInterval: Millis = 10 * second;
/**
 * How long an account counts as changed. The time is this long because changes are counted per minute, and
 * because the clocks of nodes differ.
 */
const recentChange: Millis = 2 * minute;
/**
 * The list of accounts is read again after this time at the latest, because a notification of another node's
 * change may have been lost.
 */
const maxListAge: Millis = 10 * minute;

/**
 * Returns the task that records which accounts store more than their quota, at most 10 s after they exceed
 * it. If the clock of a node is more than two minutes ahead of the database clock, that node does not notice
 * when an account becomes full. Another node does.
 *
 * The task checks accounts with a quota only. It looks for one recent bucket of each. If the account has
 * changed within the last minutes, or is full, it adds up the account's largest buckets, about 300 for each
 * node. A check of 10,000 accounts takes 0.1 s if none has changed. If all have changed, it takes 0.3 s on
 * the reading thread of SQLite, and 4 s on PostgreSQL, on each node. The task sleeps while nothing is stored
 * and no account is over its quota.
 */
export function createStorageTask({ store, clock }: { store: Store; clock: Clock }): MaintenanceTask {
  const workSignal = new WorkSignal({ store, clock });
  let limited: readonly Account[] = [];
  let readAt: Millis | null = null;
  let checkedAt: Millis = -Infinity;
  /** Whether something may change without a notification. Deletions cause no notification. */
  let mustCheck = true;
  store.onAccounts(() => {
    readAt = null;
    mustCheck = true;
  });
  const mustReadAccounts = (now: Millis): boolean =>
    readAt === null || now >= readAt + maxListAge || now < readAt;
  const bytesStored = async (accounts: readonly Account[], changedSince: Millis | null) =>
    accounts.length === 0 ? [] : store.read.storedBytes(listIds(accounts), changedSince);
  const checkAccounts = async (): Promise<void> => {
    const now = clock.now();
    const before = new Map(limited.map((account) => [account.id, readLimit(account, "storageBytes")]));
    if (mustReadAccounts(now)) {
      readAt = now;
      limited = (await store.read.accounts()).filter(hasStorageQuota);
    }
    // The stored bytes of an account with a new quota are unknown. A full account is added up at every check:
    // if the clock of this node is ahead, new changes look old, and the account would stay full.
    const needsSum = (account: Account): boolean =>
      before.get(account.id) !== readLimit(account, "storageBytes") || readStorageLevel(account) !== null;
    const since = Math.min(now, checkedAt) - recentChange;
    const changed = [
      ...(await bytesStored(limited.filter(needsSum), null)),
      ...(await bytesStored(
        limited.filter((account) => !needsSum(account)),
        since,
      )),
    ];
    const bytesByAccount = new Map(changed.map(({ account, bytes }) => [account, bytes]));
    for (const account of limited) {
      const bytes = bytesByAccount.get(account.id);
      if (bytes !== undefined && toStorageLevel(account, bytes) !== readStorageLevel(account))
        await store.execute("recordStorage", { account: account.id, bytes });
    }
    checkedAt = now;
    mustCheck =
      readAt === null || changed.length > 0 || limited.some((account) => readStorageLevel(account) !== null);
  };
  return {
    name: "checking the stored bytes of accounts",
    pause: checkInterval,
    nextAt: async () => (mustCheck || workSignal.since !== null ? -Infinity : Infinity),
    onWork: (listener) => {
      const ends = [workSignal.listen(listener), store.onAccounts(listener)];
      return () => ends.forEach((end) => end());
    },
    run: () =>
      workSignal.handle(() =>
        checkAccounts().catch((error: unknown) => {
          readAt = null;
          limited = [];
          throw error;
        }),
      ),
  };
}

const listIds = (accounts: readonly Account[]): AccountId[] => accounts.map(({ id }) => id);
