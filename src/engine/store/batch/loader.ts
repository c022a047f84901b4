import type {
  CountNeed,
  DueNeed,
  DueRows,
  Expired,
  ExpiredNeed,
  Key,
  WaitlistHead,
  RunRowsNeed,
  Rows,
  RunNeed,
  RunRows,
  RunTableName,
  StepsNeed,
  TableName,
  LeasedNeed,
} from "../../core/decision/command.ts";
import type { LogRow } from "../../core/model/logRow.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import type { Millis } from "../../core/values/basics.ts";
import type { SentStep, Step } from "../../core/model/run.ts";
import type { BodyOptions } from "../layout/storageReads.ts";

/**
 * `isAlone`: the batch has only one command. `usesHints`: whether rows are loaded before a decision has
 * looked for them.
 */
export type BatchOptions = { isAlone: boolean; usesHints: boolean };

/**
 * Reads what decisions need: rows by key, and lists. Missing rows are omitted. On a shared database, rows
 * that are read are locked.
 */
export interface Loader {
  rows<T extends TableName>(
    table: T,
    keys: readonly Key[],
    options?: BodyOptions,
  ): Promise<readonly Rows[T][]>;
  /** Null if the storage cannot be read without waiting. */
  readonly now: RowsNow | null;
  due(now: Millis, limits: DueNeed): Promise<DueRows>;
  waitlistHeads(heads: readonly WaitlistHead[]): Promise<readonly MessageState[]>;
  leasedByOthers(need: LeasedNeed): Promise<readonly MessageState[]>;
  expired(need: ExpiredNeed): Promise<Expired>;
  /** Returns the entries of these messages in the kept log, without their bodies. */
  keptLog(messages: readonly Key[]): Promise<readonly LogRow[]>;
  /** Returns those of these run ids that a stored run has. */
  usedRunIds(runIds: readonly Key[]): Promise<readonly Key[]>;
  /**
   * Returns the counts in the order of the needs. On a shared database, other transactions that count the
   * same rows wait until this transaction ends.
   */
  quotaCounts(needs: readonly CountNeed[]): Promise<readonly number[]>;
  /** Returns rows of runs, without their bodies. */
  runRows(needs: readonly RunRowsNeed[]): Promise<LoadedRunRows>;
  /** Returns the steps of histories, in no order. */
  steps(needs: readonly StepsNeed[]): Promise<readonly Step[]>;
  /** Returns the approximate memory of each history in bytes. */
  stepSizes(needs: readonly StepsNeed[]): Promise<readonly number[]>;
  /** Returns the sent part of each history: its steps in order, between two positions. */
  histories(needs: readonly HistoryNeed[]): Promise<readonly (readonly SentStep[])[]>;
}

/** Reads that return at once. */
export interface RowsNow {
  /** Returns a row, or undefined if it does not exist. */
  row<T extends TableName>(table: T, key: Key, options?: BodyOptions): Rows[T] | undefined;
  /** Returns rows of a run, without their bodies. */
  runRows(need: RunRowsNeed): LoadedRunRows;
}

/** The rows of runs by table. */
export type LoadedRunRows = { readonly [T in RunTableName]: readonly RunRows[T][] };

/** The part of a history between two positions, both included. */
export type HistoryNeed = RunNeed & { from: number; upTo: number };
