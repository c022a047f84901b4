import type {
  BodyTableName,
  CountNeed,
  DueNeed,
  DueRows,
  Expired,
  ExpiredNeed,
  Key,
  LeasedNeed,
  RunRowsNeed,
  StepsNeed,
  TableName,
  WaitlistHead,
} from "../../core/decision/command.ts";

/** A list that is read for one command of the batch, and that no other command may use. */
export type Own<Need> = { command: number; need: Need };

/** The rows and lists that decisions of this round looked for and did not find. */
export class WantedReads {
  readonly rows: { [T in TableName]?: Key[] } = {};
  readonly withoutBodies: { [T in BodyTableName]?: Key[] } = {};
  readonly waitlists: WaitlistHead[] = [];
  readonly quotaCounts: CountNeed[] = [];
  readonly runRows: RunRowsNeed[] = [];
  readonly keptLog: Key[] = [];
  readonly runIds: Key[] = [];
  readonly steps: StepsNeed[] = [];
  readonly expired: Own<ExpiredNeed>[] = [];
  due: Own<DueNeed> | null = null;
  leasedByOthers: Own<LeasedNeed> | null = null;
  /** The bytes of the bodies of messages to send. */
  bodyBytes = 0;

  /** Adds the expired rows of an account, unless an earlier command wants them. */
  addExpired(own: Own<ExpiredNeed>): void {
    if (!this.expired.some(({ need }) => need.account === own.need.account)) this.expired.push(own);
  }
}

/** Adds a key to those of a table. */
export function addKey<T extends TableName>(keys: { [N in T]?: Key[] }, table: T, key: Key): void {
  const known: Key[] | undefined = keys[table];
  if (known) known.push(key);
  else keys[table] = [key];
}

/** No rows. */
export const none: readonly never[] = [];

/** The due rows until they are loaded. */
export const nothingDue: DueRows = {
  messages: none,
  hostWaitlists: none,
  limiters: none,
  schedules: none,
  waiters: none,
  turns: {},
};
/** The expired rows until they are loaded. */
export const nothingExpired: Expired = {
  log: none,
  keptLog: none,
  deadLetters: none,
  deduplications: none,
  audit: none,
  runs: none,
  steps: none,
  usage: none,
  timeIndex: none,
  deadLetterCount: 0,
};
/** The tables of `BodyTableName`. */
export const bodyTables = ["storedMessages", "deadLetters", "notifications", "steps"] as const;
/** The tables of `DueRows`. */
export const dueTables = ["messages", "hostWaitlists", "limiters", "schedules", "waiters"] as const;
/** The tables of `ExpiredRows` whose rows are loaded whole, or are not read again. */
export const expiringTables = [
  "log",
  "keptLog",
  "deduplications",
  "audit",
  "runs",
  "usage",
  "timeIndex",
] as const;
