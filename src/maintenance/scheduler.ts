import { removableAt, isDeleted } from "../core/commands/account.ts";
import type { Retention } from "../core/commands/retention.ts";
import { retentionFor } from "../core/commands/retention.ts";
import type { Account, AccountId, Millis } from "../core/model/message.ts";
import type { Store, Unsubscribe } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";
import { WorkSignal } from "./workSignal.ts";
import { hour, minute, second } from "../core/values/time.ts";

/** Something the server does by itself. It is not called without need: `nextAt` says when there may be something to do. */
export type MaintenanceTask = {
  name: string;
  nextAt(): Promise<Millis>;
  /** Instead of the usual pause between two turns. */
  pause?: Millis;
  run(): Promise<void>;
  /** Says when `nextAt` may have become an earlier time. */
  onWork(listener: () => void): Unsubscribe;
};

/** Between two turns of a duty there is at least so much time. */
const minPause = 10 * minute;
const failurePause = minute;
const expireLimit = 500;
/** What is short-lived goes so long after something came in at the latest. */
const shortLivedCheck = hour;
/** History that an account keeps for less than this is removed at most a minute late. */
const shortRetention = hour;
const promptPause = 30 * second;

/** Does all duties, each when its time has come. A duty that fails is tried again; it never ends the others. */
export class MaintenanceScheduler {
  readonly #tasks: readonly MaintenanceTask[];
  readonly #clock: Clock;
  readonly #logFailure: (message: string, error: unknown) => void;
  readonly #end = new AbortController();
  #loops: Promise<void>[] = [];

  constructor(options: { tasks: readonly MaintenanceTask[]; clock: Clock; logFailure: (message: string, error: unknown) => void }) {
    this.#tasks = options.tasks;
    this.#clock = options.clock;
    this.#logFailure = options.logFailure;
  }

  start(): void {
    this.#loops = this.#tasks.map((task) => this.#runTask(task));
  }

