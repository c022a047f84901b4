import { Refusal } from "./errors.ts";
import type { Account, Millis } from "./message.ts";
import { howToRaise } from "./plans.ts";

/** Requests of an account are counted in seconds of the clock. */
const second: Millis = 1000;

export const secondOf = (now: Millis): number => Math.floor(now / second);

/** What one more request finds in its second. `resetAt`: in unix seconds. */
export type Burst = { taken: boolean; limit: number; remaining: number; resetAt: number };

/** Whether an account may ask once more in this second, in which it has asked so often. */
export function burstOf(limit: number, asked: number, now: Millis): Burst {
  const taken = asked < limit;
  return { taken, limit, remaining: Math.max(0, limit - asked - 1), resetAt: secondOf(now) + 1 };
}

/** What is said when it may not. */
export const tooManyRequests = (account: Account, { limit }: Burst): Refusal =>
  new Refusal(
    "too-many-requests",
    `requests: more than ${limit} in this second, which is the limit; ask again in the next one. To publish is not counted${howToRaise(account, "requestsPerSecond")}`,
  );
