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
import type { Limiter, HostWaitlist, LogRow, MessageState, Millis, Schedule } from "../../core/model/message.ts";
import type { SentStep, Step, Waiter } from "../../core/model/run.ts";
import type { Turns } from "../../core/fairness/turns.ts";
import type { BodyOptions } from "../queries/storageReads.ts";

/** Answers a need: rows by key, and lists. Missing rows are simply absent. On a shared database it locks what it reads. */
export interface Loader {
  rows<T extends TableName>(table: T, keys: readonly Key[], options?: BodyOptions): Promise<readonly Rows[T][]>;
  due(now: Millis, limits: DueNeed): Promise<DueRows>;
  waitlistHeads(heads: readonly WaitlistHead[]): Promise<readonly MessageState[]>;
  leasedByOthers(need: LeasedNeed): Promise<readonly MessageState[]>;
  expired(need: ExpiredNeed): Promise<ExpiredRows>;
  /** Entries of these messages in the kept log, without their bodies. */
  keptLog(messages: readonly Key[]): Promise<readonly LogRow[]>;
  /** In the same order. On a shared database whoever else asks for the same waits until this transaction ends. */
  quotaCounts(needs: readonly CountNeed[]): Promise<readonly number[]>;
  /** What belongs to runs, without bodies. */
  runRows(needs: readonly RunRowsNeed[]): Promise<LoadedRunRows>;
  /** Histories, in no order. */
  steps(needs: readonly StepsNeed[]): Promise<readonly Step[]>;
  /** Bytes of memory that each of these takes up, roughly. */
  stepSizes(needs: readonly StepsNeed[]): Promise<readonly number[]>;
  /** For each of these what is sent of its history: in order, up to a place in it, and including it. */
  histories(needs: readonly HistoryNeed[]): Promise<readonly (readonly SentStep[])[]>;
}

export type LoadedRunRows = { readonly [T in RunTableName]: readonly RunRows[T][] };

export type HistoryNeed = RunNeed & { upTo: number };

export type DueRows = {
  messages: readonly MessageState[];
  hostWaitlists: readonly HostWaitlist[];
  limiters: readonly Limiter[];
  schedules: readonly Schedule[];
  waiters: readonly Waiter[];
  /** Where the turns that were asked for have ended. */
  turns: Turns;
};

export type ExpiredRows = ReturnType<Draft["expired"]>;
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
