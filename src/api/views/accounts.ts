import { z } from "zod";
import type { Account } from "../../core/model/message.ts";
import { defaultTimeout, readLimits, readPlan } from "../../core/accounts/plans.ts";
import { retentionFor } from "../../core/commands/retention.ts";
import type { RouteContext } from "../route/route.ts";
import { makeReadOnlyToken } from "../auth/token.ts";

/** How the paths of accounts name the service, and so what names of plans begin with. */
export type AccountBrand = "svc" | "qstash";

const integer = z.int();

/** An account as its holder sees it. */
export const accountRecordSchema = z.object({
  customer_id: z.string().describe("Whose account it is: its name, unless it was moved to a team."),
  id: z.string(),
  password: z.string(),
  token: z.string().describe("What requests prove the account with."),
  read_only_token: z.string().describe("The same for requests that change nothing."),
  active: z.boolean(),
  state: z.enum(["active", "passive"]).describe("A passive account can read, and change nothing."),
  last_plan_upgrade_time: integer.describe("In unix seconds; 0 when there was none."),
  max_message_size: integer.describe("In bytes."),
  max_requests_per_day: integer.describe("Beyond it there is a warning."),
  max_requests_per_day_hard: integer.describe("Beyond it requests are refused."),
  max_endpoints_per_topic: integer,
  max_requests_per_second: integer.describe("Those that publish are not counted."),
  max_dlq_size: integer.describe("The oldest leave first."),
  max_retries: integer,
  max_topics: integer,
  max_schedules: integer,
  max_events_size: integer.describe(
    "Lines of the log; the oldest leave first. A line can tell several states: a message delivered at the first attempt has one.",
  ),
  max_dlq_retention_time_milis: integer.describe("In milliseconds."),
  max_delay: integer.describe("In seconds."),
  max_parallelism: integer.describe(
    "The most that a queue may have at once, and the most deliveries in flight to one endpoint; others wait.",
  ),
  max_global_parallelism: integer.describe("Deliveries under way at once; others wait."),
  max_queues: integer,
  dropped_dlq_messages: integer.describe("Dead letters that left because there were more than max_dlq_size, since the beginning."),
  dropped_events: integer.describe("Lines of the log that left because there were more than max_events_size, since the beginning."),
  storage_bytes: integer.describe("Bytes stored now: bodies, logs, dead letters, runs, schedules and the audit log."),
  max_storage_bytes: integer.describe("The quota of stored bytes. Beyond it nothing new is published."),
  prod_pack_enabled: z.boolean(),
  standard_webhooks_enabled: z.boolean().describe("Whether deliveries are signed by Standard Webhooks besides."),
  timeout: integer.describe("The longest that a message may ask for, in seconds."),
  default_timeout: integer.describe("The timeout of a message that asks for none, in seconds."),
  type: z.enum(["free", "paid"]),
  reserved_type: z.string().describe("The plan, unless it is free or that of those who host the server themselves."),
  reserved_price: z.number().describe("Price of the plan in dollars, as the operator has set it."),
  region: z.string().describe("Where the server is: eu-central-1 or us-east-1."),
  budget: integer.describe("Dollars in a month; 0: no limit. Beyond it nothing more is published."),
  created_by: z.string(),
  creation_time: integer.describe("In unix seconds."),
});

const seconds = (millis: number): number => Math.floor(millis / 1000);

/** Returns the account record (protocol 7.1). */
export async function accountJson(
  account: Account,
  { store, maxQueues, retention, region = "US-EAST-1", reservedPrices = {} }: RouteContext,
  brand: AccountBrand,
) {
  const { id, name, customerId = name, password, token, state = "active", budget = 0, createdAt, upgradedAt = 0 } = account;
  const plan = readPlan(account);
  const limits = readLimits(account);
  const [stored] = await store.read.storedBytes([id], null);
  const record: z.output<typeof accountRecordSchema> = {
    customer_id: customerId,
    id,
    password,
    token,
    read_only_token: makeReadOnlyToken(account),
    active: state === "active",
    state,
    last_plan_upgrade_time: seconds(upgradedAt),
    max_message_size: limits.messageBytes,
    max_requests_per_day: limits.requestsPerDay,
    max_requests_per_day_hard: limits.requestsPerDayHard,
    max_endpoints_per_topic: limits.endpoints,
    max_requests_per_second: limits.requestsPerSecond,
    max_dlq_size: limits.deadLetters,
    max_retries: limits.retries,
    max_topics: limits.groups,
    max_schedules: limits.schedules,
    max_events_size: limits.logEntries,
    max_dlq_retention_time_milis: retentionFor(account, retention).deadLetters,
    max_delay: seconds(limits.delay),
    max_parallelism: limits.parallelism,
    max_global_parallelism: limits.globalParallelism,
    max_queues: Math.min(limits.queues, maxQueues ?? limits.queues),
    prod_pack_enabled: account.hasProductionPack ?? false,
    dropped_dlq_messages: account.dropped?.deadLetters ?? 0,
    dropped_events: account.dropped?.log ?? 0,
    storage_bytes: stored?.bytes ?? 0,
    max_storage_bytes: limits.storageBytes,
    standard_webhooks_enabled: account.signsStandard ?? false,
    timeout: seconds(limits.timeout),
    default_timeout: seconds(defaultTimeout(account)),
    type: plan === "free" ? "free" : "paid",
    reserved_type: reservedType(plan, brand),
    reserved_price: account.reservedPrice ?? reservedPrices[plan] ?? 0,
    region: region.toLowerCase(),
    budget,
    created_by: name,
    creation_time: seconds(createdAt),
  };
  return record;
}

const reservedType = (plan: string, brand: AccountBrand): string =>
  plan === "paid" ? plan : plan.startsWith("fixed_") ? `${brand}_${plan}` : "";
