import type { Decision } from "../decision/command.ts";
import type { SecondCount } from "../model/counts.ts";
import { Refusal } from "../values/errors.ts";
import type { Account, AccountId, Millis } from "../model/message.ts";
import { formatRaiseHint, readLimit, plans } from "./plans.ts";
import { second } from "../values/time.ts";

// Requests of an account are counted in seconds of the clock. A node that is alone counts them by itself. Several nodes share a
// row for each account that has such a limit: a node takes a few requests of the second at a time, and lets them through without
// asking again. So all of them together never let through more than the limit, and one alone may still have all of it.

export const toSecond = (now: Millis): number => Math.floor(now / second);

/** What one more request finds in its second. `resetAt`: in unix seconds. */
export type Burst = { taken: boolean; limit: number; remaining: number; resetAt: number };

/** Whether an account may ask once more in this second, in which it has asked so often. */
export function countInBurst(limit: number, asked: number, now: Millis): Burst {
  const taken = asked < limit;
  return { taken, limit, remaining: Math.max(0, limit - asked - 1), resetAt: toSecond(now) + 1 };
}

/** How often an account may ask in a second. Null: as often as it likes. */
export function readRequestRateLimit(account: Account): number | null {
  const limit = readLimit(account, "requestsPerSecond");
  return limit < plans.selfHosted.requestsPerSecond ? limit : null;
}

/** `needed`: requests that wait for an answer. `wanted`: how many the node has had of this second already. */
export type ShareRequest = { account: AccountId; needed: number; wanted: number };

/** `granted`: for the node that asks. `left`: for whoever asks next. `endsIn`: how much there is left of the second, by the clock of the store. */
export type BurstShare = { granted: number; left: number; limit: number; second: number; endsIn: Millis };

/** No node takes more than this part of what is left beyond what it needs: the others may need it. */
const maxExtraShare = 1 / 8;

/**
 * Takes for a node some of what an account may ask for in this second: what the node needs, and beyond it as many again as it has had,
 * so that whoever asks little takes little, and whoever asks much need not come back for each. Null: the account has no limit, or is gone.
 */
export const takeBurst: Decision<ShareRequest, BurstShare | null> = {
  needs: ({ account }) => ({ accounts: [[account]], secondCounts: [[account]] }),
  decide: ({ account: id, needed, wanted }, draft, { now }) => {
    const account = draft.get("accounts", id);
    const limit = account && account.deletedAt === undefined ? readRequestRateLimit(account) : null;
    if (limit === null) return null;
    const known = findCurrentCount(draft.get("secondCounts", id), now) ?? { account: id, second: toSecond(now), requests: 0 };
    const left = Math.max(0, limit - known.requests);
    const granted = Math.min(left, Math.max(needed, Math.min(wanted, Math.ceil(left * maxExtraShare))));
    if (granted > 0) draft.put("secondCounts", { ...known, requests: known.requests + granted });
    return { granted, left: left - granted, limit, second: known.second, endsIn: (known.second + 1) * second - now };
  },
};

/** A transaction that waited for another one may have begun in the second before; none begins so many seconds before. */
const maxSecondsAhead = 10;

/** The row, as far as it is of this second. A clock that was put back by more than transactions wait for each other begins anew. */
function findCurrentCount(count: SecondCount | undefined, now: Millis): SecondCount | null {
  const secondsAhead = count ? count.second - toSecond(now) : -1;
  return count && secondsAhead >= 0 && secondsAhead <= maxSecondsAhead ? count : null;
}

/** What is said when it may not. */
export const tooManyRequests = (account: Account, { limit }: Burst): Refusal =>
  new Refusal(
    "too-many-requests",
    `requests: more than ${limit} in this second, which is the limit; ask again in the next one. To publish is not counted${formatRaiseHint(account, "requestsPerSecond")}`,
  );
