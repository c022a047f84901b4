import type { BodyTableName, Key, Rows } from "../../core/decision/command.ts";
import type { WithoutBody } from "../../core/model/message.ts";
import { toKey } from "../catalog/rowKeys.ts";
import { KeyMap } from "./keyMap.ts";

type Tables = { [T in BodyTableName]: KeyMap<WithoutBody<Rows[T]> | undefined> };

/** The rows that a batch has read without their bodies. They are never written. */
export class RowsWithoutBody {
  readonly #tables: Tables = {
    storedMessages: new KeyMap(),
    deadLetters: new KeyMap(),
    notifications: new KeyMap(),
    steps: new KeyMap(),
  };

  /** Reports whether a row was read, even if it does not exist. */
  has(table: BodyTableName, key: Key): boolean {
    return this.#tables[table].has(key);
  }

  get<T extends BodyTableName>(table: T, key: Key): WithoutBody<Rows[T]> | undefined {
    return this.#table(table).get(key);
  }

  add<T extends BodyTableName>(table: T, row: WithoutBody<Rows[T]>): void {
    this.#table(table).set(toKey[table](row as Rows[T]), row);
  }

  addAbsent(table: BodyTableName, key: Key): void {
    this.#tables[table].set(key, undefined);
  }

  #table<T extends BodyTableName>(table: T): KeyMap<WithoutBody<Rows[T]> | undefined> {
    return this.#tables[table];
  }
}
