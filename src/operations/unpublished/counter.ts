import type { Unpublished } from "../../api/route/unpublishedCounter.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { serverAccount } from "../../engine/core/values/basics.ts";
import { copyText } from "../../engine/core/caches/copyText.ts";
import { minute, second } from "../../engine/core/values/time.ts";
import type { Store, Unsubscribe } from "../../engine/store/store.ts";
import type { MaintenanceTask } from "../../engine/upkeep/scheduler.ts";
import type { Increment, Series } from "./series.ts";
import { joinIncrements, maxIdLength, maxSeries, other, toPeriod, toSeriesId } from "./series.ts";

/** The series that a node keeps until it stores them. All others are counted together, for the server. */
const maxCounts = 10_000;
/** The pause between two times at which a node stores its counts. */
const storePause: Millis = 10 * second;
/** The accounts whose counts are stored together. */
const accountsAtOnce = 100;
const removedAtOnce = 100;
/** How often old series are looked for, if something is counted. */
const removalPause: Millis = 10 * minute;

type Counts = Map<AccountId, Map<string, Increment>>;

/**
 * Counts the requests to this node that never became a message, and stores the counts now and then. So a
 * flood of refused requests causes no flood of writes. A node that is killed loses what it has counted since.
 */
export class SeriesCounter {
  readonly #store: Store;
  readonly #now: () => Millis;
  #counts: Counts = new Map();
  #size = 0;
  #storing: Promise<void> = Promise.resolve();
  #removedAt = 0;
  readonly #listeners = new Set<() => void>();

  constructor({ store, now }: { store: Store; now: () => Millis }) {
    this.#store = store;
    this.#now = now;
  }

  /** Counts one. */
  note({ account, subject, reason, address, messageId, deduplicationId }: Unpublished): void {
    const at = this.#now();
    const wasEmpty = this.#counts.size === 0;
    this.#add(account, {
      ...{ subject, reason, firstAt: at, minutes: [[toPeriod(at, minute), 1]] },
      last: {
        at,
        address: address === null ? null : copyText(address),
        ...(messageId !== undefined && { messageId }),
        ...(deduplicationId !== undefined && {
          deduplicationId: copyText(deduplicationId.slice(0, maxIdLength)),
        }),
      },
    });
    if (wasEmpty) for (const listener of this.#listeners) listener();
  }

  /** Stores what was counted. */
  store(): Promise<void> {
    this.#storing = this.#storing.catch(() => undefined).then(() => this.#storeAll());
    return this.#storing;
  }

  /** Returns the task that stores the counts, and removes old series. */
  createTask(): MaintenanceTask {
    return {
      name: "series of refused requests",
      pause: storePause,
      nextAt: async () => (this.#counts.size === 0 ? Infinity : this.#now()),
      onWork: (listener): Unsubscribe => {
        this.#listeners.add(listener);
        return () => this.#listeners.delete(listener);
      },
      run: async () => {
        await this.store();
        await this.#removeOld();
      },
    };
  }

  #add(account: AccountId, increment: Increment): void {
    const counts = this.#counts.get(account);
    if (counts?.has(toSeriesId(increment)) || this.#size < maxCounts) {
      const fits = counts === undefined || counts.size < maxSeries || counts.has(toSeriesId(increment));
      this.#addTo(account, fits ? increment : { ...increment, subject: other, reason: other });
    } else this.#addTo(serverAccount, { ...increment, subject: other, reason: other });
  }

  #addTo(account: AccountId, increment: Increment): void {
    const counts = this.#counts.get(account) ?? new Map<string, Increment>();
    this.#counts.set(account, counts);
    const id = toSeriesId(increment);
    const before = counts.get(id);
    if (!before) this.#size++;
    counts.set(id, before ? joinIncrements(before, increment) : increment);
  }

  async #storeAll(): Promise<void> {
    const all = [...this.#counts];
    this.#counts = new Map();
    this.#size = 0;
    const failures: unknown[] = [];
    for (let at = 0; at < all.length; at += accountsAtOnce)
      await Promise.all(
        all.slice(at, at + accountsAtOnce).map(async ([account, counts]) => {
          const increments = [...counts.values()];
          await this.#store.execute("addToAllSeries", { account, increments }).catch((error: unknown) => {
            failures.push(error);
            for (const increment of increments) this.#add(account, increment);
          });
        }),
      );
    if (failures.length > 0) throw failures[0];
  }

  /** Removes series that have counted nothing for a week. */
  async #removeOld(): Promise<void> {
    const now = this.#now();
    if (Math.abs(now - this.#removedAt) < removalPause) return;
    this.#removedAt = now;
    const old = await this.#store.read.dueSeries(now, removedAtOnce);
    const byAccount = Map.groupBy(old, ({ account }: Series) => account);
    for (const [account, rows] of byAccount)
      await this.#store.execute("removeSeries", { account, ids: rows.map(({ id }) => id), reason: "age" });
  }
}
