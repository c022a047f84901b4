import type { Key, Rows, TableName } from "../../core/decision/command.ts";
import type { Account, AccountId, SendSettings } from "../../core/model/message.ts";
import type { WorkingSet } from "../batch/workingSet.ts";
import type { Loader } from "../batch/loader.ts";
import { RecentCounts } from "./recentCounts.ts";
import { BoundedMap } from "../../core/values/boundedMap.ts";

/** Rows that change again some milliseconds after they were written. */
const followed = ["messages", "activeRuns", "runs"] as const;
type Followed = (typeof followed)[number];

/**
 * Rows of a generation. Of messages, some 400 bytes each, and of what runs have counted, these are more than this node can have under way;
 * of runs, which carry the headers they were started with, fewer.
 */
const most: { readonly [T in Followed]: number } = { messages: 5_000, activeRuns: 5_000, runs: 1_000 };
const mostAccounts = 1_000;
/** Letters of the headers that a run is sent with. */
const longestHeaders = 4_096;

/**
 * What was written last, so that it need not be asked for again: most messages are looked at once more, when their outcome comes, some
 * milliseconds after they were written, and runs at each of their steps. For a storage with one writer, which forgets it all when
 * something changed behind its back.
 */
export class RecentRows {
  readonly #rows = { messages: new Recent("messages"), activeRuns: new Recent("activeRuns"), runs: new Recent("runs") };
  readonly #accounts = new BoundedMap<AccountId, Account>(mostAccounts);
  readonly #counts = new RecentCounts();

  /** Learns what a batch has written. To be told when it is stored, and not before. */
  learn(set: Pick<WorkingSet, "changes">): void {
    // An account is changed only where it still is what was read, so it must have been read.
    for (const { key } of set.changes("accounts")) this.#accounts.delete(key[0]);
    for (const table of followed) this.#learn(table, set);
    this.#counts.learn(set);
  }

  #learn<T extends Followed>(table: T, set: Pick<WorkingSet, "changes">): void {
    const recent = this.#of(table);
    for (const { key, now } of set.changes(table)) recent.keep(key, now);
  }

  forget(): void {
    for (const table of followed) this.#rows[table].forget();
    this.#counts.forget();
    this.#accounts.clear();
  }

  /** The same rows as `loader`, which is asked only for those that are not known. */
  before(loader: Loader): Loader {
    const rows = async <T extends TableName>(table: T, keys: readonly Key[], how?: { bodies?: false }): Promise<readonly Rows[T][]> => {
      const ask = (rest: readonly Key[]): Promise<readonly Rows[T][]> => loader.rows(table, rest, how);
      if (isFollowed(table)) return withKnown(keys, (key) => this.#of(table).get(key) as Rows[T] | undefined, ask);
      if (table !== "accounts") return ask(keys);
      const found = await withKnown(keys, ([id]) => this.#accounts.get(id) as Rows[T] | undefined, ask);
      for (const account of found as readonly Account[]) this.#accounts.set(account.id, account);
      return found;
    };
    return { ...loader, rows, counts: this.#counts.before(loader) };
  }

  #of<T extends Followed>(table: T): Recent<T> {
    const all: { readonly [N in Followed]: Recent<N> } = this.#rows;
    return all[table];
  }
}

const isFollowed = (table: TableName): table is Followed => (followed as readonly TableName[]).includes(table);

/** Rows of a table by their ids, in two generations, each in a `Map` of its own: see docs/decisions/0034. */
class Recent<T extends Followed> {
  readonly #most: number;
  #young = new Map<string, Rows[T]>();
  #older = new Map<string, Rows[T]>();
  #learned = 0;

  constructor(table: T) {
    this.#most = most[table];
  }

  /** Accounts may have rows of the same id, of which the one that was written last is known. */
  get([account, id = ""]: Key): Rows[T] | undefined {
    const row = this.#young.get(id) ?? this.#older.get(id);
    return row?.account === account ? row : undefined;
  }

  keep([, id = ""]: Key, row: Rows[T] | undefined): void {
    if (row === undefined || !isWorthIt(row)) {
      this.#young.delete(id);
      this.#older.delete(id);
      return;
    }
    this.#young.set(id, row);
    if (++this.#learned < this.#most) return;
    this.#learned = 0;
    this.#older = this.#young;
    this.#young = new Map();
  }

  forget(): void {
    this.#young.clear();
    this.#older.clear();
  }
}

/** A run that has ended changes no more. Few have long headers, or an invoker, whose step is kept with them. */
const isWorthIt = (row: Rows[Followed]): boolean =>
  !("settings" in row) || (row.endedAt === null && row.invoker === null && lettersOf(row.settings) <= longestHeaders);

const lettersOf = ({ headers, callback, failureCallback }: SendSettings): number =>
  [callback, failureCallback].reduce(
    (sum, told) => sum + (told ? lettersOf(told) : 0),
    headers.reduce((sum, [name, value]) => sum + name.length + value.length, 0),
  );

async function withKnown<Row>(
  keys: readonly Key[],
  known: (key: Key) => Row | undefined,
  ask: (keys: readonly Key[]) => Promise<readonly Row[]>,
): Promise<readonly Row[]> {
  const rest: Key[] = [];
  const found: Row[] = [];
  for (const key of keys) {
    const row = known(key);
    if (row === undefined) rest.push(key);
    else found.push(row);
  }
  return rest.length === 0 ? found : found.concat(await ask(rest));
}
