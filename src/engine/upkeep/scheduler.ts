import { removableAt, isDeleted } from "../core/commands/account.ts";
import type { Retention } from "../core/accounts/retention.ts";
import { retentionFor } from "../core/accounts/retention.ts";
import type { Terms } from "../core/model/accountTerms.ts";
import type { Account } from "../core/model/account.ts";
import type { AccountId, Millis } from "../core/values/basics.ts";
import { serverAccount } from "../core/values/basics.ts";
import type { Store, Unsubscribe } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";
import { woken } from "../clock/clock.ts";
import { WorkSignal } from "./workSignal.ts";
import { hour, minute, second } from "../core/values/time.ts";

/**
 * Work that the server does by itself. `nextAt` returns the earliest time at which there may be work; the
 * task is not run before that.
 */
export type MaintenanceTask = {
  name: string;
  nextAt(): Promise<Millis>;
  /** The pause between two runs, instead of the default of 10 minutes. */
  pause?: Millis;
  run(): Promise<void>;
  /** Registers a listener that is called if `nextAt` may have become earlier. */
  onWork(listener: () => void): Unsubscribe;
};

/** The default for the shortest time between two runs of a task. */
const minPause = 10 * minute;
/** The pause after a failed run. */
const failurePause = minute;
const expireLimit = 500;
/** After something was stored, expired short-lived data is looked for at the latest after this time. */
const shortLivedCheck = hour;
/**
 * A retention below this is short. Such history is removed at most a minute after its retention has ended.
 */
const shortRetention = hour;
const promptPause = 30 * second;

/** The owner of the audit log of the server, which expires like that of an account without limits. */
const serverOwner: Owner = { id: serverAccount };

/** Runs every task when its time has come. A failed run is repeated, and does not affect other tasks. */
export class MaintenanceScheduler {
  readonly #tasks: readonly MaintenanceTask[];
  readonly #clock: Clock;
  readonly #logFailure: (message: string, error: unknown) => void;
  readonly #end = new AbortController();
  #loops: Promise<void>[] = [];

  constructor(options: {
    tasks: readonly MaintenanceTask[];
    clock: Clock;
    logFailure: (message: string, error: unknown) => void;
  }) {
    this.#tasks = options.tasks;
    this.#clock = options.clock;
    this.#logFailure = options.logFailure;
  }

  start(): void {
    this.#loops = this.#tasks.map((task) => this.#runTask(task));
  }

