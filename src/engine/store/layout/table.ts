import type { Rows, TableName } from "../../core/decision/command.ts";
import type { SecretCipher } from "./keyRing.ts";

/** The type of a column, as PostgreSQL names it. */
export type ColumnType = "text" | "bigint" | "integer" | "bytea";
/** The value of a column. */
export type Value = string | number | Uint8Array | null;
/** The values of a row by column. */
export type Columns = Record<string, Value>;

/** The layout of a table in the database. */
export type TableSchema = {
  name: string;
  columns: Record<string, ColumnType>;
  key: readonly string[];
  /** Columns, in addition to the key, that never change after the row was inserted. */
  constant?: readonly string[];
  /**
   * Rows are read without a lock. Either they never change, or an update applies only if the row is still as
   * it was read.
   */
  unlocked?: true;
  /**
   * Several nodes may insert the same row at the same time. Each node inserts rows in the order of the key,
   * so that they do not deadlock.
   */
  contested?: true;
  /**
   * Compares two ids of one account. Set for a table whose rows are not locked and inserted in the order of
   * their ids.
   */
  compareIds?: (a: string, b: string) => number;
  /**
   * A row has the same content regardless of which node inserts it, so inserting an existing row does no
   * harm.
   */
  idempotent?: true;
};

/** Converts rows to columns and back. */
export type Table<Row> = TableSchema & {
  /** Returns all columns of a row, in the order of `columns`. */
  write(row: Row, cipher?: SecretCipher): Columns;
  read(columns: Columns, cipher?: SecretCipher): Row;
};

/** All tables by name. */
export type Tables = { [T in TableName]: Table<Rows[T]> };
