import type { Account, AccountId, Millis } from "../core/model/message.ts";
import { limitOf } from "../core/accounts/plans.ts";
import { hasStorageQuota, notedLevel, storageLevel } from "../core/accounts/storageQuota.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";
import { News } from "./workSignal.ts";
import type { Duty } from "./scheduler.ts";
import { minute, second } from "../core/values/time.ts";

/** Time between two looks while accounts change. */
const period: Millis = 10 * second;
/** An account counts as changed this long: the buckets of its changes are of whole minutes, and clocks of nodes differ. */
const recent: Millis = 2 * minute;
/** The list of accounts is read again after this at the latest: news of a change may have been lost on its way from another node. */
const longest: Millis = 10 * minute;

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
  const bytesStored = async (accounts: readonly Account[], changedSince: Millis | null) =>
    accounts.length === 0 ? [] : store.read.storedBytes(idsOf(accounts), changedSince);
  const look = async (): Promise<void> => {
    const now = clock.now();
    const before = new Map(limited.map((account) => [account.id, limitOf(account, "storageBytes")]));
    if (mustRead(now)) {
      readAt = now;
      limited = (await store.read.accounts()).filter(hasStorageQuota);
    }
    // Of an account whose quota is new it is not known what it stored before.
    const isNew = (account: Account): boolean => before.get(account.id) !== limitOf(account, "storageBytes");
    const since = Math.min(now, lookedAt) - recent;
    const changed = [
      ...(await bytesStored(limited.filter(isNew), null)),
      ...(await bytesStored(
        limited.filter((account) => !isNew(account)),
        since,
      )),
    ];
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
          limited = [];
          throw error;
        }),
      ),
  };
}

const idsOf = (accounts: readonly Account[]): AccountId[] => accounts.map(({ id }) => id);
