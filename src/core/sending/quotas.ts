import type { Draft, Needs, TableName } from "../decision/command.ts";
import type { ErrorCode } from "../values/errors.ts";
import { Refusal } from "../values/errors.ts";
import { listGateBounds, parseGate, queueGate } from "../admission/gate.ts";
import { findLimiter } from "../admission/limiter.ts";
import { limits } from "../values/limits.ts";
import type { Account, AccountId } from "../model/message.ts";
import { howToRaise, limitsOf } from "../accounts/plans.ts";

// What people set up, of which an account may have so many. They are counted where one more is made, in the same transaction, so
// that the limit holds whoever asks, at whichever node, and however many do so at once.

/** No id has a character as high as this. */
const highest = "\uffff";

const { after: firstQueue, before: lastQueue } = listGateBounds("queue");

/** What is counted, by the names of the limits. `within`: the ids of those rows of the table that are meant are between these two. */
const places = {
  groups: { table: "groups", within: ["", highest] },
  schedules: { table: "schedules", within: ["", highest] },
  sources: { table: "sources", within: ["", highest] },
  tokens: { table: "tokens", within: ["", highest] },
  queues: { table: "flows", within: [firstQueue, lastQueue] },
} as const satisfies Record<string, { table: TableName; within: readonly [string, string] }>;

export type PlaceName = keyof typeof places;

/** Where they are kept. */
export const placesOf = (name: PlaceName): (typeof places)[PlaceName] => places[name];

/** As what a row counts. Null: it does not. */
export function placeOf(table: TableName, id: string): PlaceName | null {
  if (table === "groups" || table === "schedules" || table === "sources" || table === "tokens") return table;
  return table === "flows" && parseGate(id).kind === "queue" ? "queues" : null;
}

/** Queues that any account may have, as whoever runs the server says. */
export type MostQueues = { mostQueues?: number | undefined };

type Asked = { name: PlaceName } & MostQueues;

function mostOf(account: Account, { name, mostQueues = limits.queues }: Asked): number {
  const own = limitsOf(account)[name];
  return name === "queues" ? Math.min(own, mostQueues) : own;
}

/** What must be seen before one more is made: how many there are, as far as it matters. Asked for once the account is there. */
export function needsOfPlace(draft: Draft, account: AccountId, asked: Asked): Pick<Needs, "counts"> {
  const owner = draft.get("accounts", account);
  return owner ? { counts: [{ account, name: asked.name, most: mostOf(owner, asked) }] } : {};
}

/** The same for letters to queues, where one of these is not there yet. */
export function needsOfQueues(
  draft: Draft,
  account: AccountId,
  letters: readonly { queue: string | null }[],
  { mostQueues }: MostQueues,
): Pick<Needs, "counts"> {
  const isNew = letters.some(({ queue }) => queue !== null && !findLimiter(draft, { account, gate: queueGate(queue) }));
  return isNew ? needsOfPlace(draft, account, { name: "queues", mostQueues }) : {};
}

/** Why an account can have no more of them. Null: it can. */
export function placeRefusal(draft: Draft, account: Account, asked: Asked): { refused: ErrorCode; message: string } | null {
  const most = mostOf(account, asked);
  const count = draft.countOf(account.id, asked.name);
  if (count < most) return null;
  const isHouse = asked.name === "queues" && most < limitsOf(account).queues;
  const raise = isHouse ? ", or start the server with a higher WAYPOST_MAX_QUEUES" : howToRaise(account, asked.name);
  const problem = `there are ${count}, and the limit is ${most}; delete some that are not needed`;
  return { refused: "limit-exceeded", message: `${asked.name}: ${problem}${raise}` };
}

/** Throws `Refusal` where an account can have no more. */
export function takePlace(draft: Draft, account: Account, asked: Asked): void {
  const refusal = placeRefusal(draft, account, asked);
  if (refusal) throw new Refusal(refusal.refused, refusal.message);
}

/** Throws `Refusal` where a queue is not there, and there can be no more. */
export function takeQueue(draft: Draft, account: Account, { name, mostQueues }: { name: string } & MostQueues): void {
  if (!findLimiter(draft, { account: account.id, gate: queueGate(name) })) takePlace(draft, account, { name: "queues", mostQueues });
}
