import type { Draft, TableName } from "../decision/command.ts";
import type { ErrorCode } from "../values/errors.ts";
import { Refusal } from "../values/errors.ts";
import { listGateBounds, parseGate, queueGate } from "../admission/gate.ts";
import { findLimiter } from "../admission/limiter.ts";
import { limits } from "../values/limits.ts";
import type { Account } from "../model/message.ts";
import { formatRaiseHint, readLimits } from "../accounts/plans.ts";

// Quotas limit how many queues, schedules, sources, tokens, jobs and URL groups an account may have. Existing
// rows are counted in the transaction that creates another one. The limit therefore holds on all nodes, even
// if several rows are created at the same time.

/** A text that sorts after every id. */
const highestId = "\uffff";

const { after: firstQueue, before: lastQueue } = listGateBounds("queue");

/** The tables whose rows are counted, by the name of the limit. Only rows with an id within `range` count. */
const quotas = {
  groups: { table: "urlGroups", range: ["", highestId] },
  schedules: { table: "schedules", range: ["", highestId] },
  sources: { table: "sources", range: ["", highestId] },
  tokens: { table: "tokens", range: ["", highestId] },
  jobs: { table: "jobs", range: ["", highestId] },
  queues: { table: "limiters", range: [firstQueue, lastQueue] },
} as const satisfies Record<string, { table: TableName; range: readonly [string, string] }>;

/** The tables whose rows are counted. */
export const countedTables = Object.values(quotas).map(({ table }) => table);

/** The name of a limit on the number of rows. */
export type QuotaName = keyof typeof quotas;

/** Returns the table and the range of ids that a quota counts. */
export const readQuotaRange = (name: QuotaName): (typeof quotas)[QuotaName] => quotas[name];

/** Returns the quota that a row counts towards; null if there is none. */
export function toQuotaName(table: TableName, id: string): QuotaName | null {
  if (table === "urlGroups") return "groups";
  if (table === "schedules" || table === "sources" || table === "tokens" || table === "jobs") return table;
  return table === "limiters" && parseGate(id).kind === "queue" ? "queues" : null;
}

/** The limit on the number of queues of each account, as set by the operator. */
export type QueueLimit = { maxQueues?: number | undefined };

type QuotaRequest = { name: Exclude<QuotaName, "jobs"> } & QueueLimit;

function readQuota(account: Account, { name, maxQueues = limits.queues }: QuotaRequest): number {
  const own = readLimits(account)[name];
  return name === "queues" ? Math.min(own, maxQueues) : own;
}

/** Returns why an account may not create another row; null if it may. */
export function findQuotaRefusal(
  draft: Draft,
  account: Account,
  request: QuotaRequest,
): { refused: ErrorCode; message: string } | null {
  const quota = readQuota(account, request);
  const count = draft.readQuotaCount({ account: account.id, name: request.name, limit: quota });
  if (count < quota) return null;
  const isServerLimit = request.name === "queues" && quota < readLimits(account).queues;
  const raise = isServerLimit
    ? ", or start the server with a higher WAYPOST_MAX_QUEUES"
    : formatRaiseHint(account, request.name).replace(/^; /, ", or ");
  const problem = `there are ${count}, and the limit is ${quota}; delete some that are not needed`;
  return { refused: "limit-exceeded", message: `${request.name}: ${problem}${raise}` };
}

/** Throws `Refusal` if an account may not create another row. */
export function takeQuota(draft: Draft, account: Account, request: QuotaRequest): void {
  const refusal = findQuotaRefusal(draft, account, request);
  if (refusal) throw new Refusal(refusal.refused, refusal.message);
}

/** Throws `Refusal` if a queue does not exist and the account may not create another one. */
export function takeQueueQuota(
  draft: Draft,
  account: Account,
  { name, maxQueues }: { name: string } & QueueLimit,
): void {
  if (!findLimiter(draft, { account: account.id, gate: queueGate(name) }))
    takeQuota(draft, account, { name: "queues", maxQueues });
}
