import { readLimits, readMessageBytes, readPlan } from "../../engine/core/accounts/plans.ts";
import { retentionFor } from "../../engine/core/accounts/retention.ts";
import type { Account } from "../../engine/core/model/account.ts";
import { makeReadOnlyToken } from "../auth/token.ts";
import type { AccountBrand } from "../fields/accountRecord.ts";
import { accountRecordFields } from "../fields/accountRecord.ts";
import { toJson } from "../fields/field.ts";
import type { RouteContext } from "../route/route.ts";
import { toSchema } from "./fieldSchema.ts";

/** An account as its holder sees it. */
export const accountRecordSchema = toSchema(accountRecordFields);

/** Returns an account as its holder sees it, with its secrets or without. */
export async function accountJson(
  account: Account,
  { store, maxQueues, maxBody, retention, region = "US-EAST-1", reservedPrices = {} }: RouteContext,
  { brand, withSecrets }: { brand: AccountBrand; withSecrets: boolean },
): Promise<Record<string, unknown>> {
  const { id, password, token } = account;
  const plan = readPlan(account);
  const limits = readLimits(account);
  const [stored] = await store.read.storedBytes([id], null);
  return toJson(accountRecordFields, {
    account,
    limits,
    secrets: withSecrets ? { password, token, readOnlyToken: makeReadOnlyToken(account) } : null,
    messageBytes: readMessageBytes(account, { maxBody }),
    deadLetterRetention: retentionFor(account, retention).deadLetters,
    maxQueues: Math.min(limits.queues, maxQueues ?? limits.queues),
    storedBytes: stored?.bytes ?? 0,
    reservedType: readReservedType(plan, brand),
    reservedPrice: account.reservedPrice ?? reservedPrices[plan] ?? 0,
    region: region.toLowerCase(),
  });
}

const readReservedType = (plan: string, brand: AccountBrand): string =>
  plan === "paid" ? plan : plan.startsWith("fixed_") ? `${brand}_${plan}` : "";
