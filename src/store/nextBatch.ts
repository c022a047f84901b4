import { inRounds } from "../core/turns.ts";
import { transaction } from "../core/weight.ts";

/** Most calls in one transaction. */
const maxCalls = 512;

/** A call that waits for a batch. `weight`: see `core/weight.ts`. */
type Waits = { input: unknown; weight: number };

/**
 * Takes the calls of the next batch out of those that wait, in the order in which they came. When not all of them fit, the accounts take turns,
 * light calls first in each round: so a call waits for one batch at most because of what another account asks. The last call may exceed
 * the weight of a transaction; otherwise a heavy call would never be taken.
 */
export function nextBatch<Call extends Waits>(waiting: Call[]): Call[] {
  if (howManyFit(waiting) === waiting.length) return waiting.splice(0);
  const inTurn = inRounds(
    waiting.map((call) => ({ account: accountOf(call), call })),
    byWeight,
  ).map(({ call }) => call);
  const taken = new Set(inTurn.slice(0, howManyFit(inTurn)));
  const left = waiting.filter((call) => !taken.has(call));
  const batch = waiting.filter((call) => taken.has(call));
  waiting.splice(0, waiting.length, ...left);
  return batch;
}

function howManyFit(calls: readonly Waits[]): number {
  let weight = 0;
  let count = 0;
  for (const call of calls) {
    if (count === maxCalls || (count > 0 && weight >= transaction.rows)) break;
    weight += call.weight;
    count++;
  }
  return count;
}

const byWeight = (a: { call: Waits }, b: { call: Waits }): number => a.call.weight - b.call.weight;

/** The account that a call belongs to; "" for calls of the server itself. */
function accountOf({ input }: Waits): string {
  if (typeof input !== "object" || input === null || !("account" in input)) return "";
  return typeof input.account === "string" ? input.account : "";
}
