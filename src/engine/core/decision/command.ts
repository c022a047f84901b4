import type { Deduplication } from "../model/deduplication.ts";
import type { ActivityName } from "../model/activity.ts";
import type { AuditEntry } from "../model/auditEntry.ts";
import type { ServerSetting } from "../model/serverSetting.ts";
import type { Account } from "../model/account.ts";
import type { AccountId, IdKind, MessageId, Millis, NodeId } from "../values/basics.ts";
import type { Delivery } from "../model/delivery.ts";
import type { StoredMessage, WithoutBody } from "../model/message.ts";
import type { UrlGroup } from "../model/urlGroup.ts";
import type { LeaseRef, MessageState } from "../model/messageState.ts";
import type { LogRow } from "../model/logRow.ts";
import type { Tag, TimeKeys } from "../model/tag.ts";
import type { Schedule } from "../model/schedule.ts";

import type { ClientChoice, RunKey } from "../model/runPost.ts";
import type { DeadLetter } from "../model/deadLetter.ts";
import type { Limiter, HostWaitlist, QueueSlot } from "../model/limiter.ts";
import type { Rejection, WebhookSource } from "../model/webhookSource.ts";
import type { DayCount, SecondCount } from "../model/counts.ts";
import type { Token } from "../model/rights.ts";
import type { ActiveRun, Notification, Run, Step, Waiter } from "../model/run.ts";
import type { Counts, Usage } from "../model/counts.ts";
import type { Turns } from "../node/turns.ts";

/**
 * The rows of all tables. A row is never changed in place: `put` replaces it. An operation adds its rows
 * beside their type: see `operations/stored.ts`.
 */
export interface Rows {
  accounts: Account;
  storedMessages: StoredMessage;
  messages: MessageState;
  deduplications: Deduplication;
  deadLetters: DeadLetter;
  hostWaitlists: HostWaitlist;
  limiters: Limiter;
  queueSlots: QueueSlot;
  urlGroups: UrlGroup;
  schedules: Schedule;
  sources: WebhookSource;
  tokens: Token;
  rejections: Rejection;
  log: LogRow;
  /** Log entries that are past their retention, of messages that are unfinished or have a dead letter. */
  keptLog: LogRow;
  tags: Tag;
  timeIndex: Tag;
  runs: Run;
  activeRuns: ActiveRun;
  steps: Step;
  waiters: Waiter;
  notifications: Notification;
  usage: Usage;
  dayCounts: DayCount;
  secondCounts: SecondCount;
  audit: AuditEntry;
  /** Settings of the server as a whole. Their keys have no account: see `serverSettings` in `toKey`. */
  serverSettings: ServerSetting;
}

/** The name of a table. */
export type TableName = keyof Rows;

/** The tables whose rows may be damaged: see `engine/core/model/damagedRows.ts`. */
export type DamageableName = {
  [T in TableName]: "damaged" extends keyof Rows[T] ? T : never;
}[TableName];

/**
 * The tables whose rows `get` returns. Decisions only `inspect` stored messages and steps, because a damaged
 * one has another effect in each decision.
 */
export type ReadableName = Exclude<TableName, "storedMessages" | "steps">;

/** The key of a row: the account, and the id of the row within it. The row of an account has no id. */
export type Key = readonly [account: AccountId, id?: string];

/** The first `limit` messages of a waitlist, in order of acceptance. */
export type WaitlistHead = { account: AccountId; waitlist: string; limit: number };

/**
 * The expired rows of an account to load, at most `limit` of each table. The ids of log entries and dead
 * letters begin with their time.
 */
export type ExpiredNeed = {
  account: AccountId;
  logBefore: Millis;
  keptLogBefore: Millis;
  deadLettersBefore: Millis;
  deduplicationsBefore: Millis;
  auditBefore: Millis;
  /** Runs that ended before this time. */
  runsBefore: Millis;
  failedRunsBefore: Millis;
  /** Entries of days that ended before this time. */
  timeIndexBefore: Millis;
  /** Usage buckets with ids between these two. */
  usage: readonly { after: string; before: string }[];
  limit: number;
  /** Whether the dead letters of the account are counted as well. */
  countsDeadLetters?: boolean;
};

/** The rows of a run, without bodies: its unfinished messages, waiters, notifications, and steps. */
export type RunRows = {
  messages: MessageState;
  waiters: Waiter;
  notifications: WithoutBody<Notification>;
  steps: WithoutBody<Step>;
};
/** The name of a table with rows of runs. */
export type RunTableName = keyof RunRows;
/** A run of an account. */
export type RunNeed = { account: AccountId; run: RunKey };
/** The rows of a run in one table. `event` selects the rows of one event, in the tables that have events. */
export type RunRowsNeed = RunNeed & { table: RunTableName; event?: string };

/** The name under which rows are counted: that of their table, or that of URL groups or queues. */
export type RowCountName = "groups" | "queues" | TableName;

