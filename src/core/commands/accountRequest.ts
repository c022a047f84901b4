import type { AccountChange } from "./account.ts";
import { parseDuration } from "../values/duration.ts";
import { Refusal } from "../values/errors.ts";
import type { Account, Millis } from "../model/message.ts";
import { limitNames, serverLimit, planNames } from "../accounts/plans.ts";
import type { LimitName, PlanName } from "../model/accountTerms.ts";
import { minute, second } from "../values/time.ts";

/** Limits that are lengths of time. */
export const isDurationLimit = (name: LimitName): boolean => name === "delay" || name === "timeout" || name.endsWith("Retention");

/** What whoever runs the server writes of an account. The word `plan` as a limit takes it back: that of the plan holds again. */
export type AccountRequest = { plan?: string | undefined; reservedPrice?: string | undefined } & {
  readonly [L in LimitName]?: string | undefined;
};

/** A field of what is asked for. */
export type AccountRequestField = "plan" | "reservedPrice" | LimitName;

/** What is to be changed. `fieldName`: what a field is called. Throws `Refusal`. */
export function parseAccountChange(request: AccountRequest, fieldName: (field: AccountRequestField) => string): AccountChange {
  const limits: { [L in LimitName]?: number | null } = {};
  for (const name of limitNames) {
    const given = request[name];
    if (given !== undefined) limits[name] = given === "plan" ? null : parseLimit(name, given, fieldName(name));
  }
  const plan = request.plan === undefined ? {} : { plan: parsePlan(request.plan, fieldName("plan")), isPlanHeld: true };
  const price = request.reservedPrice === undefined ? {} : { reservedPrice: parsePrice(request.reservedPrice, fieldName("reservedPrice")) };
  return { ...plan, ...price, ...(Object.keys(limits).length > 0 && { limits }) };
}

/** The highest price of a plan, in dollars. */
const maxDollars = 1_000_000;

/** Dollars. Null: the word plan, so that the price of the plan holds again. */
function parsePrice(written: string, field: string): number | null {
  if (written === "plan") return null;
  const price = /^\d{1,7}(\.\d{1,6})?$/.test(written) ? Number(written) : Number.NaN;
  if (price <= maxDollars) return price;
  throw new Refusal(
    "invalid",
    `${field}: ${written.slice(0, 100)} is neither a number of dollars such as 180 or 9.99, at most ${maxDollars}, nor the word plan`,
  );
}

function parsePlan(written: string, field: string): PlanName {
  const plan = planNames.find((name) => name === written);
  if (plan) return plan;
  throw new Refusal("invalid", `${field}: ${written.slice(0, 100)} is none of ${planNames.join(", ")}`);
}

/** With less, no attempt could come to anything, and what is kept would be gone before anybody could look. As of a message, and of the server. */
const minDuration = (name: LimitName): Millis => (name === "timeout" ? second : name.endsWith("Retention") ? minute : 0);

/** Limits by which nothing would ever be sent, or answered, if they were 0. The others are 0 for "none". */
const nonZeroLimits: ReadonlySet<LimitName> = new Set(["parallelism", "globalParallelism", "requestsPerSecond", "requestsPerDayHard"]);

function parseLimit(name: LimitName, written: string, field: string): number {
  const value = isDurationLimit(name) ? parseDuration(written) : /^\d{1,15}$/.test(written) ? Number(written) : null;
  const min = minDuration(name);
  if (value === 0 && nonZeroLimits.has(name))
    throw new Refusal("invalid", `${field}: 0 would stop everything; give 1 or more, or disable the account`);
  if (value !== null && value > serverLimit(name)) {
    const max = isDurationLimit(name) ? `${serverLimit(name) / second}s` : serverLimit(name);
    throw new Refusal("invalid", `${field}: ${written.slice(0, 100)} is more than this server can bear; give at most ${max}`);
  }
  if (value !== null && value >= min) return value;
  if (value !== null) throw new Refusal("invalid", `${field}: ${written.slice(0, 100)} is too short; give ${min / second}s or more`);
  const kind = isDurationLimit(name) ? "duration such as 30s or 7d" : "whole number";
  throw new Refusal("invalid", `${field}: ${written.slice(0, 100)} is no ${kind}, nor the word plan`);
}

/** The account of this id, or else of this name. Throws `Refusal`. */
export function mustFindAccount(accounts: readonly Account[], idOrName: string): Account {
  const found = accounts.find(({ id }) => id === idOrName) ?? accounts.find(({ name }) => name === idOrName);
  if (found) return found;
  throw new Refusal("not-found", `${idOrName.slice(0, 200)}: there is no such account; waypost account list lists those there are`);
}

/** Throws `Refusal` for what cannot be the name of a new account. */
export function checkAccountName(accounts: readonly Account[], name: string): void {
  if (!/^[^\p{Cc}\p{Cs}:]{1,100}$/u.test(name))
    throw new Refusal("invalid", "name: up to 100 characters, without colons and control characters");
  if (accounts.some((account) => account.name === name || account.id === name))
    throw new Refusal("conflict", `${name}: there is an account of this name; waypost account show ${name}`);
}
