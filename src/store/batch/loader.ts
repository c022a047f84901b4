import type {
  CountNeed,
  Draft,
  DueNeed,
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
import type { LogRow, MessageState, Millis, Schedule } from "../../core/model/message.ts";
import type { Limiter, HostWaitlist } from "../../core/model/limiter.ts";
import type { SentStep, Step, Waiter } from "../../core/model/run.ts";
import type { Turns } from "../../core/fairness/turns.ts";
import type { BodyOptions } from "../queries/storageReads.ts";

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
  due(now: Millis, limits: DueNeed): Promise<DueRows>;
  waitlistHeads(heads: readonly WaitlistHead[]): Promise<readonly MessageState[]>;
  leasedByOthers(need: LeasedNeed): Promise<readonly MessageState[]>;
  expired(need: ExpiredNeed): Promise<ExpiredRows>;
  /** Returns the entries of these messages in the kept log, without their bodies. */
  keptLog(messages: readonly Key[]): Promise<readonly LogRow[]>;
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
  /** Returns the sent part of each history: its steps in order, up to and including a position. */
  histories(needs: readonly HistoryNeed[]): Promise<readonly (readonly SentStep[])[]>;
}

/** The rows of runs by table. */
export type LoadedRunRows = { readonly [T in RunTableName]: readonly RunRows[T][] };

/** A history up to and including a position. */
export type HistoryNeed = RunNeed & { upTo: number };

/** The rows that are due. */
export type DueRows = {
  messages: readonly MessageState[];
  hostWaitlists: readonly HostWaitlist[];
  limiters: readonly Limiter[];
  schedules: readonly Schedule[];
  waiters: readonly Waiter[];
  /** For each table, the account after which the next turn starts. */
  turns: Turns;
};

/** The rows of an account whose retention has ended. */
export type ExpiredRows = ReturnType<Draft["expired"]>;
/** No expired rows. */
export const nothingExpired: ExpiredRows = {
  log: [],
  keptLog: [],
  deadLetters: [],
  deduplications: [],
  audit: [],
  runs: [],
  steps: [],
  usage: [],
  timeIndex: [],
};
