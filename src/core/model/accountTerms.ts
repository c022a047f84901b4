/** What an account may have and ask for. Times in milliseconds. */
export type AccountLimits = {
  messageBytes: number;
  retries: number;
  delay: number;
  timeout: number;
  /** Of a queue: messages under way at once. */
  parallelism: number;
  queues: number;
  schedules: number;
  groups: number;
  /** Of a URL group. */
  endpoints: number;
  sources: number;
  /** Besides its own two. */
  tokens: number;
  deadLetterRetention: number;
  /** Of the logs of messages and of runs that have ended. */
  logRetention: number;
  auditRetention: number;
  globalParallelism: number;
  deadLetters: number;
  logEntries: number;
  /** Of the audit log. */
  auditEntries: number;
  requestsPerSecond: number;
  requestsPerDay: number;
  requestsPerDayHard: number;
  /** Bytes of all that an account stores: see `core/accounts/storageQuota.ts`. */
  storageBytes: number;
};

export type LimitName = keyof AccountLimits;

/** `selfHosted`: of those who run the server themselves, as much as the server can bear. An account without a plan has it. */
export type PlanName = "selfHosted" | "free" | "paid" | "fixed_1m" | "fixed_10m" | "fixed_100m";

/** `passive`: an account that can read and end its credentials, and can neither publish nor change anything else. */
export type AccountState = "active" | "passive";

/** What an account has been granted. All of it may be left out. */
export type Terms = {
  plan?: PlanName;
  /** Its plan was set by whoever runs the server, and cannot be changed by its own holder. */
  isPlanHeld?: boolean;
  /** When it got a plan with more in it. */
  upgradedAt?: number;
  /** Limits of its own, which count instead of those of its plan. */
  limits?: Partial<AccountLimits>;
  state?: AccountState;
  /** When it was deleted. What is left of it is for its log, and goes after it. */
  deletedAt?: number;
  /** How many left because the account had more than it may have: lines of its log, dead letters. */
  dropped?: { log: number; deadLetters: number };
  /** Dollars in a month; 0: as many as there are. */
  budget?: number;
  /** What it has spent, as far as that was added up: see `core/accounts/budget.ts`. `month`: when that began. */
  spending?: { month: number; dollars: number };
  /** The bytes it stores, as last noted. Only present while they are over its quota: see `core/accounts/storageQuota.ts`. */
  storedBytes?: number;
  /** Price of its plan in dollars. Null, or not given: the price that the server has for the plan. */
  reservedPrice?: number | null;
  hasProductionPack?: boolean;
  /** Its deliveries are signed by the rules of Standard Webhooks besides. */
  signsStandard?: boolean;
  /** Whose account it is: the address of a person, or the id of a team. */
  customerId?: string;
};
