import type { Deduplication } from "../model/deduplication.ts";
import type { AuditEntry } from "../model/auditEntry.ts";
import type { Job } from "../model/job.ts";
import type {
  Account,
  AccountId,
  Delivery,
  StoredMessage,
  UrlGroup,
  LeaseRef,
  IdKind,
  LogRow,
  Tag,
  MessageId,
  MessageState,
  Millis,
  NodeId,
  WithoutBody,
  Schedule,
  TimeKeys,
  RunKey,
} from "../model/message.ts";
import type { DeadLetter } from "../model/deadLetter.ts";
import type { Limiter, HostWaitlist, QueueSlot } from "../model/limiter.ts";
import type { Rejection, WebhookSource } from "../model/webhookSource.ts";
import type { DayCount, SecondCount } from "../model/counts.ts";
import type { Token } from "../model/rights.ts";
import type { ActiveRun, Notification, Run, Step, Waiter } from "../model/run.ts";
import type { Counts, Usage } from "../model/counts.ts";
import type { Turns } from "../fairness/turns.ts";

/** The rows of all tables. A row is never changed in place: `put` replaces it. */
export type Rows = {
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
  jobs: Job;
};

/** The name of a table. */
export type TableName = keyof Rows;

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

/** The number of rows of a kind that an account has, counted up to `limit`. */
export type CountNeed = {
  account: AccountId;
  name: "groups" | "schedules" | "sources" | "tokens" | "queues";
  limit: number;
};

/** The history of a run with its bodies, or one entry of it. */
export type StepsNeed = RunNeed & { stepKey?: string };

/** The tables whose rows have a body. Most decisions do not need it. */
export type BodyTableName = "storedMessages" | "deadLetters" | "notifications" | "steps";

/**
 * The maximum number of due rows to load from each table, the oldest first. `limit` is for messages. `turns`:
 * also load rows of other accounts in turn, see `core/fairness/turns.ts`.
 */
export type DueNeed = {
  limit: number;
  hostWaitlists: number;
  limiters: number;
  schedules: number;
  waiters: number;
  turns?: Turns;
};

/** The rows that a decision reads. The store loads them and, on a shared database, locks them. */
export type Needs = { readonly [T in TableName]?: readonly Key[] } & {
  /** Rows whose bodies are not needed and are not loaded. */
  readonly withoutBodies?: { readonly [T in "storedMessages" | "deadLetters" | "steps"]?: readonly Key[] };
  /**
   * Messages that may be sent now. Their stored messages are loaded in this order, as far as the bytes of a
   * batch allow; other messages are left for the next claim. Stored messages are loaded after all other rows,
   * so that only those that are needed are requested.
   */
  readonly toSend?: readonly MessageState[];
  /**
   * Waitlists whose first messages may be sent now. Their stored messages are loaded before those of
   * `toSend`.
   */
  readonly toSendFromWaitlists?: readonly Pick<WaitlistHead, "account" | "waitlist">[];
  /**
   * Endpoints to which messages may be sent, each as the key of its limiter. The limiter is loaded if the
   * account limits its deliveries in flight to an endpoint.
   */
  readonly endpoints?: readonly Key[];
  /** Due rows, the oldest first. */
  readonly due?: DueNeed;
  /** The heads of these waitlists, with the rows that are needed to move their messages. */
  readonly waitlistHeads?: readonly WaitlistHead[];
  /**
   * Messages that are leased by other nodes. Without a `session`, these are the messages of all other nodes;
   * omit it only if no other node can be alive. With a `session`, these are the messages whose leases by
   * `node` end between `after` and `until`, if `node` still has this session. The session then stays the same
   * until the transaction ends.
   */
  readonly leasedByOthers?: LeasedNeed;
  /** Expired rows of accounts. */
  readonly expired?: readonly ExpiredNeed[];
  /**
   * The number of groups, schedules and other things that an account has. On a shared database, no other
   * transaction creates one until this transaction ends.
   */
  readonly quotaCounts?: readonly CountNeed[];
  /** Rows of runs. */
  readonly runRows?: readonly RunRowsNeed[];
  /** The keys of messages whose entries in the kept log are needed. */
  readonly keptLogMessages?: readonly Key[];
  /**
   * Histories of runs, as far as the bytes of a batch allow. A command that finds the batch full runs again
   * in another batch: see `listSteps`.
   */
  readonly runSteps?: readonly StepsNeed[];
};

/**
 * The rows that a decision reads and changes. They are the rows that it asked for, with the changes of
 * earlier commands in the batch.
 */