  /** Stops. Waits for the runs in progress. */
  async stop(): Promise<void> {
    this.#end.abort();
    await Promise.all(this.#loops);
  }

  async #runTask(task: MaintenanceTask): Promise<void> {
    let earliest = this.#clock.now();
    let pause = 0;
    let wakeSignal = new AbortController();
    const wake = (): void => wakeSignal.abort(woken);
    const unsubscribe = task.onWork(wake);
    this.#end.signal.addEventListener("abort", wake);
    while (!this.#end.signal.aborted) {
      try {
        wakeSignal = new AbortController();
        // A clock that is set back does not prolong the pause.
        earliest = Math.min(earliest, this.#clock.now() + pause);
        const at = Math.max(earliest, await task.nextAt());
        await this.#clock.sleep(at, wakeSignal.signal);
        if (wakeSignal.signal.aborted) continue;
        await task.run();
        pause = task.pause ?? minPause;
        earliest = this.#clock.now() + pause;
      } catch (error) {
        this.#logFailure(`${task.name} failed; it runs again in a minute`, error);
        await this.#clock.sleep(this.#clock.now() + failurePause, this.#end.signal);
      }
    }
    unsubscribe();
  }
}

/**
 * Returns the task that removes history past its retention. It removes a few hundred rows per transaction, so
 * that it does not delay others.
 *
 * New data may expire long before data stored earlier: deduplication keys live for minutes, the log for days.
 * The task therefore looks again within an hour after something was stored. If nothing is stored, it sleeps
 * until the next known expiry.
 */
export function createRetentionTask({
  store,
  clock,
  retention,
}: {
  store: Store;
  clock: Clock;
  retention: Retention;
}): MaintenanceTask {
  const workSignal = new WorkSignal({ store, clock });
  return {
    name: "retention",
    nextAt: async () => {
      const accounts = await store.read.accounts();
      const times = await Promise.all(
        accounts.map((account) => findNextExpiry(account, { store, retention, accounts })),
      );
      times.push(await store.read.nextExpiryAt(serverAccount, retention));
      // Data stored from now on is reported by `onWork`.
      return [...times, workSignal.since === null ? null : workSignal.since + shortLivedCheck].reduce<Millis>(
        (earliest, at) => Math.min(earliest, at ?? Infinity),
        Infinity,
      );
    },
    onWork: (listener) => {
      // A changed account may now have a shorter retention, even if nothing is stored in it.
      const ends = [workSignal.listen(listener), store.onAccounts(listener)];
      return () => ends.forEach((end) => end());
    },
    run: () => workSignal.handle(() => expireAll({ store, clock, retention })),
  };
}

/**
 * Returns the task for accounts that keep some history for less than an hour. The task removes that history
 * at most a minute after its retention. It reads no other accounts, and sleeps if no account keeps history so
 * briefly.
 */
export function createPromptRetentionTask({
  store,
  clock,
  retention,
}: {
  store: Store;
  clock: Clock;
  retention: Retention;
}): MaintenanceTask {
  const workSignal = new WorkSignal({ store, clock });
  const listOwners = async (): Promise<{ account: Owner; shortest: Millis }[]> => {
    const owners = [serverOwner, ...(await store.read.accounts())].map((account) => ({
      account,
      shortest: minRetention(retentionFor(account, retention)),
    }));
    return owners.filter(({ shortest }) => shortest < shortRetention);
  };
  return {
    name: "retention below an hour",
    pause: promptPause,
    nextAt: async () => {
      const shortOwners = await listOwners();
      const times = await Promise.all(
        shortOwners.map(({ account }) =>
          store.read.nextExpiryAt(account.id, retentionFor(account, retention)),
        ),
      );
      const newest =
        workSignal.since === null
          ? []
          : shortOwners.map(({ shortest }) => (workSignal.since ?? 0) + shortest + 1);
      return Math.min(Infinity, ...times.map((at) => at ?? Infinity), ...newest);
    },
    onWork: (listener) => {
      const ends = [workSignal.listen(listener), store.onAccounts(listener)];
      return () => ends.forEach((end) => end());
    },
    run: () =>
      workSignal.handle(async () => {
        for (const { account } of await listOwners()) await expireOne(account, { store, clock, retention });
      }),
  };
}

/** An account, or the server as a whole. */
type Owner = Pick<Account, "id"> & Terms;

const minRetention = ({ log, deadLetters, audit }: Required<Retention>): Millis =>
  Math.min(log, deadLetters, audit);

/** Returns when something of an account expires, or null. The row of a deleted account expires last. */
async function findNextExpiry(
  account: Account,
  { store, retention, accounts }: { store: Store; retention: Retention; accounts: readonly Account[] },
): Promise<Millis | null> {
  const at = await store.read.nextExpiryAt(account.id, retentionFor(account, retention));
  if (at !== null || !isDeleted(account) || findRemainingAccount(accounts) === null) return at;
  // Data without its own expiry is removed together with other data, and the row of the account after
  // it.
  return (await store.read.hasData(account.id)) ? null : removableAt(account);
}

/** Returns an account that is not deleted, or null. Without one, rows of deleted accounts must be kept. */
const findRemainingAccount = (accounts: readonly Account[]): AccountId | null =>
  accounts.find((account) => !isDeleted(account))?.id ?? null;

/** Removes everything past its retention in an account, a few hundred rows per transaction. */
async function expireOne(
  account: Owner,
  { store, clock, retention }: { store: Store; clock: Clock; retention: Retention },
): Promise<void> {
  const own = { account: account.id, retention: retentionFor(account, retention) };
  let more = true;
  while (more) ({ more } = await store.execute("expire", { ...own, now: clock.now(), limit: expireLimit }));
}

async function expireAll({
  store,
  clock,
  retention,
}: {
  store: Store;
  clock: Clock;
  retention: Retention;
}): Promise<void> {
  const accounts = await store.read.accounts();
  const longestRetention = accounts.reduce(
    (most, account) => Math.max(most, retentionFor(account, retention).log),
    retention.log,
  );
  await store.forgetBefore(clock.now() - longestRetention);
  await expireOne(serverOwner, { store, clock, retention });
  for (const account of accounts) {
    await expireOne(account, { store, clock, retention });
    const at = removableAt(account);
    const remaining = findRemainingAccount(accounts);
    if (at !== null && remaining !== null && at <= clock.now() && !(await store.read.hasData(account.id)))
      await store.execute("removeAccount", { account: account.id, remaining });
  }
  // Old partitions of the log can be dropped now that no account has entries in them.
  await store.forgetBefore(clock.now() - longestRetention);
}
