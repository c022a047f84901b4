import type { AccountChange, Account } from "../model/account.ts";
import { parseDuration } from "../values/duration.ts";
import { Refusal } from "../values/errors.ts";
import type { Millis } from "../values/basics.ts";
import { limitNames, serverLimit, planNames } from "./plans.ts";
import type { LimitName, PlanName } from "../model/accountTerms.ts";
import { minute, second } from "../values/time.ts";

/** Reports whether a limit is a duration. */
export const isDurationLimit = (name: LimitName): boolean =>
  name === "delay" || name === "timeout" || name.endsWith("Retention");

/**
 * A change of an account as the operator writes it. The word `plan` removes an override, so that the value of
 * the plan applies again.
 */
export type AccountRequest = { plan?: string | undefined; reservedPrice?: string | undefined } & {
  readonly [L in LimitName]?: string | undefined;
};

/** A field of the request. */
export type AccountRequestField = "plan" | "reservedPrice" | LimitName;

/**
 * Returns the change that a request describes. `fieldName` gives the name of a field for error messages.
 * Throws `Refusal`.
 */
export function parseAccountChange(
  request: AccountRequest,
  fieldName: (field: AccountRequestField) => string,
): AccountChange {
  const limits: { [L in LimitName]?: number | null } = {};
  for (const name of limitNames) {
    const text = request[name];
    if (text !== undefined) limits[name] = text === "plan" ? null : parseLimit(name, text, fieldName(name));
  }
  const plan =
    request.plan === undefined ? {} : { plan: parsePlan(request.plan, fieldName("plan")), isPlanHeld: true };
  const price =
    request.reservedPrice === undefined
      ? {}
      : { reservedPrice: parsePrice(request.reservedPrice, fieldName("reservedPrice")) };
  return { ...plan, ...price, ...(Object.keys(limits).length > 0 && { limits }) };
}

/** The highest price of a plan, in dollars. */
const maxDollars = 1_000_000;

/**
 * Returns a price in dollars. Returns null for the word `plan`, which means that the price of the plan
 * applies again.
 */
function parsePrice(text: string, field: string): number | null {
  if (text === "plan") return null;
  const price = /^\d{1,7}(\.\d{1,6})?$/.test(text) ? Number(text) : Number.NaN;
  if (price <= maxDollars) return price;
  throw new Refusal(
    "invalid",
    `${field}: ${text.slice(0, 100)} is not an amount in dollars; ` +
      `use a number such as 180 or 9.99, at most ${maxDollars}, or the word plan`,
  );
}

function parsePlan(text: string, field: string): PlanName {
  const plan = planNames.find((name) => name === text);
  if (plan) return plan;
  throw new Refusal("invalid", `${field}: ${text.slice(0, 100)} is not a plan; use ${planNames.join(", ")}`);
}

/**
 * Returns the minimum of a limit that is a duration. With a shorter timeout, no attempt could succeed. With a
 * shorter retention, history would be removed before anyone could read it. The same bounds apply to a message
 * and to the settings of the server.
 */
const minDuration = (name: LimitName): Millis =>
  name === "timeout" ? second : name.endsWith("Retention") ? minute : 0;

/** Limits that would stop all deliveries or requests if they were 0. Any other limit may be 0. */
const nonZeroLimits: ReadonlySet<LimitName> = new Set([
  "parallelism",
  "globalParallelism",
  "requestsPerSecond",
  "requestsPerDayHard",
]);

function parseLimit(name: LimitName, text: string, field: string): number {
  const value = isDurationLimit(name) ? parseDuration(text) : /^\d{1,15}$/.test(text) ? Number(text) : null;
  const min = minDuration(name);
  if (value === 0 && nonZeroLimits.has(name))
    throw new Refusal("invalid", `${field}: 0 would stop everything; use 1 or more, or disable the account`);
  if (value !== null && value > serverLimit(name)) {
    const max = isDurationLimit(name) ? `${serverLimit(name) / second}s` : serverLimit(name);
    throw new Refusal("invalid", `${field}: ${text.slice(0, 100)} exceeds this server's limit of ${max}`);
  }
  if (value !== null && value >= min) return value;
  if (value !== null)
    throw new Refusal(
      "invalid",
      `${field}: ${text.slice(0, 100)} is too short; use ${min / second}s or more`,
    );
  const accepted = isDurationLimit(name) ? "a duration such as 30s or 7d" : "a whole number";
  throw new Refusal(
    "invalid",
    `${field}: ${text.slice(0, 100)} is invalid; use ${accepted}, or the word plan`,
  );
}

/** Returns the account with this id, or otherwise with this name. Throws `Refusal` if there is none. */
export function requireNamedAccount(accounts: readonly Account[], idOrName: string): Account {
  const found = accounts.find(({ id }) => id === idOrName) ?? accounts.find(({ name }) => name === idOrName);
  if (found) return found;
  throw new Refusal("not-found", `${idOrName.slice(0, 200)}: account does not exist`, {
    remedy: { remedy: "list-accounts" },
  });
}

/** Throws `Refusal` if a name is invalid, or if it is the name or the id of an existing account. */
export function assertAccountName(accounts: readonly Account[], name: string): void {
  if (!/^[^\p{Cc}\p{Cs}:]{1,100}$/u.test(name))
    throw new Refusal(
      "invalid",
      "name: invalid; use 1 to 100 characters without colons and control characters",
    );
  if (accounts.some((account) => account.name === name || account.id === name))
    throw new Refusal("conflict", `${name}: an account with this name exists`, {
      remedy: { remedy: "show-account", account: name },
    });
}
