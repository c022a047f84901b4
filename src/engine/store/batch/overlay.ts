import type { Key, Rows, TableName } from "../../core/decision/command.ts";
import type { AccountId } from "../../core/values/basics.ts";
import type { RunKey } from "../../core/model/runPost.ts";
import { toKey } from "../catalog/rowKeys.ts";
import { listTables } from "../catalog/order.ts";
import { KeptEntries } from "./keptEntries.ts";
import { KeyMap } from "./keyMap.ts";
import { RunIndex } from "./runIndex.ts";
import type { UndoLog } from "./undoLog.ts";

/**
 * A change of one row. `before`: the row in the storage, or undefined if there is none. It is also undefined
 * if the row was not read; then `loaded` is false.
 */
export type Change<Row> = { key: Key; loaded: boolean; before: Row | undefined; now: Row | undefined };

/** Reports whether the batch has created a row. */
export const isCreated = ({ before, now }: Pick<Change<unknown>, "before" | "now">): boolean =>
  before === undefined && now !== undefined;

/**
 * The rows of one batch by table: as they were loaded, and as its commands left them. A table is created with
 * its first row, because a batch uses few of many tables.
 */
export class Overlay {
  /** The rows of each run. */
  readonly runIndex = new RunIndex();
  /** The entries of each message in the kept log. */
  readonly keptEntries = new KeptEntries();
  /** The runs that were loaded or created, by the ids that their callers gave. */
  readonly #runsByRunId = new KeyMap<readonly RunKey[]>();
  readonly #tables: { [T in TableName]?: KeyMap<Change<Rows[T]>> } = {};
  readonly #undo: UndoLog;

  constructor(undo: UndoLog) {
    this.#undo = undo;
  }

  /** Returns the current row, or undefined if there is none or if it is unknown. */
  get<T extends TableName>(table: T, key: Key): Rows[T] | undefined {
    return this.entry(table, key)?.now;
  }

  /** Returns the state of a row, or undefined if it was neither loaded nor written. */
  entry<T extends TableName>(table: T, key: Key): Change<Rows[T]> | undefined {
    return this.#table(table)?.get(key);
  }

  /** Adds a row from the storage. A row that is already known stays as it is. */
  addLoaded<T extends TableName>(table: T, row: Rows[T]): void {
    const key = toKey[table](row);
    this.#index(table, row);
    if (!this.entry(table, key)) this.#add(table, { key, loaded: true, before: row, now: row });
  }

  /** Records that the storage has no row with this key, unless the row is known. */
  addAbsent(table: TableName, key: Key): void {
    if (!this.entry(table, key)) this.#add(table, { key, loaded: true, before: undefined, now: undefined });
  }

  /** Writes or removes a row for the running command. Returns the row as it was before. */
  set<T extends TableName>(table: T, key: Key, row: Rows[T] | undefined): Rows[T] | undefined {
    const entry = this.entry(table, key);
    if (row !== undefined) this.#index(table, row);
    if (!entry) {
      this.#add(table, { key, loaded: false, before: undefined, now: row });
      this.#undo.push(() => this.#tables[table]?.delete(key));
      return undefined;
    }
    const { now } = entry;
    entry.now = row;
    this.#undo.push(() => (entry.now = now));
    return now;
  }

  /** Reports whether the batch has not changed a row since it was loaded. */
  isUntouched<T extends TableName>(table: T, row: Rows[T]): boolean {
    const entry = this.entry(table, toKey[table](row));
    return entry?.now !== undefined && entry.now === entry.before;
  }

  /** Reports whether a run with this run id is known and exists. */
  hasRunWithId([account, runId]: readonly [AccountId, string]): boolean {
    const runs = this.#runsByRunId.get([account, runId]) ?? [];
    return runs.some((run) => this.get("runs", [account, run]) !== undefined);
  }

  /** Returns the keys of unknown rows, each once. */
  missing(table: TableName, keys: readonly Key[]): readonly Key[] {
    const rows = this.#tables[table];
    if (keys.length === 1) return rows?.has(keys[0] ?? [""]) ? none : keys;
    const seen = new KeyMap<true>();
    const missing: Key[] = [];
    for (const key of keys) {
      if (rows?.has(key) || seen.has(key)) continue;
      seen.set(key, true);
      missing.push(key);
    }
    return missing;
  }

  /** Returns the tables whose rows were loaded or written, in the order in which they are written. */
  listTouchedTables(): readonly TableName[] {
    return listTables(this.#tables);
  }

  /** Returns the net changes of a table: the rows that differ from what the storage holds. */
  changes<T extends TableName>(table: T): readonly Change<Rows[T]>[] {
    const changed: Change<Rows[T]>[] = [];
    this.#table(table)?.forEach((entry) => {
      if (isChanged(entry)) changed.push(entry);
    });
    return changed;
  }

  /** Returns the number of net changes of a table. */
  countChanges(table: TableName): number {
    let count = 0;
    this.#table(table)?.forEach((entry) => void (isChanged(entry) && count++));
    return count;
  }

  #index(table: TableName, row: Rows[TableName]): void {
    if ("run" in row) this.runIndex.add(table, row);
    if (table === "keptLog") this.keptEntries.add(row as Rows["keptLog"]);
    if (table === "runs") this.#indexRun(row as Rows["runs"]);
  }

  #indexRun({ account, runId, id }: Rows["runs"]): void {
    const runs = this.#runsByRunId.get([account, runId]) ?? [];
    if (!runs.includes(id)) this.#runsByRunId.set([account, runId], [...runs, id]);
  }

  #add<T extends TableName>(table: T, entry: Change<Rows[T]>): void {
    const tables: { [N in T]?: KeyMap<Change<Rows[N]>> } = this.#tables;
    (tables[table] ??= new KeyMap()).set(entry.key, entry);
  }

  #table<T extends TableName>(table: T): KeyMap<Change<Rows[T]>> | undefined {
    const tables: { [N in T]?: KeyMap<Change<Rows[N]>> } = this.#tables;
    return tables[table];
  }
}

const isChanged = ({ now, before, loaded }: Change<unknown>): boolean =>
  now !== before || (!loaded && now === undefined);

const none: readonly Key[] = [];
