import type {
  CountNeed,
  Draft,
  DueNeed,
  ExpiredNeed,
  Key,
  LineHead,
  OfRunNeed,
  Rows,
  RunNeed,
  RunRows,
  RunTableName,
  StepsNeed,
  TableName,
  LeasedNeed,
} from "../../core/decision/command.ts";
import type { Flow, Line, LogRow, MessageState, Millis, Schedule } from "../../core/model/message.ts";
import type { SentStep, Step, Waiter } from "../../core/model/run.ts";
import type { Turns } from "../../core/fairness/turns.ts";
import type { Bodies } from "../queries/storageReads.ts";

/** Answers a need: rows by key, and lists. Missing rows are simply absent. On a shared database it locks what it reads. */
export interface Loader {
  rows<T extends TableName>(table: T, keys: readonly Key[], how?: Bodies): Promise<readonly Rows[T][]>;
  due(now: Millis, most: DueNeed): Promise<Due>;
  heads(heads: readonly LineHead[]): Promise<readonly MessageState[]>;
  leasedByOthers(need: LeasedNeed): Promise<readonly MessageState[]>;
  expired(need: ExpiredNeed): Promise<Expired>;
  /** Entries of these messages in the kept log, without their bodies. */
  kept(messages: readonly Key[]): Promise<readonly LogRow[]>;
  /** In the same order. On a shared database whoever else asks for the same waits until this transaction ends. */
  counts(needs: readonly CountNeed[]): Promise<readonly number[]>;
  /** What belongs to runs, without bodies. */
  ofRuns(needs: readonly OfRunNeed[]): Promise<RowsOfRuns>;
  /** Histories, in no order. */
  steps(of: readonly StepsNeed[]): Promise<readonly Step[]>;
  /** Bytes of memory that each of these takes up, roughly. */
  sizesOfSteps(of: readonly StepsNeed[]): Promise<readonly number[]>;
  /** For each of these what is sent of its history: in order, up to a place in it, and including it. */
  histories(of: readonly HistoryNeed[]): Promise<readonly (readonly SentStep[])[]>;
}

export type RowsOfRuns = { readonly [T in RunTableName]: readonly RunRows[T][] };

export type HistoryNeed = RunNeed & { upTo: number };

export type Due = {
  messages: readonly MessageState[];
  lines: readonly Line[];
  flows: readonly Flow[];
  schedules: readonly Schedule[];
  waiters: readonly Waiter[];
  /** Where the turns that were asked for have ended. */
  turns: Turns;
};

export type Expired = ReturnType<Draft["expired"]>;
export const nothingExpired: Expired = {
  log: [],
  keptLog: [],
  deadLetters: [],
  deduplications: [],
  audit: [],
  runs: [],
  steps: [],
  usage: [],
  sightings: [],
};
