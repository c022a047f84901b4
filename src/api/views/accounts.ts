import { z } from "zod";
import type { Account } from "../../core/model/message.ts";
import { defaultTimeout, limitsOf, planOf } from "../../core/accounts/plans.ts";
import { retentionFor } from "../../core/commands/retention.ts";
import type { Parts } from "../route/route.ts";
import { readOnlyTokenOf } from "../auth/token.ts";

/** How the paths of accounts name the service, and so what names of plans begin with. */
export type AccountBrand = "svc" | "qstash";

const whole = z.int();

/** An account as its holder sees it. */
export const accountRecord = z.object({
  customer_id: z.string().describe("Whose account it is: its name, unless it was moved to a team."),
  id: z.string(),
  password: z.string(),
  token: z.string().describe("What requests prove the account with."),
  read_only_token: z.string().describe("The same for requests that change nothing."),
  active: z.boolean(),
  state: z.enum(["active", "passive"]).describe("A passive account can read, and change nothing."),
  last_plan_upgrade_time: whole.describe("In unix seconds; 0 when there was none."),
  max_message_size: whole.describe("In bytes."),
  max_requests_per_day: whole.describe("Beyond it there is a warning."),
  max_requests_per_day_hard: whole.describe("Beyond it requests are refused."),
  max_endpoints_per_topic: whole,
  max_requests_per_second: whole.describe("Those that publish are not counted."),
  max_dlq_size: whole.describe("The oldest leave first."),
  max_retries: whole,
  max_topics: whole,
  max_schedules: whole,
  max_events_size: whole.describe(
    "Lines of the log; the oldest leave first. A line can tell several states: a message delivered at the first attempt has one.",
  ),
  max_dlq_retention_time_milis: whole.describe("In milliseconds."),
  max_delay: whole.describe("In seconds."),
  max_parallelism: whole.describe(
    "The most that a queue may have at once, and the most deliveries in flight to one endpoint; others wait.",
  ),
  max_global_parallelism: whole.describe("Deliveries under way at once; others wait."),
  max_queues: whole,
  dropped_dlq_messages: whole.describe("Dead letters that left because there were more than max_dlq_size, since the beginning."),
  dropped_events: whole.describe("Lines of the log that left because there were more than max_events_size, since the beginning."),
  storage_bytes: whole.describe("Bytes stored now: bodies, logs, dead letters, runs, schedules and the audit log."),
  max_storage_bytes: whole.describe("The quota of stored bytes. Beyond it nothing new is published."),
  prod_pack_enabled: z.boolean(),
  standard_webhooks_enabled: z.boolean().describe("Whether deliveries are signed by Standard Webhooks besides."),
  timeout: whole.describe("The longest that a message may ask for, in seconds."),
  default_timeout: whole.describe("The timeout of a message that asks for none, in seconds."),
  type: z.enum(["free", "paid"]),
  reserved_type: z.string().describe("The plan, unless it is free or that of those who host the server themselves."),
  reserved_price: z.number().describe("Price of the plan in dollars, as the operator has set it."),
  region: z.string().describe("Where the server is: eu-central-1 or us-east-1."),
  budget: whole.describe("Dollars in a month; 0: no limit. Beyond it nothing more is published."),
  created_by: z.string(),
  creation_time: whole.describe("In unix seconds."),
});

const seconds = (millis: number): number => Math.floor(millis / 1000);

/** Returns the account record (protocol 7.1). */
export async function accountJson(
  account: Account,
  { store, mostQueues, retention, region = "US-EAST-1", reservedPrices = {} }: Parts,
  brand: AccountBrand,
) {
  const { id, name, customerId = name, password, token, state = "active", budget = 0, createdAt, upgradedAt = 0 } = account;
  const plan = planOf(account);
  const most = limitsOf(account);
  const [stored] = await store.read.storedBytes([id], null);
  const record: z.output<typeof accountRecord> = {
    ...{ customer_id: customerId, id, password, token, read_only_token: readOnlyTokenOf(account) },
    ...{ active: state === "active", state, last_plan_upgrade_time: seconds(upgradedAt) },
    ...{
      max_message_size: most.messageBytes,
      max_requests_per_day: most.requestsPerDay,
      max_requests_per_day_hard: most.requestsPerDayHard,
    },
    ...{ max_endpoints_per_topic: most.endpoints, max_requests_per_second: most.requestsPerSecond, max_dlq_size: most.deadLetters },
    ...{ max_retries: most.retries, max_topics: most.groups, max_schedules: most.schedules, max_events_size: most.logEntries },
    max_dlq_retention_time_milis: retentionFor(account, retention).deadLetters,
    ...{ max_delay: seconds(most.delay), max_parallelism: most.parallelism, max_global_parallelism: most.globalParallelism },
    ...{ max_queues: Math.min(most.queues, mostQueues ?? most.queues), prod_pack_enabled: account.hasProductionPack ?? false },
    ...{ dropped_dlq_messages: account.dropped?.deadLetters ?? 0, dropped_events: account.dropped?.log ?? 0 },
    ...{ storage_bytes: stored?.bytes ?? 0, max_storage_bytes: most.storageBytes },
    standard_webhooks_enabled: account.signsStandard ?? false,
    ...{
      timeout: seconds(most.timeout),
      default_timeout: seconds(defaultTimeout(account)),
      type: plan === "free" ? "free" : "paid",
      reserved_type: reservedType(plan, brand),
      reserved_price: account.reservedPrice ?? reservedPrices[plan] ?? 0,
    },
    ...{ region: region.toLowerCase(), budget, created_by: name, creation_time: seconds(createdAt) },
  };
  return record;
}

const reservedType = (plan: string, brand: AccountBrand): string =>
  plan === "paid" ? plan : plan.startsWith("fixed_") ? `${brand}_${plan}` : "";
