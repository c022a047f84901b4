import { aboutLimits } from "./aboutLimits.ts";
import { defaultTimeout, limitNames, planNames, readPlan } from "../../engine/core/accounts/plans.ts";
import { isDurationLimit } from "../../engine/core/accounts/accountRequest.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { LimitName } from "../../engine/core/model/accountTerms.ts";
import type { FieldsOf } from "./field.ts";
import { count, flag, integer, nullable, number, object, text, texts, time, word } from "./field.ts";

type Limits = Readonly<Record<LimitName, number>>;

const limitFields: FieldsOf<Limits> = Object.fromEntries(
  limitNames.map((name) => [
    name,
    count(
      `The limit that applies${isDurationLimit(name) ? ", in milliseconds" : ""}: ${aboutLimits[name]}.`,
      (limits: Limits) => limits[name],
    ),
  ]),
);

/** The fields of an account as the operator sees it. `limits` are those that apply. */
export const accountFields: FieldsOf<{ account: Account; limits: Limits; storedBytes: number }> = {
  id: text("The id of the account.", ({ account }) => account.id),
  name: text("The name of the account.", ({ account }) => account.name),
  state: word(["active", "passive"])(
    "active: not restricted. passive: the account is disabled. It can read, and change nothing.",
    ({ account }) => account.state ?? "active",
  ),
  plan: word(planNames)("The plan. Its limits apply unless the account has its own.", ({ account }) =>
    readPlan(account),
  ),
  createdAt: time("When the account was created, in Unix milliseconds.", ({ account }) => account.createdAt),
  standardWebhooks: flag(
    "Whether deliveries also have the signatures of Standard Webhooks.",
    ({ account }) => account.signsStandard ?? false,
  ),
  reservedPrice: nullable(number)(
    "The price of the plan in dollars. null means the server's price for the plan.",
    ({ account }) => account.reservedPrice ?? null,
  ),
  defaultTimeout: integer("The timeout of a message that sets none, in milliseconds.", ({ account }) =>
    defaultTimeout(account),
  ),
  limits: object(limitFields)(
    "The limits that apply: the account's own, or those of its plan, capped by the settings of the " +
      "server. Durations are in milliseconds.",
    ({ limits }) => limits,
  ),
  ownLimits: texts(
    "The names of the limits that the account has instead of those of its plan.",
    ({ account }) => limitNames.filter((name) => account.limits?.[name] !== undefined),
  ),
  allowedHosts: nullable(texts)(
    "The hosts that the account may send to. null means every host.",
    ({ account }) => account.allowedHosts ?? null,
  ),
  storedBytes: integer(
    "The bytes that the account stores now. The quota is limits.storageBytes.",
    ({ storedBytes }) => storedBytes,
  ),
};
