import type { Key, Rows, TableName } from "../../core/decision/command.ts";
import type { Account } from "../../core/model/account.ts";
import type { AccountId } from "../../core/values/basics.ts";
import type { SendSettings } from "../../core/model/sendSettings.ts";
import type { WorkingSet } from "../batch/workingSet.ts";
import type { Loader } from "../batch/loader.ts";
import { RecentCounts } from "./recentCounts.ts";
import { BoundedMap } from "../../core/caches/boundedMap.ts";

/** The tables whose rows change again a few milliseconds after they were written. */
const cachedTables = ["messages", "activeRuns", "runs"] as const;
type CachedTable = (typeof cachedTables)[number];

/**
 * The maximum number of rows per generation. A message takes about 400 bytes. For messages and active runs,
 * the maximum exceeds what this node can have in flight. Runs contain headers, so fewer rows of runs are
 * kept.
 */
const maxRows: { readonly [T in CachedTable]: number } = { messages: 5_000, activeRuns: 5_000, runs: 1_000 };
const maxAccounts = 1_000;
/** The maximum number of characters in the headers of a cached run. */
const maxHeaderLength = 4_096;

/**
 * Caches the rows that were written last, so that they need not be read again. Most messages are read again a
 * few milliseconds later, when their outcome arrives. Runs are read at each step. Only for a storage with one
 * writer. The cache must be cleared when another connection has changed the data.
 */
export class RecentRows {
  readonly #rows = {
    messages: new RowCache("messages"),
    activeRuns: new RowCache("activeRuns"),
    runs: new RowCache("runs"),
  };
  readonly #accounts = new BoundedMap<AccountId, Account>(maxAccounts);
  readonly #counts = new RecentCounts();

  /** Adds the rows of a batch. Must be called after the batch is stored, not before. */
  record(set: Pick<WorkingSet, "changes">): void {
    // The next change of an account compares the row with the columns that were read, so a changed account
    // must be read from the database again.
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

  /** Returns a loader that takes rows from this cache, and loads other rows through the given loader. */
  cachedLoader(loader: Loader): Loader {
    const rows = async <T extends TableName>(
      table: T,
      keys: readonly Key[],
      options?: { bodies?: false },
    ): Promise<readonly Rows[T][]> => {
      const loadRest = (rest: readonly Key[]): Promise<readonly Rows[T][]> =>
        loader.rows(table, rest, options);
      if (isCachedTable(table))
        return loadMissing(keys, (key) => this.#table(table).get(key) as Rows[T] | undefined, loadRest);
      if (table !== "accounts") return loadRest(keys);
      const accounts = await loadMissing(
        keys,
        ([id]) => this.#accounts.get(id) as Rows[T] | undefined,
        loadRest,
      );
      for (const account of accounts as readonly Account[]) this.#accounts.set(account.id, account);
      return accounts;
    };
    const { now: stored } = loader;
    const now: Loader["now"] = stored && {
      ...stored,
      row: (table, key, options) => {
        const cached = this.#find(table, key);
        if (cached !== undefined) return cached;
        const row = stored.row(table, key, options);
        if (table === "accounts" && row !== undefined) this.#accounts.set(key[0], row as Account);
        return row;
      },
    };
    return { ...loader, rows, now, quotaCounts: this.#counts.cachedCounts(loader) };
  }

  #find<T extends TableName>(table: T, key: Key): Rows[T] | undefined {
    if (isCachedTable(table)) return this.#table(table).get(key);
    return table === "accounts" ? (this.#accounts.get(key[0]) as Rows[T] | undefined) : undefined;
  }

  #table<T extends CachedTable>(table: T): RowCache<T> {
    const all: { readonly [N in CachedTable]: RowCache<N> } = this.#rows;
    return all[table];
  }
}

const isCachedTable = (table: TableName): table is CachedTable =>
  (cachedTables as readonly TableName[]).includes(table);

/** Rows of one table by id, in two generations with one `Map` each: see docs/decisions/0034. */
class RowCache<T extends CachedTable> {
  readonly #maxRows: number;
  #young = new Map<string, Rows[T]>();
  #older = new Map<string, Rows[T]>();
  #added = 0;

  constructor(table: T) {
    this.#maxRows = maxRows[table];
  }

  /** If several accounts have a row with the same id, only the row that was written last is known. */
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

/**
 * Reports whether a row is worth caching. A run that has ended does not change again. Runs with long headers,
 * or with an invoker whose step the row contains, are large and rare.
 */
const isWorthCaching = (row: Rows[CachedTable]): boolean =>
  !("settings" in row) ||
  (row.endedAt === null && row.invoker === null && countHeaderCharacters(row.settings) <= maxHeaderLength);

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