/** The number of rows of a kind that an account has, counted up to `limit`. */
export type CountNeed = { account: AccountId; name: RowCountName; limit: number };

/** The history of a run with its bodies, or one entry of it. */
export type StepsNeed = RunNeed & { stepKey?: string };

/** The tables whose rows have a body. Most decisions do not need it. */
export type BodyTableName = "storedMessages" | "deadLetters" | "notifications" | "steps";

/**
 * The maximum number of due rows to load from each table, the oldest first. `limit` is for messages. `turns`:
 * also load rows of other accounts in turn, see `engine/core/node/turns.ts`.
 */
export type DueNeed = {
  limit: number;
  hostWaitlists: number;
  limiters: number;
  schedules: number;
  waiters: number;
  turns?: Turns;
};

/**
 * The keys of rows that a decision nearly always reads, and the due rows. The store loads them together
 * before the decision runs. A row that is missing here costs time, and never changes the result.
 */
export type Hint = { readonly [T in TableName]?: readonly Key[] } & {
  readonly due?: DueNeed;
  /** Run ids of new runs: see `Draft.wasRunIdUsed`. */
  readonly runIds?: readonly Key[];
};

/** Expired rows of an account, without the bodies of `keptLog`, `deadLetters` and `steps`. */
export type ExpiredRows = {
  log: readonly LogRow[];
  keptLog: readonly LogRow[];
  deadLetters: readonly WithoutBody<DeadLetter>[];
  deduplications: readonly Deduplication[];
  audit: readonly AuditEntry[];
  runs: readonly Run[];
  /** Steps of these runs, in the order of the runs, up to the limit. */
  steps: readonly WithoutBody<Step>[];
  usage: readonly Usage[];
  timeIndex: readonly Tag[];
};

/**
 * Expired rows, and the number of dead letters that the account has in all. The number is 0 unless the need
 * asks for it.
 */
export type Expired = ExpiredRows & { deadLetterCount: number };

/** Due rows, the oldest first. `turns`: where the turns through the accounts have ended. */
export type DueRows = {
  messages: readonly MessageState[];
  hostWaitlists: readonly HostWaitlist[];
  limiters: readonly Limiter[];
  schedules: readonly Schedule[];
  waiters: readonly Waiter[];
  turns: Turns;
};

/**
 * The rows that a decision reads and changes, with the changes of earlier commands in the batch. Every read
 * shows what is stored. If a row is not loaded yet, the store loads it, and may run the decision again.
 */
export interface Draft {
  /** Returns a row, or undefined if it does not exist. Throws `Refusal` if it is damaged. */
  get<T extends ReadableName>(table: T, ...key: Key): Rows[T] | undefined;
  /** Like `get`, without the body of the row, which is then not loaded. */
  getWithoutBody<T extends BodyTableName & ReadableName>(
    table: T,
    ...key: Key
  ): WithoutBody<Rows[T]> | undefined;
  /**
   * Returns a row even if it is damaged. Claims, outcomes, the quarantine and retention handle damaged rows,
   * and so do requests that replace, delete or only look for a row.
   */
  inspect<T extends DamageableName>(table: T, ...key: Key): Rows[T] | undefined;
  /** Like `inspect`, without the body of the row, which is then not loaded. */
  inspectWithoutBody<T extends DamageableName & BodyTableName>(
    table: T,
    ...key: Key
  ): WithoutBody<Rows[T]> | undefined;
  /** Writes a row, which replaces the row with the same key. */
  put<T extends TableName>(table: T, row: Rows[T]): void;
  /** Reports whether the running command has changed anything so far. */
  hasChanged(): boolean;
  /** Removes a row. */
  drop(table: TableName, ...key: Key): void;
  /** Moves an entry from the log to the kept log. Its tags stay. */
  moveToKeptLog(row: LogRow): void;
  /** Returns the entries of a message in the kept log, without their bodies. */
  listKeptLog(account: AccountId, messageId: MessageId): readonly LogRow[];
  /** Returns due rows that are still due. */
  due(need: DueNeed): DueRows;
  /** Returns the rows of a run, in the order of their ids. `event` selects those of one event. */
  listRunRows<T extends RunTableName>(table: T, run: RunNeed, event?: string): readonly RunRows[T][];
  /** Returns the history of a run, or one entry of it, in no particular order. */
  listSteps(account: AccountId, run: RunKey, stepKey?: string): readonly Step[];
  /** Reports whether an earlier run had this run id, as far as its row still exists. */
  wasRunIdUsed(account: AccountId, runId: string): boolean;
  /**
   * Returns all messages that are still in a waitlist, in order of acceptance. They are loaded as far as the
   * caller goes, `limit` at a time.
   */
  waitlist(waitlist: WaitlistHead): Iterable<MessageState>;
  /** Returns messages that are leased by other nodes. */
  leasedByOthers(need: LeasedNeed): readonly MessageState[];
  /** Returns expired rows of an account. The count includes the changes of the batch. */
  expired(need: ExpiredNeed): Expired;
  /**
   * Returns how many of these an account has, with the changes of the batch. On a shared database, no other
   * transaction creates one until this transaction ends.
   */
  readQuotaCount(need: CountNeed): number;
  /** The deliveries that this node may start now. */
  readonly capacity: NodeCapacity;
  /**
   * Records in the time index that a row with this id is about a message: see
   * `engine/core/search/timeIndex.ts`. Loads nothing.
   */
  indexTime(account: AccountId, id: string, timeKeys: TimeKeys): void;
  /** Adds to the usage of an account, or of a source: see `engine/core/accounts/usage.ts`. Loads nothing. */
  count(account: AccountId, counts: Readonly<Partial<Counts>>, source?: string): void;
  /** Records something that the command does, for the metrics of this node. */
  record(name: ActivityName, late?: Millis): void;
  /** Reports damaged data in the log of the server. Other rows are processed normally. */
  fault(message: string): void;
  /** Gives a leased message to this node's dispatcher when the batch has been stored. */
  deliver(delivery: Delivery): void;
  /**
   * When the batch has been stored, tells this node's dispatcher that the outcome of an attempt is no longer
   * needed. The dispatcher may then abort the request.
   */
  abort(lease: LeaseRef): void;
  /**
   * When the batch has been stored, tells the other nodes to look whether the outcome of an attempt of theirs
   * is no longer needed.
   */
  abortElsewhere(): void;
  /**
   * Tells this node's dispatcher, when the batch has been stored, that a delivery in flight is settled, so
   * that its outcome need not be stored.
   */
  settled(lease: LeaseRef): void;
}

