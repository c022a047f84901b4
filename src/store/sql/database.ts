import type { Millis } from "../../core/model/message.ts";
import type { RecentRows } from "./recentRows.ts";
import type { RecentTimeIndex } from "../batch/recentTimeIndex.ts";
import type { SecretCipher } from "./keyRing.ts";
import type { Columns, ColumnType, Value } from "./tables.ts";

/** A database that can run transactions, and knows the errors after which one may simply be run again. */
export interface Database {
  /**
   * Runs something as one transaction. `begun`: its time, once it has begun. What is asked of the connection before that goes to the
   * database together with the beginning. When that fails, so does the transaction, whatever came of the rest.
   */
  transaction<T>(run: (connection: DatabaseConnection, startTime: Promise<Millis | null>) => Promise<T>): Promise<T>;
  /**
   * Reports whether a transaction may be run again after this error, because nothing of it happened: another node was faster, or the
   * connection was lost before the commit.
   */
  isConflict(error: unknown): boolean;
  /** Where this process alone writes: what it wrote last. */
  recent?: RecentRows;
  /** What this process has stored of late. */
  readonly recentTimeIndex: RecentTimeIndex;
  /** Tells other nodes what became due, when the transaction is stored. Nobody waits for it. */
  notifyDue?(dueAt: Millis): void;
  readonly logTruncation?: LogTruncation;
  /** Writes to the row of this node that it has changed something. Goes out with the changes. */
  touchNodeRow?(connection: DatabaseConnection): Promise<void>;
  /** Steps aside before a transaction is run for the nth time, so that those who met do not meet again. */
  pause?(race: number): Promise<void>;
}

/** One connection to a database. Statements are prepared once and kept by their text. */
export interface DatabaseConnection {
  dialect: Dialect;
  /** What secrets of rows are sealed with. Not given: they are in clear. */
  cipher?: SecretCipher;
  /** Hears of each row that was read and is damaged. */
  foundDamaged?(table: string, key: readonly string[]): void;
  /** Runs a statement; `?` stand for the values. */
  query(sql: string, values: readonly Value[]): Promise<Columns[]>;
  /** Runs a statement once for every row of values, or once for all of them: see `Dialect.givenRows`. */
  each(sql: string, types: readonly ColumnType[], rows: readonly (readonly Value[])[]): Promise<Columns[]>;
}

/** Where two databases differ in words. */
export type Dialect = {
  /** The rows that `each` was given: one row as parameters, or all of them as a relation. */
  givenRows(types: readonly ColumnType[]): { values: string; from: string; also: string; using: string; column(index: number): string };
  /** Takes what is read away from other nodes until the transaction ends: `of` a table, waiting or skipping. */
  lock(table: string, skip?: "skip locked"): string;
  /** That these columns of a row are these values, in words that lead through an index which begins with them, and through no other. */
  isRow(columns: readonly string[], values: readonly string[]): string;
  /** Which index to take, where the database does not know how many rows each would come to: stands behind the table. */
  useIndex(index: string): string;
  /** Lets those go on one after the other, until their transactions end, who ask for the same names: a statement. */
  lockNames?(names: { also: string; column(index: number): string }): string;
  /** Whether rows are stored with checksums. A database that has checksums of its own needs none. */
  checksums?: true;
  /** The id up to which the log of an account is gone although its rows are still there, where that can be; `account` stands for it. */
  logForgottenUpTo?(account: string): string;
};

/**
 * Where old parts of the log are dropped whole: rows with ids before this are not deleted one by one. It is noted up to
 * which one the log of an account is gone, and they are seen no more. Null: all are deleted.
 */
export type LogTruncation = { idDroppedWholeBefore(now: Millis): string | null };

/** A row that is read without a lock was changed by another node in between. */
export class LostUpdate extends Error {}
