import { defaultTimeout, readPlan } from "../../engine/core/accounts/plans.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { AccountLimits } from "../../engine/core/model/accountTerms.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { FieldsOf } from "./field.ts";
import { count, flag, number, optional, text, word } from "./field.ts";

/** The brand in the paths of the account API. The names of plans begin with it. */
export type AccountBrand = "svc" | "qstash";

/** An account, with what the settings of the server make of it. */
type ShownAccount = {
  account: Account;
  limits: AccountLimits;
  secrets: { password: string; token: string; readOnlyToken: string } | null;
  messageBytes: number;
  deadLetterRetention: Millis;
  maxQueues: number;
  storedBytes: number;
  reservedType: string;
  reservedPrice: number;
  region: string;
};

const seconds = (millis: number): number => Math.floor(millis / 1000);
const secretsFor = "Present only for the user name and the password.";

/** The fields of an account as its holder sees it. */
export const accountRecordFields: FieldsOf<ShownAccount> = {
  customer_id: text(
    "The owner: the name of the account, or the team that it was moved to.",
    ({ account: { customerId, name } }) => customerId ?? name,
  ),
  id: text("The id of the account.", ({ account }) => account.id),
  password: optional(text)(
    `The password for the account API. ${secretsFor}`,
    ({ secrets }) => secrets?.password,
  ),
  token: optional(text)(
    `The main token, which may do everything in the account. ${secretsFor}`,
    ({ secrets }) => secrets?.token,
  ),
  read_only_token: optional(text)(
    `The token for requests that change nothing. ${secretsFor}`,
    ({ secrets }) => secrets?.readOnlyToken,
  ),
  active: flag("false if the account is disabled.", ({ account }) => account.state !== "passive"),
  state: word(["active", "passive"])(
    "active: not restricted. passive: the account is disabled. It can read, and change nothing.",
    ({ account }) => account.state ?? "active",
  ),
  last_plan_upgrade_time: count(
    "When the plan was last upgraded, in Unix seconds. 0 if it never was.",
    ({ account }) => seconds(account.upgradedAt ?? 0),
  ),
  max_message_size: count("The largest body of a message, in bytes.", ({ messageBytes }) => messageBytes),
  max_requests_per_day: count(
    "Requests per day. Above this number, responses have a warning.",
    ({ limits }) => limits.requestsPerDay,
  ),
  max_requests_per_day_hard: count(
    "Requests per day. Above this number, publishing is refused.",
    ({ limits }) => limits.requestsPerDayHard,
  ),
  max_endpoints_per_topic: count(
    "The maximum number of endpoints of a URL group.",
    ({ limits }) => limits.endpoints,
  ),
  max_requests_per_second: count(
    "Requests per second. Publishing does not count.",
    ({ limits }) => limits.requestsPerSecond,
  ),
  max_dlq_size: count(
    "The maximum number of dead letters. Above this number, the oldest are deleted.",
    ({ limits }) => limits.deadLetters,
  ),
  max_retries: count("The maximum number of retries of a message.", ({ limits }) => limits.retries),
  max_topics: count("The maximum number of URL groups.", ({ limits }) => limits.groups),
  max_schedules: count("The maximum number of schedules.", ({ limits }) => limits.schedules),
  max_events_size: count(
    "The maximum number of rows of the log. Above this number, the oldest are deleted. One row can record " +
      "several states: a message delivered at the first attempt has one row.",
    ({ limits }) => limits.logEntries,
  ),
  max_dlq_retention_time_milis: count(
    "How long dead letters are kept, in milliseconds.",
    ({ deadLetterRetention }) => deadLetterRetention,
  ),
  max_delay: count("The longest delay of a message, in seconds.", ({ limits }) => seconds(limits.delay)),
  max_parallelism: count(
    "The highest parallelism of a queue, and the maximum number of deliveries in flight to one endpoint. " +
      "Further deliveries wait.",
    ({ limits }) => limits.parallelism,
  ),
  max_global_parallelism: count(
    "The maximum number of deliveries in flight in all. Further deliveries wait.",
    ({ limits }) => limits.globalParallelism,
  ),
  max_queues: count("The maximum number of queues.", ({ maxQueues }) => maxQueues),
  prod_pack_enabled: flag(
    "Whether the production pack is enabled. It has no effect on this server.",
    ({ account }) => account.hasProductionPack ?? false,
  ),
  dropped_dlq_messages: count(
    "Dead letters deleted because there were more than max_dlq_size, since the account was created.",
    ({ account }) => account.dropped?.deadLetters ?? 0,
  ),
  dropped_events: count(
    "Log rows deleted because there were more than max_events_size, since the account was created.",
    ({ account }) => account.dropped?.log ?? 0,
  ),
  storage_bytes: count(
    "Bytes stored now: bodies, logs, dead letters, runs, schedules and the audit log.",
    ({ storedBytes }) => storedBytes,
  ),
  max_storage_bytes: count(
    "The quota of stored bytes. Above this number, publishing is refused.",
    ({ limits }) => limits.storageBytes,
  ),
  standard_webhooks_enabled: flag(
    "Whether deliveries also have the signatures of Standard Webhooks.",
    ({ account }) => account.signsStandard ?? false,
  ),
  timeout: count("The longest timeout of a message, in seconds.", ({ limits }) => seconds(limits.timeout)),
  default_timeout: count("The timeout of a message that sets none, in seconds.", ({ account }) =>
    seconds(defaultTimeout(account)),
  ),
  type: word(["free", "paid"])("free for the plan free, and paid for all other plans.", ({ account }) =>
    readPlan(account) === "free" ? "free" : "paid",
  ),
  reserved_type: text(
    "The name of the paid plan. Empty for the plans free and selfHosted.",
    ({ reservedType }) => reservedType,
  ),
  reserved_price: number(
    "The price of the plan in dollars, as set by the operator.",
    ({ reservedPrice }) => reservedPrice,
  ),
  region: text("The region of the server: eu-central-1 or us-east-1.", ({ region }) => region),
  budget: count(
    "The budget in dollars per month. When it is spent, publishing is refused. 0 means no limit.",
    ({ account }) => account.budget ?? 0,
  ),
  created_by: text("The name of the account.", ({ account }) => account.name),
  creation_time: count("When the account was created, in Unix seconds.", ({ account }) =>
    seconds(account.createdAt),
  ),
};
