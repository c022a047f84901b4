import type {
  Account,
  AccountId,
  DeadLetter,
  Deduplication,
  Delivery,
  Envelope,
  IdKind,
  Line,
  LogRow,
  MessageState,
  Millis,
  NodeId,
} from "./message.ts";

/** Everything that is kept, by table. A row is never changed in place: `put` takes a new one. */
export type Rows = {
  accounts: Account;
  envelopes: Envelope;
  messages: MessageState;
  deduplications: Deduplication;
  deadLetters: DeadLetter;
  lines: Line;
  log: LogRow;
};

export type TableName = keyof Rows;

/** The key of a row: the account, and what names the row within it (absent where the account is the row). */
export type Key = readonly [account: AccountId, id?: string];

/** The head of a line: its held messages in order of arrival. */
export type LineHead = { account: AccountId; host: string; limit: number };

/** What is past its time in an account. Positions in the log and in the dead letter queue begin with their time. */
export type ExpiredNeed = { account: AccountId; logBefore: Millis; deadLettersBefore: Millis; deduplicationsBefore: Millis; limit: number };

/** What a decision must see. The store loads it, and on a shared database locks it. */
export type Needs = { readonly [T in TableName]?: readonly Key[] } & {
  /** Messages and lines that are due, oldest first, at most so many of each. */
  readonly due?: { limit: number };
  readonly heads?: readonly LineHead[];
  /** Messages leased by any node but this one. Only where no other node can be alive. */
  readonly leasedByOthers?: { node: NodeId; limit: number };
  readonly expired?: readonly ExpiredNeed[];
};

/** The world as a decision sees and changes it: the rows it asked for, and what its predecessors in the batch made of them. */
export interface Draft {
  get<T extends TableName>(table: T, ...key: Key): Rows[T] | undefined;
  put<T extends TableName>(table: T, row: Rows[T]): void;
  drop(table: TableName, ...key: Key): void;
  /** The due messages that were asked for, as far as they are still due. */
  due(): readonly MessageState[];
  dueLines(): readonly Line[];
  /** The first ones of a line, as many as were asked for. */
  head(account: AccountId, host: string): readonly MessageState[];
  /** False when others may stand behind those that `head` shows. */
  isWholeLine(account: AccountId, host: string): boolean;
  leasedByOthers(): readonly MessageState[];
  expired(account: AccountId): { log: readonly LogRow[]; deadLetters: readonly DeadLetter[]; deduplications: readonly Deduplication[] };
  /** Takes one of this node's free hands for a host. False when there is none to spare: see `core/hands.ts`. */
  takeHand(account: AccountId, host: string): boolean;
  /** Whether due messages wait for a claim, so that a new one must not go at once. */
  behind(): boolean;
  /** Hands a leased message to this node's dispatcher once the batch is on the disk. */
  deliver(delivery: Delivery): void;
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
