import type { Millis } from "../../core/values/basics.ts";
import type { RecentRows } from "./recentRows.ts";
import type { RecentHistories } from "../histories/recentHistories.ts";
import type { RecentTimeIndex } from "../batch/recentTimeIndex.ts";
import type { SecretCipher } from "../layout/keyRing.ts";
import type { Columns, ColumnType, Value } from "../catalog/tables.ts";

/** A database that runs transactions. It knows after which errors a transaction may be run again. */
export interface Database {
  /**
   * Runs `run` as one transaction. `startTime` resolves to the time of the transaction once it has begun.
   * Statements that are run before then are sent together with the beginning. If the transaction cannot
   * begin, it fails, regardless of the results of these statements. At the deadline, the transaction fails
   * at once: with `Interrupted`, if its commit was not sent.
   */
  transaction<T>(
    run: (connection: DatabaseConnection, startTime: Promise<Millis | null>) => Promise<T>,
    deadline?: Deadline,
  ): Promise<T>;
  /**
   * Reports whether a transaction may be run again after this error because it stored nothing. Either another
   * node changed a row first, or the connection was lost before the commit.
   */
  isConflict(error: unknown): boolean;
  /**
   * A cache of the rows that this process wrote last. It is set only if no other process writes to the
   * database.
   */
  recent?: RecentRows;
  /** The time index entries that this process stored recently. */
  readonly recentTimeIndex: RecentTimeIndex;
  /** The histories that this process sent recently. */
  readonly recentHistories: RecentHistories;
  /** Notifies other nodes of the earliest row that became due. Called after the commit, and not awaited. */
  notifyDue?(dueAt: Millis): void;
  readonly logTruncation?: LogTruncation;
  /** Records in the row of this node that it has changed data. Sent together with the changes. */
  touchNodeRow?(connection: DatabaseConnection): Promise<void>;
  /** Lets the transaction be silent for longer if it will write bodies of this many bytes. */
  allowSilence?(connection: DatabaseConnection, bytes: number): Promise<void>;
  /**
   * Waits after attempt `race` of a transaction has failed, so that the transactions that collided do not
   * collide again.
   */
  pause?(race: number): Promise<void>;
}

/** The end of the time of a batch, over all of its tries. */
export type Deadline = {
  /** It is aborted at the deadline. */
  readonly signal: AbortSignal;
  /** The time from the beginning to the deadline, before `willMove` extended it. */
  readonly time: Millis;
  /** The bytes of bodies for which `time` suffices. */
  readonly bytes: number;
  /**
   * Extends the deadline, because one try also loads and writes bodies of this many bytes. A later try
   * extends it only by what it moves more.
   */
  willMove(bytes: number): void;
};

/** One connection to a database. Each statement is prepared once and kept by its text. */
export interface DatabaseConnection {
  dialect: Dialect;
  /** Encrypts the secrets of rows. If it is missing, secrets are stored unencrypted. */
  cipher?: SecretCipher;
  /** Called for each row that was read and is damaged. */
  foundDamaged?(table: string, key: readonly string[]): void;
  /** Runs a statement in which each `?` is a parameter. */
  query(sql: string, values: readonly Value[]): Promise<Columns[]>;
  /** Runs a statement once for each row of values, or once for all of them: see `Dialect.givenRows`. */
  each(sql: string, types: readonly ColumnType[], rows: readonly (readonly Value[])[]): Promise<Columns[]>;
  /**
   * Runs a statement for one row of values and returns its results at once. Missing if that is not possible.
   */
  now?(sql: string, values: readonly Value[]): Columns[];
}

/** The SQL in which SQLite and PostgreSQL differ. */
export type Dialect = {
  /**
   * Returns the SQL of the rows that are passed to `each`: one row as parameters, or all rows as a relation.
   */
  givenRows(types: readonly ColumnType[]): {
    values: string;
    from: string;
    also: string;
    using: string;
    column(index: number): string;
  };
  /**
   * Returns the clause that locks the selected rows of a table until the transaction ends. With `skip`, rows
   * that other transactions have locked are left out.
   */
  lock(table: string, skip?: "skip locked"): string;
  /**
   * Returns the condition that these columns have these values. It is written so that the database can use
   * only an index that begins with these columns.
   */
  isRow(columns: readonly string[], values: readonly string[]): string;
  /**
   * Returns the clause that names an index, for a database that does not know how many rows each index would
   * yield. It follows the table name.
   */
  useIndex(index: string): string;
  /**
   * Returns a statement that locks names until the end of the transaction. Transactions that lock the same
   * name run one after another.
   */
  lockNames?(names: { also: string; column(index: number): string }): string;
  /** Set if rows are stored with checksums. A database that has its own checksums does not need them. */
  checksums?: true;
  /**
   * Returns SQL for the id up to which the log of an account counts as removed, although its rows may still
   * exist. `account` is the SQL of the account id. Missing if the database deletes log entries one by one.
   */
  logForgottenUpTo?(account: string): string;
};

/**
 * Old parts of the log are dropped as a whole: entries with ids before the returned id are not deleted one by
 * one. For each account, the database stores the id up to which the log counts as removed, and reads skip the
 * entries up to that id. Null: all entries are deleted one by one.
 */
export type LogTruncation = { idDroppedWholeBefore(now: Millis): string | null };

/** Another node changed a row after this transaction had read it without a lock. */
export class LostUpdate extends Error {}
