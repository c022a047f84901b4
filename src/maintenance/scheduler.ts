import { goneAt, isDeleted } from "../core/commands/account.ts";
import type { Retention } from "../core/commands/retention.ts";
import { retentionFor } from "../core/commands/retention.ts";
import type { Account, AccountId, Millis } from "../core/model/message.ts";
import type { Store, Unsubscribe } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";
import { News } from "./workSignal.ts";
import { hour, minute, second } from "../core/values/time.ts";

/** Something the server does by itself. It is not called without need: `nextAt` says when there may be something to do. */
export type Duty = {
  name: string;
  nextAt(): Promise<Millis>;
  /** Instead of the usual pause between two turns. */
  pause?: Millis;
  run(): Promise<void>;
  /** Says when `nextAt` may have become an earlier time. */
  onNews(listener: () => void): Unsubscribe;
};

/** Between two turns of a duty there is at least so much time. */
const shortestPause = 10 * minute;
const afterTrouble = minute;
const expireLimit = 500;
/** What is short-lived goes so long after something came in at the latest. */
const shortLived = hour;
/** History that an account keeps for less than this is removed at most a minute late. */
const shortRetention = hour;
const promptPause = 30 * second;

/** Does all duties, each when its time has come. A duty that fails is tried again; it never ends the others. */
export class Timers {
  readonly #duties: readonly Duty[];
  readonly #clock: Clock;
  readonly #trouble: (what: string, error: unknown) => void;
  readonly #end = new AbortController();
  #loops: Promise<void>[] = [];

  constructor(parts: { duties: readonly Duty[]; clock: Clock; trouble: (what: string, error: unknown) => void }) {
    this.#duties = parts.duties;
    this.#clock = parts.clock;
    this.#trouble = parts.trouble;
  }

  start(): void {
    this.#loops = this.#duties.map((duty) => this.#loop(duty));
  }

  /** Ends after the turn that is under way. */
  async stop(): Promise<void> {
    this.#end.abort();
    await Promise.all(this.#loops);
  }

  async #loop(duty: Duty): Promise<void> {
    let [earliest, pause] = [this.#clock.now(), 0];
    let news = new AbortController();
    const wake = (): void => news.abort();
    const unsubscribe = duty.onNews(wake);
    this.#end.signal.addEventListener("abort", wake);
    while (!this.#end.signal.aborted) {
      try {
        news = new AbortController();
        // A clock that was put back does not prolong the pause.
        earliest = Math.min(earliest, this.#clock.now() + pause);
        const at = Math.max(earliest, await duty.nextAt());
        await this.#clock.sleep(at, news.signal);
        if (news.signal.aborted) continue;
        await duty.run();
        pause = duty.pause ?? shortestPause;
        earliest = this.#clock.now() + pause;
      } catch (error) {
        this.#trouble(`${duty.name} failed; trying again in a minute`, error);
        await this.#clock.sleep(this.#clock.now() + afterTrouble, this.#end.signal);
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
export function retentionDuty({ store, clock, retention }: { store: Store; clock: Clock; retention: Retention }): Duty {
  const news = new News({ store, clock });
  return {
    name: "retention",
    nextAt: async () => {
      const accounts = await store.read.accounts();
      const times = await Promise.all(accounts.map((account) => nextTimeOf(account, { store, retention, accounts })));
      // Of what comes in from now on it is told.
      return [...times, news.since === null ? null : news.since + shortLived].reduce<Millis>(
        (least, at) => Math.min(least, at ?? Infinity),
        Infinity,
      );
    },
    onNews: (listener) => {
      // An account that was changed may have its history for a shorter time now, and may be one in which nothing else happens.
      const ends = [news.listen(listener), store.onAccounts(listener)];
      return () => ends.forEach((end) => end());
    },
    run: () => news.dealWith(() => expireAll({ store, clock, retention })),
  };
}

/**
 * Removes history of those accounts that keep some of it for less than an hour, so that it goes at most a minute after its time. It looks at
 * no other account, and sleeps if there is none.
 */
export function promptRetentionDuty({ store, clock, retention }: { store: Store; clock: Clock; retention: Retention }): Duty {
  const news = new News({ store, clock });
  const found = async (): Promise<{ account: Account; least: Millis }[]> => {
    const accounts = (await store.read.accounts()).map((account) => ({ account, least: leastOf(retentionFor(account, retention)) }));
    return accounts.filter(({ least }) => least < shortRetention);
  };
  return {
    name: "retention below an hour",
    pause: promptPause,
    nextAt: async () => {
      const some = await found();
      const times = await Promise.all(some.map(({ account }) => store.read.nextExpiryAt(account.id, retentionFor(account, retention))));
      const newest = news.since === null ? [] : some.map(({ least }) => (news.since ?? 0) + least + 1);
      return Math.min(Infinity, ...times.map((at) => at ?? Infinity), ...newest);
    },
    onNews: (listener) => {
      const ends = [news.listen(listener), store.onAccounts(listener)];
      return () => ends.forEach((end) => end());
    },
    run: () =>
      news.dealWith(async () => {
        for (const { account } of await found()) await expireOne(account, { store, clock, retention });
      }),
  };
}

const leastOf = ({ log, deadLetters, audit }: Required<Retention>): Millis => Math.min(log, deadLetters, audit);

/** When something of an account is past its time; the last to go is the row of a deleted one. */
async function nextTimeOf(
  account: Account,
  { store, retention, accounts }: { store: Store; retention: Retention; accounts: readonly Account[] },
): Promise<Millis | null> {
  const at = await store.read.nextExpiryAt(account.id, retentionFor(account, retention));
  if (at !== null || !isDeleted(account) || besides(accounts) === null) return at;
  // What has no time of its own goes when something else is done, and so does the row then.
  return (await store.read.isAnythingLeft(account.id)) ? null : goneAt(account);
}

/** One of those that are not deleted, beside which the rows of others may go. */
const besides = (accounts: readonly Account[]): AccountId | null => accounts.find((account) => !isDeleted(account))?.id ?? null;

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
  const longest = accounts.reduce((most, account) => Math.max(most, retentionFor(account, retention).log), retention.log);
  await store.forgetBefore(clock.now() - longest);
  for (const account of accounts) {
    await expireOne(account, { store, clock, retention });
    const [at, beside] = [goneAt(account), besides(accounts)];
    if (at !== null && beside !== null && at <= clock.now() && !(await store.read.isAnythingLeft(account.id)))
      await store.execute("removeAccount", { account: account.id, beside });
  }
  // Now that nothing of it is left in them, old parts of the log can go.
  await store.forgetBefore(clock.now() - longest);
}
