import type { Deduplication } from "../model/deduplication.ts";
import type { AuditEntry } from "../model/auditEntry.ts";
import type {
  Account,
  AccountId,
  DeadLetter,
  Delivery,
  StoredMessage,
  Limiter,
  UrlGroup,
  LeaseRef,
  IdKind,
  HostWaitlist,
  LogRow,
  Tag,
  MessageId,
  MessageState,
  Millis,
  NodeId,
  WithoutBody,
  Rejection,
  Schedule,
  TimeKeys,
  QueueSlot,
  RunKey,
  WebhookSource,
} from "../model/message.ts";
import type { DayCount, SecondCount } from "../model/counts.ts";
import type { Token } from "../model/rights.ts";
import type { ActiveRun, Notification, Run, Step, Waiter } from "../model/run.ts";
import type { Counts, Usage } from "../model/counts.ts";
import type { Turns } from "../fairness/turns.ts";

/** Everything that is kept, by table. A row is never changed in place: `put` takes a new one. */
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
  /** Entries of the log that are past their time, of messages that are unfinished or have a dead letter. */
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
};

export type TableName = keyof Rows;

/** The key of a row: the account, and what names the row within it (absent where the account is the row). */
export type Key = readonly [account: AccountId, id?: string];

/** The head of a line: its held messages in order of arrival. */
export type WaitlistHead = { account: AccountId; waitlist: string; limit: number };

/** What is past its time in an account. Positions in the log and in the dead letter queue begin with their time. */
export type ExpiredNeed = {
  account: AccountId;
  logBefore: Millis;
  keptLogBefore: Millis;
  deadLettersBefore: Millis;
  deduplicationsBefore: Millis;
  auditBefore: Millis;
  /** Of runs: when they ended. */
  runsBefore: Millis;
  failedRunsBefore: Millis;
  /** Of days that ended before that. */
  timeIndexBefore: Millis;
  /** Of buckets: their ids are between these two. */
  usage: readonly { after: string; before: string }[];
  limit: number;
};

/** What belongs to a run: unfinished messages, what waits, what has come before it was asked for, and its history; without bodies. */
export type RunRows = { messages: MessageState; waiters: Waiter; notifications: WithoutBody<Notification>; steps: WithoutBody<Step> };
export type RunTableName = keyof RunRows;
export type RunNeed = { account: AccountId; run: RunKey };
/** Rows of one table. `event`: only those of an event, of the tables that have events. */
export type RunRowsNeed = RunNeed & { table: RunTableName; event?: string };

/** The number of rows of a kind that an account has, counted up to `limit`. */
export type CountNeed = { account: AccountId; name: "groups" | "schedules" | "sources" | "tokens" | "queues"; limit: number };

/** A history with its bodies, or one entry of it. */
export type StepsNeed = RunNeed & { stepKey?: string };

/** Tables whose rows have a body. Most decisions look at the rest of it only. */
export type BodyTableName = "storedMessages" | "deadLetters" | "notifications" | "steps";

/** The most rows of each table, the oldest first. `limit`: messages. `turns`: rows of other accounts in turn, too, see `core/fairness/turns.ts`. */
export type DueNeed = { limit: number; hostWaitlists: number; limiters: number; schedules: number; waiters: number; turns?: Turns };

/** What a decision must see. The store loads it, and on a shared database locks it. */
export type Needs = { readonly [T in TableName]?: readonly Key[] } & {
  /** Rows of which the body is not looked at, so that it is not loaded. */
  readonly withoutBodies?: { readonly [T in "storedMessages" | "deadLetters" | "steps"]?: readonly Key[] };
  /**
   * Messages that may be sent now: their envelopes, in this order, as far as the bytes of a batch go. What is left out
   * is left for the next turn. Loaded when all else is here, so that it can be asked for no more than is needed.
   */
  readonly toSend?: readonly MessageState[];
  /** The same for the heads of lines, as far as they are here. They go before those of `toSend`. */
  readonly toSendFromWaitlists?: readonly Pick<WaitlistHead, "account" | "waitlist">[];
  /**
   * Endpoints to which messages may be sent, each as the id of its flow. The flow is loaded if the account is limited in what it may have
   * under way to an endpoint.
   */
  readonly endpoints?: readonly Key[];
  /** What is due, oldest first: messages; lines of hosts, and of flows; schedules; waiters. At most so many of each. */
  readonly due?: DueNeed;
  /** With what must be seen when those that stand there go on. */
  readonly waitlistHeads?: readonly WaitlistHead[];
  /**
   * Messages leased by any node but this one: only where no other node can be alive. With a `session`: those leased by this node until a time
   * between `after` and `until`, if that is its session still, which then remains so until the transaction ends.
   */
  readonly leasedByOthers?: LeasedNeed;
  readonly expired?: readonly ExpiredNeed[];
  /** How many there are of what is set up. On a shared database nobody else makes one until the transaction ends. */
  readonly quotaCounts?: readonly CountNeed[];
  readonly runRows?: readonly RunRowsNeed[];
  /** Messages, by their keys, whose entries in the kept log are needed. */
  readonly keptLogMessages?: readonly Key[];
  /** As far as the bytes of a batch go. A command that finds the batch full runs again in another one: see `listSteps`. */
  readonly runSteps?: readonly StepsNeed[];
};

