import { z } from "zod";
import { defaultTimeout, readLimits, readMessageBytes, readPlan } from "../../engine/core/accounts/plans.ts";
import { retentionFor } from "../../engine/core/accounts/retention.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { RouteContext } from "../route/route.ts";
import { makeReadOnlyToken } from "../auth/token.ts";

/** The brand in the paths of the account API. The names of plans begin with it. */
export type AccountBrand = "svc" | "qstash";

/** All numbers of an account are at least 0. */
const integer = z.int().min(0);

const secretsFor = "Present only for the user name and the password.";

/** An account as its owner sees it. */
export const accountRecordSchema = z.object({
  customer_id: z.string().describe("The owner: the name of the account, or the team that it was moved to."),
  id: z.string().describe("The id of the account."),
  password: z.string().optional().describe(`The password for the account API. ${secretsFor}`),
  token: z
    .string()
    .optional()
    .describe(`The main token, which may do everything in the account. ${secretsFor}`),
  read_only_token: z
    .string()
    .optional()
    .describe(`The token for requests that change nothing. ${secretsFor}`),
  active: z.boolean().describe("false if the account is passive."),
  state: z
    .enum(["active", "passive"])
    .describe("active: not restricted. passive: the account can read, and change nothing."),
  last_plan_upgrade_time: integer.describe(
    "When the plan was last upgraded, in Unix seconds. 0 if it never was.",
  ),
  max_message_size: integer.describe("The largest body of a message, in bytes."),
  max_requests_per_day: integer.describe("Requests per day. Above this number, responses have a warning."),
  max_requests_per_day_hard: integer.describe("Requests per day. Above this number, publishing is refused."),
  max_endpoints_per_topic: integer.describe("The maximum number of endpoints of a URL group."),
  max_requests_per_second: integer.describe("Requests per second. Publishing does not count."),
  max_dlq_size: integer.describe(
    "The maximum number of dead letters. Above this number, the oldest are deleted.",
  ),
  max_retries: integer.describe("The maximum number of retries of a message."),
  max_topics: integer.describe("The maximum number of URL groups."),
  max_schedules: integer.describe("The maximum number of schedules."),
  max_events_size: integer.describe(
    "The maximum number of rows of the log. Above this number, the oldest are deleted. One row can record " +
      "several states: a message delivered at the first attempt has one row.",
  ),
  max_dlq_retention_time_milis: integer.describe("How long dead letters are kept, in milliseconds."),
  max_delay: integer.describe("The longest delay of a message, in seconds."),
  max_parallelism: integer.describe(
    "The highest parallelism of a queue, and the maximum number of deliveries in flight to one endpoint. " +
      "Further deliveries wait.",
  ),
  max_global_parallelism: integer.describe(
    "The maximum number of deliveries in flight in all. Further deliveries wait.",
  ),
  max_queues: integer.describe("The maximum number of queues."),
  dropped_dlq_messages: integer.describe(
    "Dead letters deleted because there were more than max_dlq_size, since the account was created.",
  ),
  dropped_events: integer.describe(
    "Log rows deleted because there were more than max_events_size, since the account was created.",
  ),
  storage_bytes: integer.describe(
    "Bytes stored now: bodies, logs, dead letters, runs, schedules and the audit log.",
  ),
  max_storage_bytes: integer.describe("The quota of stored bytes. Above this number, publishing is refused."),
  prod_pack_enabled: z
    .boolean()
    .describe("Whether the production pack is enabled. It has no effect on this server."),
  standard_webhooks_enabled: z
    .boolean()
    .describe("Whether deliveries also have the signatures of Standard Webhooks."),
  timeout: integer.describe("The longest timeout of a message, in seconds."),
  default_timeout: integer.describe("The timeout of a message that sets none, in seconds."),
  type: z.enum(["free", "paid"]).describe("free for the plan free, and paid for all other plans."),
  reserved_type: z.string().describe("The name of the paid plan. Empty for the plans free and selfHosted."),
  reserved_price: z.number().describe("The price of the plan in dollars, as set by the operator."),
  region: z.string().describe("The region of the server: eu-central-1 or us-east-1."),
  budget: integer.describe(
    "The budget in dollars per month. When it is spent, publishing is refused. 0 means no limit.",
  ),
  created_by: z.string().describe("The name of the account."),
  creation_time: integer.describe("When the account was created, in Unix seconds."),
});

const seconds = (millis: number): number => Math.floor(millis / 1000);

/** Returns the account record without its secrets. */
export async function openAccountJson(account: Account, context: RouteContext, brand: AccountBrand) {
  const {
    password: _password,
    token: _token,
    read_only_token: _readOnly,
    ...open
  } = await accountJson(account, context, brand);
  return open;
}

/** Returns an account as its holder sees it. */
export async function accountJson(
  account: Account,
  { store, maxQueues, maxBody, retention, region = "US-EAST-1", reservedPrices = {} }: RouteContext,
  brand: AccountBrand,
) {
  const {
    id,
    name,
    customerId = name,
    password,
    token,
    state = "active",
    budget = 0,
    createdAt,
    upgradedAt = 0,
  } = account;
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
    max_message_size: readMessageBytes(account, { maxBody }),
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
