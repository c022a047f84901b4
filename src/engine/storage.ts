import type { Account, AccountId, Millis } from "../core/message.ts";
import { hasStorageQuota, notedLevel, storageLevel } from "../core/storageQuota.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "./clock.ts";
import { News } from "./news.ts";
import type { Duty } from "./timers.ts";

/** Time between two looks while accounts change. */
const period: Millis = 10_000;
/** An account counts as changed this long: the buckets of its changes are of whole minutes, and clocks of nodes differ. */
const recent: Millis = 120_000;
/** The list of accounts is read again after this at the latest: news of a change may have been lost on its way from another node. */
const longest: Millis = 600_000;

/**
 * Notes which accounts store more than their quota, at most 10 s after they do. Only accounts with a quota are looked at: one bucket of each is
 * looked for, and only if the account has changed within the last minutes, its largest buckets are added up, about 300 for each node.
 * A look at 10,000 accounts with a quota takes 0.1 s if none has changed. If all have changed, it takes 0.3 s on the reading thread of SQLite,
 * and 4 s on PostgreSQL, on each node. Accounts without a quota cost nothing. The duty sleeps if nothing comes in and no account is over its
 * quota.
 */
export function storageDuty({ store, clock }: { store: Store; clock: Clock }): Duty {
  const news = new News({ store, clock });
  let limited: readonly Account[] = [];
  let readAt: Millis | null = null;
  let lookedAt: Millis = -Infinity;
  /** Whether something may change without any news: deletions bring none. */
  let isAwake = true;
  store.onAccounts(() => {
    readAt = null;
    isAwake = true;
  });
  const mustRead = (now: Millis): boolean => readAt === null || now >= readAt + longest || now < readAt;
  const look = async (): Promise<void> => {
    const now = clock.now();
    // A quota may be new, so all accounts that have one are looked at.
    const since = mustRead(now) ? null : Math.min(now, lookedAt) - recent;
    if (since === null) {
      readAt = now;
      limited = (await store.read.accounts()).filter(hasStorageQuota);
    }
    const changed = limited.length === 0 ? [] : await store.read.storedBytes(idsOf(limited), since);
    const bytesOf = new Map(changed.map(({ account, bytes }) => [account, bytes]));
    for (const account of limited) {
      const bytes = bytesOf.get(account.id);
      if (bytes !== undefined && storageLevel(account, bytes) !== notedLevel(account))
        await store.execute("noteStorage", { account: account.id, bytes });
    }
    lookedAt = now;
    isAwake = readAt === null || changed.length > 0 || limited.some((account) => notedLevel(account) !== null);
  };
  return {
    name: "looking at what accounts store",
    pause: period,
    nextAt: async () => (isAwake || news.since !== null ? -Infinity : Infinity),
    onNews: (listener) => {
      const ends = [news.listen(listener), store.onAccounts(listener)];
      return () => ends.forEach((end) => end());
    },
    run: () =>
      news.dealWith(() =>
        look().catch((error: unknown) => {
          readAt = null;
          throw error;
        }),
      ),
  };
}

const idsOf = (accounts: readonly Account[]): AccountId[] => accounts.map(({ id }) => id);
