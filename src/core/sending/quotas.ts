import type { Draft, Needs, TableName } from "../decision/command.ts";
import type { ErrorCode } from "../values/errors.ts";
import { Refusal } from "../values/errors.ts";
import { listGateBounds, parseGate, queueGate } from "../admission/gate.ts";
import { findLimiter } from "../admission/limiter.ts";
import { limits } from "../values/limits.ts";
import type { Account, AccountId } from "../model/message.ts";
import { formatRaiseHint, readLimits } from "../accounts/plans.ts";

// What people set up, of which an account may have so many. They are counted where one more is made, in the same transaction, so
// that the limit holds whoever asks, at whichever node, and however many do so at once.

/** No id has a character as high as this. */
const highestId = "\uffff";

const { after: firstQueue, before: lastQueue } = listGateBounds("queue");

/** The tables whose rows are counted, by the names of the limits. Rows count if their ids are within `range`. */
const quotas = {
  groups: { table: "urlGroups", range: ["", highestId] },
  schedules: { table: "schedules", range: ["", highestId] },
  sources: { table: "sources", range: ["", highestId] },
  tokens: { table: "tokens", range: ["", highestId] },
  queues: { table: "limiters", range: [firstQueue, lastQueue] },
} as const satisfies Record<string, { table: TableName; range: readonly [string, string] }>;

export type QuotaName = keyof typeof quotas;

/** Where they are kept. */
export const readQuotaRange = (name: QuotaName): (typeof quotas)[QuotaName] => quotas[name];

/** As what a row counts. Null: it does not. */
export function toQuotaName(table: TableName, id: string): QuotaName | null {
  if (table === "urlGroups") return "groups";
  if (table === "schedules" || table === "sources" || table === "tokens") return table;
  return table === "limiters" && parseGate(id).kind === "queue" ? "queues" : null;
}

/** Queues that any account may have, as whoever runs the server says. */
export type QueueLimit = { maxQueues?: number | undefined };

type QuotaRequest = { name: QuotaName } & QueueLimit;

function readQuota(account: Account, { name, maxQueues = limits.queues }: QuotaRequest): number {
  const own = readLimits(account)[name];
  return name === "queues" ? Math.min(own, maxQueues) : own;
}

/** What must be seen before one more is made: how many there are, as far as it matters. Asked for once the account is there. */
export function quotaNeeds(draft: Draft, account: AccountId, request: QuotaRequest): Pick<Needs, "quotaCounts"> {
  const owner = draft.get("accounts", account);
  return owner ? { quotaCounts: [{ account, name: request.name, limit: readQuota(owner, request) }] } : {};
}

/** The same for letters to queues, where one of these is not there yet. */
export function queueQuotaNeeds(
  draft: Draft,
  account: AccountId,
  inputs: readonly { queue: string | null }[],
  { maxQueues }: QueueLimit,
): Pick<Needs, "quotaCounts"> {
  const isNew = inputs.some(({ queue }) => queue !== null && !findLimiter(draft, { account, gate: queueGate(queue) }));
  return isNew ? quotaNeeds(draft, account, { name: "queues", maxQueues }) : {};
}

/** Why an account can have no more of them. Null: it can. */
export function findQuotaRefusal(draft: Draft, account: Account, request: QuotaRequest): { refused: ErrorCode; message: string } | null {
  const quota = readQuota(account, request);
  const count = draft.readQuotaCount(account.id, request.name);
  if (count < quota) return null;
  const isServerLimit = request.name === "queues" && quota < readLimits(account).queues;
  const raise = isServerLimit ? ", or start the server with a higher WAYPOST_MAX_QUEUES" : formatRaiseHint(account, request.name);
  const problem = `there are ${count}, and the limit is ${quota}; delete some that are not needed`;
  return { refused: "limit-exceeded", message: `${request.name}: ${problem}${raise}` };
}

/** Throws `Refusal` where an account can have no more. */
export function takeQuota(draft: Draft, account: Account, request: QuotaRequest): void {
  const refusal = findQuotaRefusal(draft, account, request);
  if (refusal) throw new Refusal(refusal.refused, refusal.message);
}

/** Throws `Refusal` where a queue is not there, and there can be no more. */
export function takeQueueQuota(draft: Draft, account: Account, { name, maxQueues }: { name: string } & QueueLimit): void {
  if (!findLimiter(draft, { account: account.id, gate: queueGate(name) })) takeQuota(draft, account, { name: "queues", maxQueues });
}