export interface Draft {
  /** Returns a row, or undefined if it does not exist. */
  get<T extends TableName>(table: T, ...key: Key): Rows[T] | undefined;
  /** Returns a row without its body. The decision may have asked for it with or without the body. */
  getWithoutBody<T extends BodyTableName>(table: T, ...key: Key): WithoutBody<Rows[T]> | undefined;
  /** Writes a row, which replaces the row with the same key. */
  put<T extends TableName>(table: T, row: Rows[T]): void;
  /** Reports whether the running command has changed anything so far. */
  hasChanged(): boolean;
  /** Removes a row. */
  drop(table: TableName, ...key: Key): void;
  /** Moves an entry from the log to the kept log. Its tags stay. */
  moveToKeptLog(row: LogRow): void;
  /**
   * Returns the entries of a message in the kept log, without their bodies. The decision must have asked for
   * them (`Needs.keptLogMessages`).
   */
  listKeptLog(account: AccountId, messageId: MessageId): readonly LogRow[];
  /** Returns the due messages that were asked for and are still due. */
  due(): readonly MessageState[];
  /** Returns the due waitlists of hosts. */
  dueHostWaitlists(): readonly HostWaitlist[];
  /** Returns the due limiters. */
  dueLimiters(): readonly Limiter[];
  /** Returns the due schedules. */
  dueSchedules(): readonly Schedule[];
  /** Returns the due waiters. */
  dueWaiters(): readonly Waiter[];
  /** Returns where the turns through the accounts have ended. */
  turns(): Turns;
  /** Returns the rows of a run that were asked for, in the order of their ids. */
  listRunRows<T extends RunTableName>(table: T, account: AccountId, run: RunKey): readonly RunRows[T][];
  /**
   * Reports whether all unfinished messages of a run were asked for. A decision must ask for them before it
   * ends the run.
   */
  mayEndRun(account: AccountId, run: RunKey): boolean;
  /**
   * Returns the history of a run, or one entry of it, in no particular order. Throws `RetryInNextBatch` if
   * the batch had no room for it.
   */
  listSteps(account: AccountId, run: RunKey, stepKey?: string): readonly Step[];
  /**
   * Returns the messages at the head of a waitlist that were asked for and are still in it. A caller that
   * needs only one message stops after it.
   */
  waitlistHead(account: AccountId, waitlist: string): Iterable<MessageState>;
  /**
   * Reports whether `waitlistHead` returns the whole waitlist. False: more messages may follow those that it
   * returns.
   */
  isWholeWaitlist(account: AccountId, waitlist: string): boolean;
  /** Returns the messages of `Needs.leasedByOthers`. */
  leasedByOthers(): readonly MessageState[];
  /**
   * Returns the expired rows that were asked for. Throws `RetryInNextBatch` if other commands of the batch
   * have asked as well.
   */
  expired(account: AccountId): {
    log: readonly LogRow[];
    /** Without their bodies. */
    keptLog: readonly LogRow[];
    deadLetters: readonly WithoutBody<DeadLetter>[];
    deduplications: readonly Deduplication[];
    audit: readonly AuditEntry[];
    runs: readonly Run[];
    /** Steps of these runs, in the order of the runs, up to the limit; without their bodies. */
    steps: readonly Step[];
    usage: readonly Usage[];
    timeIndex: readonly Tag[];
  };
  /**
   * Returns how many of these an account has, with the changes of the batch. The decision must have asked for
   * it (`Needs.quotaCounts`).
   */
  readQuotaCount(account: AccountId, name: CountNeed["name"]): number;
  /**
   * Reports whether this node has capacity for one more delivery to a host: see `core/admission/capacity.ts`.
   */
  hasCapacity(account: AccountId, host: string): boolean;
  /** Reports whether there is no capacity because the account already holds its share of this node. */
  isDenied(account: AccountId, host: string): boolean;
  /** Takes capacity for a delivery to a host, and `size` bytes of memory. Returns false if there is none. */
  takeCapacity(account: AccountId, host: string, size: number): boolean;
  /**
   * Reports whether the stored message of a message to send has been looked up. False: other messages used up
   * the bytes of the batch, and this message is left for the next claim.
   */
  isBodyLoaded(message: Pick<MessageState, "account" | "id">): boolean;
  /**
   * Reports whether a message was left because its destination has used its share of the bytes of the batch.
   * Such a message is held in the waitlist of its host.
   */
  isOverByteShare(message: Pick<MessageState, "account" | "host">): boolean;
  /** Reports whether the batch has no other command. */
  isAlone(): boolean;
  /**
   * Reports whether due messages of this account wait for a claim, so that a new message must not overtake
   * them.
   */
  hasBacklog(account: AccountId): boolean;
  /**
   * Reports whether a message to this host may be sent at once in spite of the backlog: see
   * `core/admission/capacity.ts`.
   */
  isNewcomer(account: AccountId, host: string): boolean;
  /**
   * Records in the time index that a row with this id is about a message: see `core/search/timeIndex.ts`.
   * Loads nothing.
   */
  indexTime(account: AccountId, id: string, timeKeys: TimeKeys): void;
  /** Adds to the usage of an account: see `core/accounts/usage.ts`. Loads nothing. */
  count(account: AccountId, counts: Readonly<Partial<Counts>>): void;
  /** Reports damaged data in the log of the server. Other rows are processed normally. */
  fault(message: string): void;
  /** Gives a leased message to this node's dispatcher when the batch has been stored. */
  deliver(delivery: Delivery): void;
  /**
   * When the batch has been stored, tells this node's dispatcher that the outcome of an attempt is no longer
   * needed. The dispatcher may then abort the request.
   */
  abort(lease: LeaseRef): void;
}

/** Everything that a decision may use besides its draft. */
export type Moment = {
  readonly now: Millis;
  readonly node: NodeId;
  /** Whether the disk of the server has too little room to accept new content. */
  readonly isDiskLow?: boolean;
  /** Returns a new id, unique on all nodes. */
  newId(kind: IdKind): string;
  /** Returns an unpredictable number from 0 (inclusive) to 1 (exclusive). */
  random(): number;
};

/**
 * A decision: the rows that it reads, and the changes that follow. A decision is pure and synchronous, and
 * may run again with the same input.
 */
export type Decision<Input, Answer> = {
  /** Returns the rows to load for an input. */
  needs(input: Input): Needs;
  /**
   * Returns more rows to load, once the rows that were asked for before are loaded. It is called until it
   * returns nothing new.
   */
  further?(input: Input, draft: Draft): Needs;
  /** Writes the changes to the draft and returns the answer. */
  decide(input: Input, draft: Draft, moment: Moment): Answer;
};

/** See `Needs.leasedByOthers`. */
export type LeasedNeed = {
  node: NodeId;
  limit: number;
  session?: { number: number; after: Millis; until: Millis };
};
