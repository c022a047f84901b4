import { Refusal } from "../values/errors.ts";
import type { Remedy } from "../values/remedy.ts";
import type { Account } from "../model/account.ts";
import type { Millis } from "../values/basics.ts";
import { defaults, largestMessageBytes, limits as house } from "../values/limits.ts";
import type { AccountLimits, LimitName, PlanName, Terms } from "../model/accountTerms.ts";
import { day, hour, minute } from "../values/time.ts";

const mebibyte = 1024 * 1024;

/** The account whose limits are read. */
type LimitHolder = Pick<Account, "id"> & Terms;

const unlimited = 1_000_000_000;
/** More bytes than any disk holds. */
const unlimitedBytes = 500_000_000_000_000;

const selfHosted: AccountLimits = {
  // Settings of the server limit bodies, queues, dead letters and logs.
  messageBytes: largestMessageBytes,
  retries: house.retries,
  delay: house.delay,
  timeout: house.timeout,
  parallelism: house.parallelism,
  queues: unlimited,
  deadLetterRetention: 3650 * day,
  logRetention: 3650 * day,
  auditRetention: 3650 * day,
  schedules: house.schedules,
  groups: house.groups,
  endpoints: house.endpoints,
  sources: house.sources,
  tokens: house.tokens,
  globalParallelism: unlimited,
  deadLetters: unlimited,
  logEntries: unlimited,
  auditEntries: unlimited,
  requestsPerSecond: unlimited,
  requestsPerDay: unlimited,
  requestsPerDayHard: unlimited,
  storageBytes: unlimitedBytes,
};

const free: AccountLimits = {
  messageBytes: mebibyte,
  retries: 999,
  delay: 7 * day,
  timeout: 15 * minute,
  parallelism: 2,
  queues: 10,
  schedules: 10,
  groups: 1,
  endpoints: 100,
  sources: 1,
  tokens: 5,
  deadLetterRetention: 3 * day,
  logRetention: 3 * day,
  auditRetention: 30 * day,
  globalParallelism: 10,
  deadLetters: 1_000_000,
  logEntries: 10_000,
  auditEntries: 10_000,
  requestsPerSecond: 100,
  requestsPerDay: 1_000,
  requestsPerDayHard: 1_000,
  storageBytes: unlimitedBytes,
};

const paid: AccountLimits = {
  ...free,
  messageBytes: 10 * mebibyte,
  delay: 366 * day,
  timeout: 2 * hour,
  parallelism: 100,
  queues: 1_000,
  schedules: 1_000,
  groups: 1_000,
  sources: 100,
  tokens: 100,
  deadLetterRetention: 7 * day,
  logRetention: 7 * day,
  auditRetention: 90 * day,
  globalParallelism: 100,
  logEntries: 100_000,
  auditEntries: 100_000,
  requestsPerDay: 500_000,
  requestsPerDayHard: 1_000_000,
};

const fixed = (requests: number, globalParallelism: number, deadLetterRetention: Millis): AccountLimits => ({
  ...paid,
  messageBytes: 50 * mebibyte,
  logRetention: 14 * day,
  auditRetention: 365 * day,
  timeout: house.timeout,
  queues: house.queues,
  schedules: 10_000,
  sources: house.sources,
  tokens: house.tokens,
  requestsPerDay: requests,
  requestsPerDayHard: 2 * requests,
  requestsPerSecond: 1_000,
  globalParallelism,
  deadLetterRetention,
});

/** All plans, from the smallest to the largest. */
export const plans: Readonly<Record<PlanName, AccountLimits>> = {
  free,
  paid,
  fixed_1m: fixed(1_000_000, 200, 30 * day),
  fixed_10m: fixed(10_000_000, 500, 30 * day),
  fixed_100m: fixed(100_000_000, 1_000, 90 * day),
  selfHosted,
};

/** The names of all plans, from the smallest to the largest. */
export const planNames = [
  "free",
  "paid",
  "fixed_1m",
  "fixed_10m",
  "fixed_100m",
  "selfHosted",
] as const satisfies PlanName[];

/** Returns the plan of an account. */
export const readPlan = ({ plan = "selfHosted" }: Terms): PlanName => plan;

/**
 * Returns the limits of an account. The account's own limits replace those of its plan. No limit exceeds that
 * of the server.
 */
export function readLimits(account: Terms): Readonly<AccountLimits> {
  const planLimits = plans[readPlan(account)];
  if (account.limits === undefined) return planLimits;
  let mergedLimits = mergedByAccount.get(account);
  if (!mergedLimits) mergedByAccount.set(account, (mergedLimits = mergeLimits(planLimits, account.limits)));
  return mergedLimits;
}

