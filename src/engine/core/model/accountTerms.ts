/** The limits of an account. Times are in milliseconds. */
export type AccountLimits = {
  messageBytes: number;
  retries: number;
  delay: number;
  timeout: number;
  /** The number of messages of one queue that may be in flight at once. */
  parallelism: number;
  queues: number;
  schedules: number;
  groups: number;
  /** The number of endpoints in one URL group. */
  endpoints: number;
  sources: number;
  /** The number of tokens in addition to the account's own two. */
  tokens: number;
  deadLetterRetention: number;
  /** How long the logs of messages and of ended runs are kept. */
  logRetention: number;
  auditRetention: number;
  globalParallelism: number;
  deadLetters: number;
  logEntries: number;
  /** The number of entries in the audit log. */
  auditEntries: number;
  requestsPerSecond: number;
  requestsPerDay: number;
  requestsPerDayHard: number;
  /** The bytes of everything that the account stores: see `engine/core/limits/storageQuota.ts`. */
  storageBytes: number;
};

/** The name of a limit. */
export type LimitName = keyof AccountLimits;

/** The name of a plan. `selfHosted` has the limits of the server. An account without a plan has this plan. */
export type PlanName = "selfHosted" | "free" | "paid" | "fixed_1m" | "fixed_10m" | "fixed_100m";

/**
 * The state of an account. A disabled account (`passive`) may read, and revoke its own credentials. It cannot
 * publish or change anything else.
 */
export type AccountState = "active" | "passive";

/**
 * The fields of operations in the row of an account. An operation adds its field beside its type, and names
 * it in `secretTerms` if the store must encrypt it.
 */
export interface OperationTerms {}

/** The terms of an account: what it may use, and records of what it has used. Every field is optional. */
export type Terms = OperationTerms & {
  plan?: PlanName;
  /** The operator set the plan, so the account itself cannot change it. */
  isPlanHeld?: boolean;
  /** When the account last moved to a larger plan. */
  upgradedAt?: number;
  /** The account's own limits. They replace those of its plan. */
  limits?: Partial<AccountLimits>;
  state?: AccountState;
  /** When the account was deleted. The row stays for as long as the account's log does. */
  deletedAt?: number;
  /**
   * The numbers of log entries and dead letters that were removed because the account exceeded its limit of
   * them.
   */
  dropped?: { log: number; deadLetters: number };
  /** Dollars per month. 0 means that there is no budget. */
  budget?: number;
  /**
   * The account's spending so far, as last added up: see `engine/core/limits/budget.ts`. `month` is the start
   * of that month.
   */
  spending?: { month: number; dollars: number };
  /**
   * The bytes that the account stores, as last recorded. Present only while they exceed its quota: see
   * `engine/core/limits/storageQuota.ts`.
   */
  storedBytes?: number;
  /** The price of the plan in dollars. If it is null or absent, the server's price for the plan applies. */
  reservedPrice?: number | null;
  hasProductionPack?: boolean;
  /** Deliveries are also signed by the rules of Standard Webhooks. */
  signsStandard?: boolean;
  /**
   * The hosts that the account may send to: see `engine/core/accounts/allowedHosts.ts`. Absent or null: every
   * host.
   */
  allowedHosts?: readonly string[] | null;
  /** The owner of the account: a person's address, or the id of a team. */
  customerId?: string;
};