/** The world as a decision sees and changes it: the rows it asked for, and what its predecessors in the batch made of them. */
export interface Draft {
  get<T extends TableName>(table: T, ...key: Key): Rows[T] | undefined;
  /** A row that was asked for without its body, or with it. */
  getWithoutBody<T extends BodyTableName>(table: T, ...key: Key): WithoutBody<Rows[T]> | undefined;
  put<T extends TableName>(table: T, row: Rows[T]): void;
  /** Whether the running command has changed anything so far. */
  hasChanged(): boolean;
  drop(table: TableName, ...key: Key): void;
  /** Moves an entry from the log to the kept log, and leaves its marks as they are. */
  moveToKeptLog(row: LogRow): void;
  /** Returns the entries of a message in the kept log, without their bodies. The decision must have asked for them (`Needs.keptOf`). */
  listKeptLog(account: AccountId, messageId: MessageId): readonly LogRow[];
  /** The due messages that were asked for, as far as they are still due. */
  due(): readonly MessageState[];
  dueHostWaitlists(): readonly HostWaitlist[];
  dueLimiters(): readonly Limiter[];
  dueSchedules(): readonly Schedule[];
  dueWaiters(): readonly Waiter[];
  /** Where the turns through the accounts that were asked for have ended. */
  turns(): Turns;
  /** What belongs to a run, as far as it was asked for, in the order of ids. */
  listRunRows<T extends RunTableName>(table: T, account: AccountId, run: RunKey): readonly RunRows[T][];
  /** Whether all unfinished messages of a run were asked for, as they are where it may end. */
  mayEndRun(account: AccountId, run: RunKey): boolean;
  /** The history of a run that was asked for, in no order, or one entry of it. Throws `RetryInNextBatch` when there was no room for it. */
  listSteps(account: AccountId, run: RunKey, stepKey?: string): readonly Step[];
  /** The first ones of a line that still stand in it, of as many as were asked for. Whoever needs one takes no more. */
  waitlistHead(account: AccountId, waitlist: string): Iterable<MessageState>;
  /** False when others may stand behind those that `head` shows. */
  isWholeWaitlist(account: AccountId, waitlist: string): boolean;
  leasedByOthers(): readonly MessageState[];
  /** What is past its time, as far as it was asked for. Throws `RetryInNextBatch` when others of the batch have asked as well. */
  expired(account: AccountId): {
    log: readonly LogRow[];
    /** Without their bodies. */
    keptLog: readonly LogRow[];
    deadLetters: readonly WithoutBody<DeadLetter>[];
    deduplications: readonly Deduplication[];
    audit: readonly AuditEntry[];
    runs: readonly Run[];
    /** Of these runs, in their order, as far as the limit goes; without their bodies. */
    steps: readonly Step[];
    usage: readonly Usage[];
    timeIndex: readonly Tag[];
  };
  /** How many there are of what was asked for in `counts`, with what the batch has made of it. */
  readQuotaCount(account: AccountId, name: CountNeed["name"]): number;
  /** Whether this node has a hand for one more delivery to a host: see `core/admission/capacity.ts`. */
  hasCapacity(account: AccountId, host: string): boolean;
  /** Whether there is none because the account holds its share of this node. */
  isDenied(account: AccountId, host: string): boolean;
  /** Takes it, and `size` bytes of memory. False when there is none to spare. */
  takeCapacity(account: AccountId, host: string, size: number): boolean;
  /** Whether the envelope of a message to be sent has been looked for. False: others came first, and it is left for the next turn. */
  isBodyLoaded(message: Pick<MessageState, "account" | "id">): boolean;
  /** Whether it was left because its destination has had its share of the bytes of the batch. Then it stands in line. */
  isOverByteShare(message: Pick<MessageState, "account" | "host">): boolean;
  /** Whether there is no other call in the batch. */
  isAlone(): boolean;
  /** Whether due messages of this account wait for a claim, so that a new one must not go at once. */
  hasBacklog(account: AccountId): boolean;
  /** Whether a message to this host may go at once all the same: see `core/admission/capacity.ts`. */
  isNewcomer(account: AccountId, host: string): boolean;
  /** That something with this id is told of a message: see `core/search/timeIndex.ts`. Nothing is loaded for it. */
  indexTime(account: AccountId, id: string, timeKeys: TimeKeys): void;
  /** Adds to what an account has used: see `core/accounts/usage.ts`. Nothing is loaded for it. */
  count(account: AccountId, counts: Readonly<Partial<Counts>>): void;
  /** Tells people of something that cannot be, and yet must not stop the others. */
  fault(message: string): void;
  /** Hands a leased message to this node's dispatcher once the batch is on the disk. */
  deliver(delivery: Delivery): void;
  /** Tells this node's dispatcher, at that moment too, that nobody waits for a call of its own any more: it may end it. */
  abort(lease: LeaseRef): void;
}

/** All a decision may know of the world besides its draft. */
export type Moment = {
  readonly now: Millis;
  readonly node: NodeId;
  newId(kind: IdKind): string;
  /** From 0 to 1, unpredictable. */
  random(): number;
};

/** A decision: what it must see, and what changes then. Pure and synchronous; it may be run again. */
export type Decision<Input, Answer> = {
  needs(input: Input): Needs;
  /** What it must see besides, once it sees that. Asked again until it names nothing new. */
  further?(input: Input, draft: Draft): Needs;
  decide(input: Input, draft: Draft, moment: Moment): Answer;
};

/** See `Needs.leasedByOthers`. */
export type LeasedNeed = { node: NodeId; limit: number; session?: { number: number; after: Millis; until: Millis } };