/** The deliveries that a node may start now: see `engine/core/admission/capacity.ts`. */
export interface NodeCapacity {
  /** Reports whether there is capacity for one more delivery to a host, with a body of `size` bytes. */
  has(account: AccountId, host: string, size: number): boolean;
  /** Reports whether a running delivery to a host may keep its place, or must let others begin. */
  mayKeepPlace(account: AccountId, host: string): boolean;
  /**
   * Reports whether there is no capacity because the account already holds its share of this node, or because
   * messages to the host are pulled.
   */
  isDenied(account: AccountId, host: string, size: number): boolean;
  /** Takes capacity for a delivery to a host, and `size` bytes of memory. Returns false if there is none. */
  take(account: AccountId, host: string, size: number): boolean;
  /** Loads the stored message of a message to send, if the bytes of the batch allow it. */
  loadBody(message: MessageState): BodyAdmission;
  /**
   * Reports whether due messages of this account wait for a claim, so that a new message must not overtake
   * them.
   */
  hasBacklog(account: AccountId): boolean;
  /** Reports whether a message to this host may be sent at once in spite of the backlog. */
  isNewcomer(account: AccountId, host: string): boolean;
}

/**
 * Whether the stored message of a message to send was loaded. `full`: the batch has no bytes left, so the
 * message is left for the next claim. `overShare`: its destination has used its share of the bytes, so the
 * message is held in the waitlist of its host.
 */
export type BodyAdmission = "loaded" | "full" | "overShare";

/** Everything that a decision may use besides its draft. */
export type Moment = {
  readonly now: Millis;
  readonly node: NodeId;
  /** Whether the disk of the server has too little room to accept new content. */
  readonly isDiskLow?: boolean;
  /** See `BodyLimit`. */
  readonly maxBody?: number | undefined;
  /** The clients that do not receive calls which they would discard. Default: `older`. */
  readonly skipsCallsOf?: ClientChoice | undefined;
  /** Whether steps may run on. Default: they may. */
  readonly runsOn?: boolean | undefined;
  /** Returns a new id, unique on all nodes. */
  newId(kind: IdKind): string;
  /** Returns an unpredictable number from 0 (inclusive) to 1 (exclusive). */
  random(): number;
};

/**
 * A decision: the changes that follow from an input and the stored rows. A decision is pure and synchronous,
 * and may run again with the same input.
 */
export type Decision<Input, Answer> = {
  /** Set for a command of the server itself: no caller waits for its answer. */
  isInternal?: true;
  /** Set for a command that changes accounts or credentials, which nodes keep in memory. */
  changesAccounts?: true;
  /** Returns the rows to load together before the decision runs: see `Hint`. */
  hint?(input: Input): Hint;
  /** Writes the changes to the draft and returns the answer. */
  decide(input: Input, draft: Draft, moment: Moment): Answer;
};

/**
 * Messages that are leased by other nodes, not held by receivers. Without a `membership`, these are the
 * messages of all other nodes; use this only if no other node can be alive. With a `membership`, they are
 * those that `node` leased until a time between `after` and `until`, if it still has this membership. The
 * membership then stays the same until the transaction ends.
 */
export type LeasedNeed = {
  node: NodeId;
  limit: number;
  membership?: { number: number; after: Millis; until: Millis };
};
