import type { Key, Rows, TableName } from "../../core/decision/command.ts";
import type { Account, AccountId, SendSettings } from "../../core/model/message.ts";
import type { WorkingSet } from "../batch/workingSet.ts";
import type { Loader } from "../batch/loader.ts";
import { RecentCounts } from "./recentCounts.ts";
import { BoundedMap } from "../../core/values/boundedMap.ts";

/** Rows that change again some milliseconds after they were written. */
const cachedTables = ["messages", "activeRuns", "runs"] as const;
type CachedTable = (typeof cachedTables)[number];

/**
 * Rows of a generation. Of messages, some 400 bytes each, and of what runs have counted, these are more than this node can have under way;
 * of runs, which carry the headers they were started with, fewer.
 */
const maxRows: { readonly [T in CachedTable]: number } = { messages: 5_000, activeRuns: 5_000, runs: 1_000 };
const maxAccounts = 1_000;
/** Letters of the headers that a run is sent with. */
const maxHeaderLength = 4_096;

/**
 * What was written last, so that it need not be asked for again: most messages are looked at once more, when their outcome comes, some
 * milliseconds after they were written, and runs at each of their steps. For a storage with one writer, which forgets it all when
 * something changed behind its back.
 */
export class RecentRows {
  readonly #rows = { messages: new RowCache("messages"), activeRuns: new RowCache("activeRuns"), runs: new RowCache("runs") };
  readonly #accounts = new BoundedMap<AccountId, Account>(maxAccounts);
  readonly #counts = new RecentCounts();

  /** Learns what a batch has written. To be told when it is stored, and not before. */
  record(set: Pick<WorkingSet, "changes">): void {
    // An account is changed only where it still is what was read, so it must have been read.
    for (const { key } of set.changes("accounts")) this.#accounts.delete(key[0]);
    for (const table of cachedTables) this.#recordTable(table, set);
    this.#counts.record(set);
  }

  #recordTable<T extends CachedTable>(table: T, set: Pick<WorkingSet, "changes">): void {
    const recent = this.#table(table);
    for (const { key, now } of set.changes(table)) recent.keep(key, now);
  }

  forget(): void {
    for (const table of cachedTables) this.#rows[table].forget();
    this.#counts.forget();
    this.#accounts.clear();
  }

  /** The same rows as `loader`, which is asked only for those that are not known. */
  cachedLoader(loader: Loader): Loader {
    const rows = async <T extends TableName>(table: T, keys: readonly Key[], options?: { bodies?: false }): Promise<readonly Rows[T][]> => {
      const loadRest = (rest: readonly Key[]): Promise<readonly Rows[T][]> => loader.rows(table, rest, options);
      if (isCachedTable(table)) return loadMissing(keys, (key) => this.#table(table).get(key) as Rows[T] | undefined, loadRest);
      if (table !== "accounts") return loadRest(keys);
      const accounts = await loadMissing(keys, ([id]) => this.#accounts.get(id) as Rows[T] | undefined, loadRest);
      for (const account of accounts as readonly Account[]) this.#accounts.set(account.id, account);
      return accounts;
    };
    return { ...loader, rows, quotaCounts: this.#counts.cachedCounts(loader) };
  }

  #table<T extends CachedTable>(table: T): RowCache<T> {
    const all: { readonly [N in CachedTable]: RowCache<N> } = this.#rows;
    return all[table];
  }
}

const isCachedTable = (table: TableName): table is CachedTable => (cachedTables as readonly TableName[]).includes(table);

/** Rows of a table by their ids, in two generations, each in a `Map` of its own: see docs/decisions/0034. */
class RowCache<T extends CachedTable> {
  readonly #maxRows: number;
  #young = new Map<string, Rows[T]>();
  #older = new Map<string, Rows[T]>();
  #added = 0;

  constructor(table: T) {
    this.#maxRows = maxRows[table];
  }

  /** Accounts may have rows of the same id, of which the one that was written last is known. */
  get([account, id = ""]: Key): Rows[T] | undefined {
    const row = this.#young.get(id) ?? this.#older.get(id);
    return row?.account === account ? row : undefined;
  }

  keep([, id = ""]: Key, row: Rows[T] | undefined): void {
    if (row === undefined || !isWorthCaching(row)) {
      this.#young.delete(id);
      this.#older.delete(id);
      return;
    }
    this.#young.set(id, row);
    if (++this.#added < this.#maxRows) return;
    this.#added = 0;
    this.#older = this.#young;
    this.#young = new Map();
  }

  forget(): void {
    this.#young.clear();
    this.#older.clear();
  }
}

/** A run that has ended changes no more. Few have long headers, or an invoker, whose step is kept with them. */
const isWorthCaching = (row: Rows[CachedTable]): boolean =>
  !("settings" in row) || (row.endedAt === null && row.invoker === null && countHeaderCharacters(row.settings) <= maxHeaderLength);

const countHeaderCharacters = ({ headers, callback, failureCallback }: SendSettings): number =>
  [callback, failureCallback].reduce(
    (sum, settings) => sum + (settings ? countHeaderCharacters(settings) : 0),
    headers.reduce((sum, [name, value]) => sum + name.length + value.length, 0),
  );

async function loadMissing<Row>(
  keys: readonly Key[],
  findCached: (key: Key) => Row | undefined,
  load: (keys: readonly Key[]) => Promise<readonly Row[]>,
): Promise<readonly Row[]> {
  const rest: Key[] = [];
  const found: Row[] = [];
  for (const key of keys) {
    const row = findCached(key);
    if (row === undefined) rest.push(key);
    else found.push(row);
  }
  return rest.length === 0 ? found : found.concat(await load(rest));
}
