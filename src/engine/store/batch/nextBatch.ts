import { orderInRounds } from "../../core/node/turns.ts";
import { transaction } from "../../core/node/weight.ts";

/** The maximum number of calls in one transaction. */
const maxCalls = 512;

/**
 * A call that waits for a batch. `weight`: see `engine/core/node/weight.ts`. `passedOver`: the number of
 * batches that took no call of its account while it was the account's first call.
 */
type QueuedCall = { input: unknown; weight: number; passedOver: number };

/**
 * Removes the calls of the next batch from the waiting calls, and returns them in order of arrival. If not
 * all of them fit, accounts take turns, and light calls go first in each round. The first call of an account
 * goes before all of them if earlier batches passed it over. A light call therefore waits for at most one
 * heavy call of each other account, and a heavy call waits for at most one batch of light calls.
 */
export function takeNextBatch<Call extends QueuedCall>(waiting: Call[]): Call[] {
  if (countFitting(waiting) === waiting.length) return waiting.splice(0);
  const byRound = orderInRounds(
    waiting.map((call) => ({ account: readCallAccount(call), call })),
    compareTurns,
  ).map(({ call }) => call);
  const taken = new Set(byRound.slice(0, countFitting(byRound)));
  const remaining = waiting.filter((call) => !taken.has(call));
  const batch = waiting.filter((call) => taken.has(call));
  // Accounts of which a call was taken or counted.
  const seenAccounts = new Set(batch.map(readCallAccount));
  for (const call of remaining) {
    const account = readCallAccount(call);
    if (!seenAccounts.has(account)) call.passedOver++;
    seenAccounts.add(account);
  }
  waiting.length = 0;
  for (const call of remaining) waiting.push(call);
  return batch;
}

function countFitting(calls: readonly QueuedCall[]): number {
  let weight = 0;
  let count = 0;
  for (const call of calls) {
    weight += call.weight;
    if (count === maxCalls || (count > 0 && weight > transaction.rows)) break;
    count++;
  }
  return count;
}

const compareTurns = (a: { call: QueuedCall }, b: { call: QueuedCall }): number =>
  b.call.passedOver - a.call.passedOver || a.call.weight - b.call.weight;

/** Returns the account of a call, or "" for calls of the server itself. */
function readCallAccount({ input }: QueuedCall): string {
  if (typeof input !== "object" || input === null || !("account" in input)) return "";
  return typeof input.account === "string" ? input.account : "";
}