/**
 * Each message reads the limits of its account about twelve times. An account object never changes, so it can
 * be the key.
 */
const mergedByAccount = new WeakMap<Terms, Readonly<AccountLimits>>();

function mergeLimits(planLimits: AccountLimits, ownLimits: Partial<AccountLimits>): AccountLimits {
  const mergedLimits: AccountLimits = { ...planLimits, ...ownLimits };
  for (const name of limitNames) mergedLimits[name] = Math.min(mergedLimits[name], selfHosted[name]);
  // A warning above the hard limit would never be seen, and would promise requests that are refused.
  mergedLimits.requestsPerDay = Math.min(mergedLimits.requestsPerDay, mergedLimits.requestsPerDayHard);
  return mergedLimits;
}

/** The largest body that the server accepts, in bytes. Default: see `limits`. */
export type BodyLimit = { maxBody?: number | undefined };

/** Returns the largest body that an account may send, in bytes, on a server with this setting. */
export const readMessageBytes = (account: Terms, { maxBody = house.messageBytes }: BodyLimit): number =>
  Math.min(readLimits(account).messageBytes, maxBody);

/** Returns one limit of an account. It is cheaper than `readLimits` for code that reads many accounts. */
export function readLimit({ plan = "selfHosted", limits }: Terms, name: LimitName): number {
  return Math.min(limits?.[name] ?? plans[plan][name], selfHosted[name]);
}

/**
 * Returns the timeout, in milliseconds, of a message that does not set one: the default, or the account's
 * limit if that is lower.
 */
export const defaultTimeout = (account: Terms): Millis =>
  Math.min(defaults.timeout, readLimit(account, "timeout"));

/**
 * Returns how many deliveries an account may have in flight; null if that is not limited. If the limit per
 * endpoint is 0, the limit in total is 0 as well. The messages then wait in one waitlist instead of one
 * waitlist per endpoint.
 */
export const readAccountParallelism = (account: Terms): number | null =>
  findLimit(account, "parallelism") === 0 ? 0 : findLimit(account, "globalParallelism");

/**
 * Returns how many deliveries an account may have in flight to one endpoint; null if they are limited only in
 * total, or not at all.
 */
export const readEndpointParallelism = (account: Terms): number | null =>
  findLimit(account, "parallelism") || null;

function findLimit(account: Terms, name: LimitName): number | null {
  const limit = readLimit(account, name);
  return limit < selfHosted[name] ? limit : null;
}

/** Returns the largest value that an account may be given for a limit, which is the limit of the server. */
export const serverLimit = (name: LimitName): number => selfHosted[name];

/** Reports whether this value of a limit limits nothing. */
export const isUnlimited = (name: LimitName, value: number): boolean =>
  value >= selfHosted[name] && [unlimited, unlimitedBytes].includes(selfHosted[name]);

/** Reports whether this value of a limit leaves the decision to a setting of the server. */
export const followsServer = (name: LimitName, value: number): boolean =>
  name.endsWith("Retention") && value >= selfHosted[name];

/** The names of all limits. */
export const limitNames = Object.keys(selfHosted).filter((name): name is LimitName => name in selfHosted);

/** Returns the remedy of raising a limit; undefined if the account has the limit of the server. */
export const findRaise = (account: LimitHolder, limit: LimitName): RaiseLimit | undefined =>
  readLimits(account)[limit] >= selfHosted[limit]
    ? undefined
    : { remedy: "raise-limit", account: account.id, plan: readPlan(account), limit };

type RaiseLimit = Extract<Remedy, { remedy: "raise-limit" }>;

/** Returns the account of a command. Throws `Refusal` if it has been deleted since the token was checked. */
export function requireAccount(account: Account | undefined): Account {
  if (!account) throw new Refusal("unauthorized", "account: does not exist; it may have been deleted");
  return account;
}

/**
 * Returns the account of a command that changes something. Throws `Refusal` if the account does not exist or
 * is disabled.
 */
export function requireActiveAccount(account: Account | undefined): Account {
  const known = requireAccount(account);
  assertActive(known);
  return known;
}

/** Throws `Refusal` if an account may not change anything. */
export function assertActive({ id, state }: LimitHolder): void {
  if (state !== "passive") return;
  throw new Refusal(
    "forbidden",
    "account: disabled; it can only read, replace its password and revoke tokens",
    { remedy: { remedy: "enable-account", account: id } },
  );
}