  /** Ends after the turn that is under way. */
  async stop(): Promise<void> {
    this.#end.abort();
    await Promise.all(this.#loops);
  }

  async #runTask(task: MaintenanceTask): Promise<void> {
    let earliest = this.#clock.now();
    let pause = 0;
    let wakeSignal = new AbortController();
    const wake = (): void => wakeSignal.abort();
    const unsubscribe = task.onWork(wake);
    this.#end.signal.addEventListener("abort", wake);
    while (!this.#end.signal.aborted) {
      try {
        wakeSignal = new AbortController();
        // A clock that was put back does not prolong the pause.
        earliest = Math.min(earliest, this.#clock.now() + pause);
        const at = Math.max(earliest, await task.nextAt());
        await this.#clock.sleep(at, wakeSignal.signal);
        if (wakeSignal.signal.aborted) continue;
        await task.run();
        pause = task.pause ?? minPause;
        earliest = this.#clock.now() + pause;
      } catch (error) {
        this.#logFailure(`${task.name} failed; trying again in a minute`, error);
        await this.#clock.sleep(this.#clock.now() + failurePause, this.#end.signal);
      }
    }
    unsubscribe();
  }
}

/**
 * Removes history that is past its time, some hundred rows per transaction, so that it never holds anybody up.
 *
 * What comes in while it sleeps may be past its time long before what was there: deduplication keys live for minutes,
 * the log for days. So it looks again within an hour of the first thing that comes in; where nothing does, it sleeps on.
 */
export function createRetentionTask({ store, clock, retention }: { store: Store; clock: Clock; retention: Retention }): MaintenanceTask {
  const workSignal = new WorkSignal({ store, clock });
  return {
    name: "retention",
    nextAt: async () => {
      const accounts = await store.read.accounts();
      const times = await Promise.all(accounts.map((account) => findNextExpiry(account, { store, retention, accounts })));
      // Of what comes in from now on it is told.
      return [...times, workSignal.since === null ? null : workSignal.since + shortLivedCheck].reduce<Millis>(
        (earliest, at) => Math.min(earliest, at ?? Infinity),
        Infinity,
      );
    },
    onWork: (listener) => {
      // An account that was changed may have its history for a shorter time now, and may be one in which nothing else happens.
      const ends = [workSignal.listen(listener), store.onAccounts(listener)];
      return () => ends.forEach((end) => end());
    },
    run: () => workSignal.handle(() => expireAll({ store, clock, retention })),
  };
}

/**
 * Removes history of those accounts that keep some of it for less than an hour, so that it goes at most a minute after its time. It looks at
 * no other account, and sleeps if there is none.
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
  const listAccounts = async (): Promise<{ account: Account; shortest: Millis }[]> => {
    const accounts = (await store.read.accounts()).map((account) => ({
      account,
      shortest: minRetention(retentionFor(account, retention)),
    }));
    return accounts.filter(({ shortest }) => shortest < shortRetention);
  };
  return {
    name: "retention below an hour",
    pause: promptPause,
    nextAt: async () => {
      const shortAccounts = await listAccounts();
      const times = await Promise.all(
        shortAccounts.map(({ account }) => store.read.nextExpiryAt(account.id, retentionFor(account, retention))),
      );
      const newest = workSignal.since === null ? [] : shortAccounts.map(({ shortest }) => (workSignal.since ?? 0) + shortest + 1);
      return Math.min(Infinity, ...times.map((at) => at ?? Infinity), ...newest);
    },
    onWork: (listener) => {
      const ends = [workSignal.listen(listener), store.onAccounts(listener)];
      return () => ends.forEach((end) => end());
    },
    run: () =>
      workSignal.handle(async () => {
        for (const { account } of await listAccounts()) await expireOne(account, { store, clock, retention });
      }),
  };
}

const minRetention = ({ log, deadLetters, audit }: Required<Retention>): Millis => Math.min(log, deadLetters, audit);

/** When something of an account is past its time; the last to go is the row of a deleted one. */
async function findNextExpiry(
  account: Account,
  { store, retention, accounts }: { store: Store; retention: Retention; accounts: readonly Account[] },
): Promise<Millis | null> {
  const at = await store.read.nextExpiryAt(account.id, retentionFor(account, retention));
  if (at !== null || !isDeleted(account) || findRemainingAccount(accounts) === null) return at;
  // What has no time of its own goes when something else is done, and so does the row then.
  return (await store.read.hasData(account.id)) ? null : removableAt(account);
}

/** One of those that are not deleted, beside which the rows of others may go. */
const findRemainingAccount = (accounts: readonly Account[]): AccountId | null =>
  accounts.find((account) => !isDeleted(account))?.id ?? null;

/** Removes what is past its time in an account, some hundred rows per transaction. */
async function expireOne(
  account: Account,
  { store, clock, retention }: { store: Store; clock: Clock; retention: Retention },
): Promise<void> {
  const own = { account: account.id, retention: retentionFor(account, retention) };
  let more = true;
  while (more) ({ more } = await store.execute("expire", { ...own, now: clock.now(), limit: expireLimit }));
}

async function expireAll({ store, clock, retention }: { store: Store; clock: Clock; retention: Retention }): Promise<void> {
  const accounts = await store.read.accounts();
  const longestRetention = accounts.reduce((most, account) => Math.max(most, retentionFor(account, retention).log), retention.log);
  await store.forgetBefore(clock.now() - longestRetention);
  for (const account of accounts) {
    await expireOne(account, { store, clock, retention });
    const at = removableAt(account);
    const remaining = findRemainingAccount(accounts);
    if (at !== null && remaining !== null && at <= clock.now() && !(await store.read.hasData(account.id)))
      await store.execute("removeAccount", { account: account.id, remaining });
  }
  // Now that nothing of it is left in them, old parts of the log can go.
  await store.forgetBefore(clock.now() - longestRetention);
}
