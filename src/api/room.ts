import { Refusal } from "../core/errors.ts";
import { queueFlow } from "../core/flow.ts";
import { limits } from "../core/limits.ts";
import type { Account, AccountId, Millis } from "../core/message.ts";
import { howToRaise, limitsOf } from "../core/plans.ts";
import type { LimitName } from "../core/terms.ts";
import type { SetUpName } from "../store/queries.ts";
import { underlying } from "../store/naming.ts";
import type { Parts } from "./route.ts";

type Counted = { count: number; at: Millis };

/** Counting many rows takes a moment, so it is done once in a while, and what is made here meanwhile is added. */
const countedFor: Millis = 60_000;
const counts = new WeakMap<Parts["store"], Map<string, Counted>>();

/** `limit`: the name of theirs, which is that of what they are called as well. */
type PlaceOf = {
  table: SetUpName;
  account: Account;
  limit: LimitName;
  /** Only rows whose ids begin so are counted. */
  beginning?: string;
  /** There can be no more of them, whatever the limit of the account is; and how there could. */
  house?: { most: number; raise: string };
};

/** Refuses one more row when an account has as many as it may have. Of those that are made at the same moment, or on other nodes, a few may go beyond. */
export async function takePlace({ store, now }: Parts, of: PlaceOf): Promise<void> {
  const { table, account, limit, beginning = "", house } = of;
  const own = limitsOf(account)[limit];
  const most = Math.min(own, house?.most ?? own);
  const known = counts.get(underlying(store)) ?? new Map<string, Counted>();
  counts.set(underlying(store), known);
  const name = `${table} ${account.id}`;
  const last = known.get(name);
  const isFresh = last !== undefined && now() - last.at < countedFor && last.count < most;
  const counted = isFresh ? last : { count: await store.read.countSetUp(table, account.id, most, beginning), at: now() };
  if (counted.count >= most) {
    const raise = house && house.most <= own ? house.raise : howToRaise(account, limit);
    const problem = `there are ${counted.count}, and the limit is ${most}; delete some that are not needed`;
    throw new Refusal("limit-exceeded", `${limit}: ${problem}${raise}`);
  }
  known.set(name, { ...counted, count: counted.count + 1 });
}

/** Queues that were there a moment ago, so that not every message has to ask. */
type Seen = { names: Set<string>; since: Millis };
const seen = new WeakMap<Parts["store"], Map<AccountId, Seen>>();

/**
 * Refuses a queue that would be one more than an account may have. What else makes queues is bounded by itself: schedules,
 * and dead letters that are sent again. One that is deleted and made again within a minute may go beyond.
 */
export async function takeQueue(parts: Parts, account: Account, queue: string): Promise<void> {
  const { store, mostQueues: most = limits.queues } = parts;
  const { names } = seenOf(parts, account.id);
  if (names.has(queue)) return;
  const house = { most, raise: ", or start the server with a higher WAYPOST_MAX_QUEUES" };
  if (!(await store.read.setUp("flows", account.id, queueFlow(queue))))
    await takePlace(parts, { table: "flows", account, limit: "queues", beginning: queueFlow(""), house });
  names.add(queue);
}

function seenOf({ store, now }: Parts, account: AccountId): Seen {
  const accounts = seen.get(underlying(store)) ?? new Map<AccountId, Seen>();
  seen.set(underlying(store), accounts);
  const known = accounts.get(account);
  if (known && now() - known.since < countedFor) return known;
  const fresh = { names: new Set<string>(), since: now() };
  accounts.set(account, fresh);
  return fresh;
}
