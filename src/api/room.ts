import { Refusal } from "../core/errors.ts";
import { queueFlow } from "../core/flow.ts";
import { limits } from "../core/limits.ts";
import type { AccountId, Millis } from "../core/message.ts";
import type { SetUpName } from "../store/queries.ts";
import type { Parts } from "./route.ts";

type Counted = { count: number; at: Millis };

/** Counting many rows takes a moment, so it is done once in a while, and what is made here meanwhile is added. */
const countedFor: Millis = 60_000;
const counts = new WeakMap<Parts["store"], Map<string, Counted>>();

type PlaceOf = {
  table: SetUpName;
  account: AccountId;
  most: number;
  /** Only rows whose ids begin so are counted. */
  beginning?: string;
  /** What they are called, and what can be done, when there are too many. */
  full?: (count: number) => string;
};

/** Refuses one more row when an account has `most` already. Of those that are made at the same moment, or on other nodes, a few may go beyond. */
export async function takePlace({ store, now }: Parts, of: PlaceOf): Promise<void> {
  const { table, account, most, beginning = "" } = of;
  const known = counts.get(store) ?? new Map<string, Counted>();
  counts.set(store, known);
  const name = `${table} ${account}`;
  const last = known.get(name);
  const isFresh = last !== undefined && now() - last.at < countedFor && last.count < most;
  const counted = isFresh ? last : { count: await store.read.countSetUp(table, account, most, beginning), at: now() };
  const { full = (count) => `${table}: there are ${count}, and there can be no more; delete some that are not needed` } = of;
  if (counted.count >= most) throw new Refusal("limit-exceeded", full(counted.count));
  known.set(name, { ...counted, count: counted.count + 1 });
}

/** Queues that were there a moment ago, so that not every message has to ask. */
type Seen = { names: Set<string>; since: Millis };
const seen = new WeakMap<Parts["store"], Map<AccountId, Seen>>();

/**
 * Refuses a queue that would be one more than an account may have. What else makes queues is bounded by itself: schedules,
 * and dead letters that are sent again. One that is deleted and made again within a minute may go beyond.
 */
export async function takeQueue(parts: Parts, account: AccountId, queue: string): Promise<void> {
  const { store, mostQueues: most = limits.queues } = parts;
  const { names } = seenOf(parts, account);
  if (names.has(queue)) return;
  const full = (count: number): string =>
    `queues: there are ${count}, and the limit is ${most}; delete some that are not needed, or start the server with a higher WAYPOST_MAX_QUEUES`;
  if (!(await store.read.setUp("flows", account, queueFlow(queue))))
    await takePlace(parts, { table: "flows", account, most, beginning: queueFlow(""), full });
  names.add(queue);
}

function seenOf({ store, now }: Parts, account: AccountId): Seen {
  const accounts = seen.get(store) ?? new Map<AccountId, Seen>();
  seen.set(store, accounts);
  const known = accounts.get(account);
  if (known && now() - known.since < countedFor) return known;
  const fresh = { names: new Set<string>(), since: now() };
  accounts.set(account, fresh);
  return fresh;
}
