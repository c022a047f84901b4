import type { Rows, TableName } from "../../core/decision/command.ts";
import type { SecretCipher } from "./keyRing.ts";

export type ColumnType = "text" | "bigint" | "integer" | "bytea";
export type Value = string | number | Uint8Array | null;
export type Columns = Record<string, Value>;

/** What a table looks like in the database. */
export type TableSchema = {
  name: string;
  columns: Record<string, ColumnType>;
  key: readonly string[];
  /** Besides the key: what a row keeps as it was made. */
  constant?: readonly string[];
  /** Read without a lock: rows that never change, or are changed only by comparing with what was read. */
  unlocked?: true;
  /** Several nodes may make the same row at once. They make them in the order of the key, so as not to wait in a circle. */
  contested?: true;
  /** Compares two ids of one account, where rows are not locked and made in the order of their ids. */
  compareIds?: (a: string, b: string) => number;
  /** A row says the same whoever makes it, so that it does no harm to make one that is there. */
  idempotent?: true;
};

/** How a row becomes columns, and back. */
export type Table<Row> = TableSchema & {
  /** All columns, in the order of `columns`. */
  write(row: Row, cipher?: SecretCipher): Columns;
  read(columns: Columns, cipher?: SecretCipher): Row;
};

export type Tables = { [T in TableName]: Table<Rows[T]> };
