import type { Key, Rows, TableName } from "../../core/decision/command.ts";
import { KeyMap } from "./keyMap.ts";
import { tablesOf } from "../store.ts";

/** `before`: what the storage holds; undefined when it holds nothing, or was not asked (`loaded` is false). */
export type Change<Row> = { key: Key; loaded: boolean; before: Row | undefined; now: Row | undefined };

/** The rows of a batch by table, as they were and as they are. Tables are made when a row comes: a batch touches few of many. */
export class Changes {
  readonly #tables: { [T in TableName]?: KeyMap<Change<Rows[T]>> } = {};

  get<T extends TableName>(table: T, key: Key): Change<Rows[T]> | undefined {
    return this.#known(table)?.get(key);
  }

  set<T extends TableName>(table: T, entry: Change<Rows[T]>): void {
    const tables: { [N in T]?: KeyMap<Change<Rows[N]>> } = this.#tables;
    (tables[table] ??= new KeyMap()).set(entry.key, entry);
  }

  delete(table: TableName, key: Key): void {
    this.#tables[table]?.delete(key);
  }

  /** Those of these keys of which nothing is known, each once. */
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

  /** The tables of which rows were loaded or made, in the order in which they are written. */
  touched(): readonly TableName[] {
    return tablesOf(this.#tables);
  }

  /** The net changes of a table: what was loaded or made, and is not what the storage holds. */
  of<T extends TableName>(table: T): readonly Change<Rows[T]>[] {
    const found: Change<Rows[T]>[] = [];
    this.#known(table)?.each((entry) => {
      if (entry.now !== entry.before || (!entry.loaded && entry.now === undefined)) found.push(entry);
    });
    return found;
  }

  #known<T extends TableName>(table: T): KeyMap<Change<Rows[T]>> | undefined {
    const tables: { [N in T]?: KeyMap<Change<Rows[N]>> } = this.#tables;
    return tables[table];
  }
}

const none: readonly Key[] = [];
