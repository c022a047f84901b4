import { Refusal } from "../values/errors.ts";
import { defaults, limits as house } from "../values/limits.ts";
import type { Account, Millis } from "../model/message.ts";
import type { AccountLimits, LimitName, PlanName, Terms } from "../model/accountTerms.ts";
import { day, hour, minute } from "../values/time.ts";

const mebibyte = 1024 * 1024;

/** Whose limits are asked for. */
type LimitHolder = Pick<Account, "id"> & Terms;

const unlimited = 1_000_000_000;
/** More than any disk holds. */
const unlimitedBytes = 500_000_000_000_000;

const selfHosted: AccountLimits = {
  messageBytes: house.messageBytes,
  retries: house.retries,
  delay: house.delay,
  timeout: house.timeout,
  // Of queues, dead letters and logs the settings of the server say how far they go.
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
  messageBytes: 8 * mebibyte,
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

/** Every plan, from the one with the least to the one with the most. */
export const plans: Readonly<Record<PlanName, AccountLimits>> = {
  free,
  paid,
  fixed_1m: fixed(1_000_000, 200, 30 * day),
  fixed_10m: fixed(10_000_000, 500, 30 * day),
  fixed_100m: fixed(100_000_000, 1_000, 90 * day),
  selfHosted,
};

export const planNames = ["free", "paid", "fixed_1m", "fixed_10m", "fixed_100m", "selfHosted"] as const satisfies PlanName[];

export const readPlan = ({ plan = "selfHosted" }: Terms): PlanName => plan;

/** The limits that hold for an account: its own, or those of its plan, and never more than the server can bear. */
export function readLimits(account: Terms): Readonly<AccountLimits> {
  const planLimits = plans[readPlan(account)];
  if (account.limits === undefined) return planLimits;
  let mergedLimits = mergedByAccount.get(account);
  if (!mergedLimits) mergedByAccount.set(account, (mergedLimits = mergeLimits(planLimits, account.limits)));
  return mergedLimits;
}

/** Each message asks a dozen times, of the same account. Whoever changes an account makes another one. */
const mergedByAccount = new WeakMap<Terms, Readonly<AccountLimits>>();

function mergeLimits(planLimits: AccountLimits, ownLimits: Partial<AccountLimits>): AccountLimits {
  const mergedLimits: AccountLimits = { ...planLimits, ...ownLimits };
  for (const name of limitNames) mergedLimits[name] = Math.min(mergedLimits[name], selfHosted[name]);
  // A warning beyond what is refused would never be seen, and it would be told as if so many could be asked for.
  mergedLimits.requestsPerDay = Math.min(mergedLimits.requestsPerDay, mergedLimits.requestsPerDayHard);
  return mergedLimits;
}

/** One of them, for where many are asked about. */
export function readLimit({ plan = "selfHosted", limits }: Terms, name: LimitName): number {
  return Math.min(limits?.[name] ?? plans[plan][name], selfHosted[name]);
}

/** The timeout in milliseconds of a message that asks for none: the default, or the limit of the account if that is lower. */
export const defaultTimeout = (account: Terms): Millis => Math.min(defaults.timeout, readLimit(account, "timeout"));

/**
 * Returns how many deliveries an account may have under way. Null: as many as the server can bear. If it may have none to any endpoint, it
 * may have none at all: its messages wait in one line then, and not in a line for each of any number of endpoints.
 */
export const readAccountParallelism = (account: Terms): number | null =>
  findLimit(account, "parallelism") === 0 ? 0 : findLimit(account, "globalParallelism");

/** Returns how many of them may be to one endpoint. Null: that is not limited for itself. */
export const readEndpointParallelism = (account: Terms): number | null => findLimit(account, "parallelism") || null;

function findLimit(account: Terms, name: LimitName): number | null {
  const limit = readLimit(account, name);
  return limit < selfHosted[name] ? limit : null;
}

/** The most that an account may be given of a limit: what the server can bear. */
export const serverLimit = (name: LimitName): number => selfHosted[name];

export const limitNames = Object.keys(selfHosted).filter((name): name is LimitName => name in selfHosted);

/** The flag that sets a limit or another term: `message-bytes`. */
export const toLimitFlag = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/** What a refusal says besides, where a limit is the account's and not the server's. Empty where it is the server's. */
export function formatRaiseHint(account: LimitHolder, name: LimitName): string {
  if (readLimits(account)[name] >= selfHosted[name]) return "";
  return `; it is the limit of this account (plan ${readPlan(account)}): "waypost account limits ${account.id} --${toLimitFlag(name)} ..." raises it`;
}

/** The account a command speaks for. It can have been removed since the token was checked. */
export function requireAccount(account: Account | undefined): Account {
  if (!account) throw new Refusal("unauthorized", "the account of this token does not exist");
  return account;
}

/** The same for a command that makes or changes something: throws `Refusal` for an account that is passive. */
export function requireActiveAccount(account: Account | undefined): Account {
  const known = requireAccount(account);
  mustBeActive(known);
  return known;
}

/** Throws `Refusal` for an account that may not change anything. */
export function mustBeActive({ id, state }: LimitHolder): void {
  if (state === "passive") throw new Refusal("forbidden", formatDisabled(id));
}

const formatDisabled = (id: string): string =>
  `account: it is disabled, so it can read, replace its password and revoke tokens, and change nothing else; "waypost account enable ${id}" lets it go on`;
