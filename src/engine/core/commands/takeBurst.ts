import type { Decision } from "../decision/command.ts";
import { second } from "../values/time.ts";
import { readRequestRateLimit, findCurrentCount, toSecond, maxExtraShare } from "../limits/requestRate.ts";
import type { ShareRequest, BurstShare } from "../limits/requestRate.ts";

/**
 * Claims requests of the current second for a node: as many as wait at the node. A node that has had more
 * requests in this second claims as many as it has had, up to an eighth of the rest. A node with few requests
 * therefore claims few, and a node with many requests need not query for each. Returns null if the account
 * has no limit or does not exist.
 */
export const takeBurst: Decision<ShareRequest, BurstShare | null> = {
  decide: ({ account: id, needed, recent }, draft, { now }) => {
    const account = draft.get("accounts", id);
    const limit = account && account.deletedAt === undefined ? readRequestRateLimit(account) : null;
    if (limit === null) return null;
    const known = findCurrentCount(draft.get("secondCounts", id), now) ?? {
      account: id,
      second: toSecond(now),
      requests: 0,
    };
    const left = Math.max(0, limit - known.requests);
    const granted = Math.min(left, Math.max(needed, Math.min(recent, Math.ceil(left * maxExtraShare))));
    if (granted > 0) draft.put("secondCounts", { ...known, requests: known.requests + granted });
    return {
      granted,
      left: left - granted,
      limit,
      second: known.second,
      endsIn: (known.second + 1) * second - now,
    };
  },
};
