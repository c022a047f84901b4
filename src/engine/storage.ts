import { hasQuota, isMeasured, isStorageNews } from "../core/quota.ts";
import type { Account, Millis } from "../core/message.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "./clock.ts";
import { News } from "./news.ts";
import type { Duty } from "./timers.ts";

/** The time between two turns. */
const period: Millis = 10_000;
/** Accounts are read again after this time: word of a change may have been lost on its way from another node. */
const longest: Millis = 600_000;

/**
 * Adds up what accounts with a quota have in storage, by their buckets, and notes which of them are over it. An account that has just got its
 * quota is measured once, row by row, because older rows were never counted. Accounts without a quota are not looked at. A stored row need
 * not become due, so while any account has a quota the duty runs all the time, and not after news.
 */
export function storageDuty({ store, clock }: { store: Store; clock: Clock }): Duty {
  const news = new News({ store, clock });
  let measured: readonly Account[] | null = null;
  let readAt: Millis = 0;
  let changes = 0;
  store.onAccounts(() => {
    changes++;
    measured = null;
  });
  return {
    name: "adding up storage",
    pause: period,
    nextAt: async () => {
      if (measured === null || measured.length > 0) return 0;
      return news.since === null ? Infinity : Math.max(news.since, readAt + longest);
    },
    onNews: (listener) => {
      const ends = [news.listen(listener), store.onAccounts(listener)];
      return () => ends.forEach((end) => end());
    },
    run: () =>
      news.dealWith(async () => {
        let found = measured ?? [];
        if (measured === null || clock.now() >= readAt + longest || clock.now() < readAt) {
          const seen = changes;
          found = (await store.read.accounts()).filter(isMeasured);
          readAt = clock.now();
          // Changes since then are looked at in the next turn.
          measured = seen === changes ? found : null;
        }
        let failed: PromiseRejectedResult | null = null;
        for (const account of found) {
          const [end] = await Promise.allSettled([addUp(store, account)]);
          if (end.status === "rejected") failed = end;
          // The accounts that were read are outdated: this was noted now, or on another node before.
          else if (end.value) measured = null;
        }
        if (failed) throw failed.reason;
      }),
  };
}

/** Reports whether there was something to note. */
async function addUp(store: Store, account: Account): Promise<boolean> {
  const { id } = account;
  if (hasQuota(account) && account.storage === undefined) {
    const { found, counted } = await store.read.measuredBytes(id);
    await store.execute("noteStorage", { account: id, bytes: found, uncounted: found - counted });
    return true;
  }
  const bytes = await store.read.storedBytes(id);
  if (!isStorageNews(account, bytes)) return false;
  await store.execute("noteStorage", { account: id, bytes });
  return true;
}
