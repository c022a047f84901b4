import type { RowCountName, Draft, TableName } from "../decision/command.ts";
import { listGateBounds, parseGate, queueGate } from "../admission/gate.ts";
import { findLimiter } from "../admission/limiter.ts";
import { limits } from "../values/limits.ts";
import type { Account } from "../model/account.ts";
import { findRaise, readLimits } from "../accounts/plans.ts";
import { throwIfRefused } from "../values/errors.ts";
import type { Refused } from "../values/errors.ts";

// Quotas limit how many queues, schedules, sources, tokens, jobs and URL groups an account may have. Existing
// rows are counted in the transaction that creates another one. The limit therefore holds on all nodes, even
// if several rows are created at the same time.

/** A string that sorts after every id. */
const highestId = "\uffff";

const { after: firstQueue, before: lastQueue } = listGateBounds("queue");

/** The limits of an account on the number of its rows. */
type QuotaName = "groups" | "schedules" | "sources" | "tokens" | "queues";

/** The rows that are counted together: those of a table with an id within `range`. */
type CountedRows = { table: TableName; range: readonly [after: string, before: string] };

/** Returns the rows that a count counts. */
export const readCountedRows = (name: RowCountName): CountedRows =>
  name === "queues"
    ? { table: "limiters", range: [firstQueue, lastQueue] }
    : { table: name === "groups" ? "urlGroups" : name, range: ["", highestId] };

/** Returns the count that a row belongs to; null if there is none. */
export function toCountName(table: TableName, id: string): RowCountName | null {
  if (table === "urlGroups") return "groups";
  if (table !== "limiters") return table;
  return parseGate(id).kind === "queue" ? "queues" : null;
}

/** The limit on the number of queues of each account, as set by the operator. */
export type QueueLimit = { maxQueues?: number | undefined };

type QuotaRequest = { name: QuotaName } & QueueLimit;

function readQuota(account: Account, { name, maxQueues = limits.queues }: QuotaRequest): number {
  const own = readLimits(account)[name];
  return name === "queues" ? Math.min(own, maxQueues) : own;
}

/** Returns why an account may not create another row; null if it may. */
export function findQuotaRefusal(draft: Draft, account: Account, request: QuotaRequest): Refused | null {
  const quota = readQuota(account, request);
  const count = draft.readQuotaCount({ account: account.id, name: request.name, limit: quota });
  if (count < quota) return null;
  const isServerLimit = request.name === "queues" && quota < readLimits(account).queues;
  const raise = findRaise(account, request.name);
  const problem = `there are ${count}, and the limit is ${quota}; delete some that are not needed`;
  return {
    refused: "limit-exceeded",
    message: `${request.name}: ${problem}`,
    remedy: isServerLimit ? { remedy: "raise-server-queues" } : raise && { ...raise, isLast: true },
  };
}

/** Throws `Refusal` if an account may not create another row. */
export function takeQuota(draft: Draft, account: Account, request: QuotaRequest): void {
  throwIfRefused(findQuotaRefusal(draft, account, request));
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
