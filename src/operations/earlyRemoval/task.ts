import type { Clock } from "../../engine/clock/clock.ts";
import { type Retention, retentionFor } from "../../engine/core/accounts/retention.ts";
import type { Account } from "../../engine/core/model/account.ts";
import { leastHistory, shortenRetention } from "../../engine/core/node/diskGuard.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { second } from "../../engine/core/values/time.ts";
import type { Store } from "../../engine/store/store.ts";
import type { MaintenanceTask } from "../../engine/upkeep/scheduler.ts";
import { WorkSignal } from "../../engine/upkeep/workSignal.ts";

/** The room on the disk is read after each slice, so a slice is small: messages may have large bodies. */
const rowsPerSlice = 100;
/** A run is this short, so that it does not keep the server from stopping. */
const runTime: Millis = second;
/** The pause between two slices, in which others use the disk. */
const slicePause: Millis = 20;
/** The maximum number of steps in which a run gives space back to the disk. */
const stepsPerRun = 20;
/**
 * The disk is looked at once a second. While nothing is stored, only other programs fill it: `idleInterval`.
 */
const checkInterval: Millis = second;
const idleInterval: Millis = 10 * second;

type EarlyRemovalOptions = {
  store: Store;
  clock: Clock;
  retention: Retention;
  /** Receives the number of rows that were removed. */
  onRemoved(rows: number): void;
};

/**
 * Returns the task that removes history before its retention ends while the disk has little room. It removes
 * the whole log of finished messages with their bodies, and ended runs, the oldest of all accounts first. The
 * rules of retention hold: what is unfinished and what has a dead letter is kept. The task stops as soon as
 * the disk has room.
 */
export function createEarlyRemovalTask({
  store,
  clock,
  retention,
  onRemoved,
}: EarlyRemovalOptions): MaintenanceTask {
  const { disk } = store.upkeep;
  let pass: Pass | null = null;
  let passEndedAt: Millis | null = null;
  let lookedAt: Millis = Number.NEGATIVE_INFINITY;
  const workSignal = new WorkSignal({ store, clock });
  const pause = (): Promise<void> => clock.sleep(clock.now() + slicePause, neverAborted);
  /** After all that may be removed is gone, more is looked for when what was younger has the age. */
  const mayBegin = (now: Millis, least: Millis): boolean =>
    passEndedAt === null || now >= passEndedAt + least || now < passEndedAt;
  const removeWhileShort = async (): Promise<void> => {
    const end = clock.now() + runTime;
    const least = leastHistory(disk?.isLow() === true);
    if (pass === null && mayBegin(clock.now(), least))
      pass = new Pass(store, { accounts: await store.read.accounts(), retention, least });
    while (pass !== null && clock.now() < end && disk?.isShort()) {
      const removed = await pass.removeSlice(clock.now());
      if (removed > 0) onRemoved(removed);
      if (pass.isOver) {
        pass = null;
        passEndedAt = clock.now();
      }
      await pause();
    }
  };
  return {
    name: "removing history early",
    nextAt: async () => {
      if (!disk) return Infinity;
      return workSignal.since !== null || disk.isShort() || disk.isLow()
        ? clock.now()
        : lookedAt + idleInterval;
    },
    pause: checkInterval,
    run: () =>
      workSignal.handle(async () => {
        lookedAt = clock.now();
        if (disk?.isShort()) await removeWhileShort();
        else pass = passEndedAt = null;
        if (!disk?.isShort() && !disk?.isLow()) return;
        for (let step = 0; step < stepsPerRun && (await disk?.giveBackSpace()); step++) await pause();
      }),
    onWork: (listener) => workSignal.listen(listener),
  };
}

const neverAborted = new AbortController().signal;

/** One pass over all accounts, in rounds that keep less and less history. */
class Pass {
  readonly #store: Store;
  readonly #accounts: readonly Account[];
  readonly #retention: Retention;
  readonly #least: Millis;
  #round = 0;
  #account = 0;
  /** Whether an account has a shorter retention in this round. */
  #shortens = false;
  isOver = false;

  constructor(
    store: Store,
    { accounts, retention, least }: { accounts: readonly Account[]; retention: Retention; least: Millis },
  ) {
    this.#store = store;
    this.#accounts = accounts;
    this.#retention = retention;
    this.#least = least;
  }

  /** Removes the oldest rows of the next account that has old ones. Returns their number. */
  async removeSlice(now: Millis): Promise<number> {
    for (let looks = 0; looks < accountsPerSlice && !this.isOver; looks++) {
      const account = this.#accounts[this.#account];
      const kept = account && this.#shorten(account);
      if (kept && ((await this.#store.read.nextExpiryAt(account.id, kept)) ?? Infinity) <= now) {
        const input = { account: account.id, retention: kept, now, limit: rowsPerSlice };
        const { removed, more } = await this.#store.execute("expire", input);
        if (!more) this.#advance();
        return removed;
      }
      this.#advance();
    }
    return 0;
  }

  #shorten(account: Account): Required<Retention> | null {
    const own = retentionFor(account, this.#retention);
    const log = shortenRetention(own.log, this.#round, this.#least);
    if (log === null) return null;
    this.#shortens = true;
    return { ...own, log };
  }

  #advance(): void {
    this.#account++;
    if (this.#account < this.#accounts.length) return;
    this.isOver = !this.#shortens;
    this.#shortens = false;
    this.#account = 0;
    this.#round++;
  }
}

/** At most this many accounts are looked at for one slice. */
const accountsPerSlice = 200;
