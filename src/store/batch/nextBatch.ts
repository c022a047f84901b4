import { inRounds } from "../../core/fairness/turns.ts";
import { transaction } from "../../core/fairness/weight.ts";

/** Most calls in one transaction. */
const maxCalls = 512;

/**
 * A call that waits for a batch. `weight`: see `core/fairness/weight.ts`. `passed`: the number of batches for which it was the first call of its account, and
 * nothing of its account was taken.
 */
type Waits = { input: unknown; weight: number; passed: number };

/**
 * Takes the calls of the next batch out of those that wait, in the order in which they came. When not all of them fit, the accounts take turns,
 * light calls first in each round. The first call of an account that was passed over comes before those: so a light call waits for at most one
 * heavy call of each other account, and a heavy call for at most one batch of light calls.
 */
export function nextBatch<Call extends Waits>(waiting: Call[]): Call[] {
  if (howManyFit(waiting) === waiting.length) return waiting.splice(0);
  const inTurn = inRounds(
    waiting.map((call) => ({ account: accountOf(call), call })),
    byTurn,
  ).map(({ call }) => call);
  const taken = new Set(inTurn.slice(0, howManyFit(inTurn)));
  const left = waiting.filter((call) => !taken.has(call));
  const batch = waiting.filter((call) => taken.has(call));
  // Accounts of which a call was taken, or one was counted.
  const passed = new Set(batch.map(accountOf));
  for (const call of left) {
    const account = accountOf(call);
    if (!passed.has(account)) call.passed++;
    passed.add(account);
  }
  waiting.length = 0;
  for (const call of left) waiting.push(call);
  return batch;
}

function howManyFit(calls: readonly Waits[]): number {
  let weight = 0;
  let count = 0;
  for (const call of calls) {
    weight += call.weight;
    if (count === maxCalls || (count > 0 && weight > transaction.rows)) break;
    count++;
  }
  return count;
}

const byTurn = (a: { call: Waits }, b: { call: Waits }): number => b.call.passed - a.call.passed || a.call.weight - b.call.weight;

/** The account that a call belongs to; "" for calls of the server itself. */
function accountOf({ input }: Waits): string {
  if (typeof input !== "object" || input === null || !("account" in input)) return "";
  return typeof input.account === "string" ? input.account : "";
}
