import { Refusal } from "../core/errors.ts";
import { queueFlow } from "../core/flow.ts";
import { limits } from "../core/limits.ts";
import type { Account, AccountId, Millis } from "../core/message.ts";
import { howToRaise, limitsOf } from "../core/plans.ts";
import type { LimitName } from "../core/terms.ts";
import type { SetUpName } from "../store/queries.ts";
import { underlying } from "../store/naming.ts";
import type { Parts } from "./route.ts";

/** `takenAt`: when a place was taken last, by what may not be stored yet. */
type Counted = { count: number; at: Millis; takenAt: Millis };
/** `turn`: who asks next waits for it, so that nobody counts what another one is about to take. */
type Places = { counted: Counted | null; turn: Promise<void> };

/** Counting many rows takes a moment, so it is done once in a while, and what is made here meanwhile is added. */
const countedFor: Millis = 60_000;
/** What a place was taken for is stored after so long, or was refused. */
const storedAfter: Millis = 1_000;
const places = new WeakMap<Parts["store"], Map<string, Places>>();

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

/** Refuses one more row when an account has as many as it may have. Of those that are made at the same moment on other nodes, a few may go beyond. */
export function takePlace(parts: Parts, of: PlaceOf): Promise<void> {
  const those = placesOf(parts, of);
  const taken = those.turn.then(() => take(parts, of, those));
  those.turn = taken.catch(() => undefined);
  return taken;
}

/** One was deleted, and another one may be made in its place at once. */
export function givePlace(parts: Parts, of: Pick<PlaceOf, "table"> & { account: AccountId }): void {
  const known = places.get(underlying(parts.store))?.get(`${of.table} ${of.account}`);
  if (!known?.counted) return;
  const { count, takenAt } = known.counted;
  // What a place was taken for a moment ago may not be stored, and would not be counted.
  const isAllStored = parts.now() - takenAt >= storedAfter;
  known.counted = isAllStored ? null : { ...known.counted, count: count - 1 };
}

function placesOf({ store }: Parts, { table, account }: PlaceOf): Places {
  const known = places.get(underlying(store)) ?? new Map<string, Places>();
  places.set(underlying(store), known);
  const name = `${table} ${account.id}`;
  const those = known.get(name) ?? { counted: null, turn: Promise.resolve() };
  known.set(name, those);
  return those;
}

async function take({ store, now }: Parts, of: PlaceOf, those: Places): Promise<void> {
  const { table, account, limit, beginning = "", house } = of;
  const own = limitsOf(account)[limit];
  const most = Math.min(own, house?.most ?? own);
  const { counted: last } = those;
  const isFresh = last !== null && now() - last.at < countedFor && (last.count < most || now() - last.takenAt < storedAfter);
  const counted = isFresh ? last : { count: await store.read.countSetUp(table, account.id, most, beginning), at: now(), takenAt: 0 };
  if (counted.count >= most) {
    const raise = house && house.most <= own ? house.raise : howToRaise(account, limit);
    const problem = `there are ${counted.count}, and the limit is ${most}; delete some that are not needed`;
    throw new Refusal("limit-exceeded", `${limit}: ${problem}${raise}`);
  }
  those.counted = { ...counted, count: counted.count + 1, takenAt: now() };
}

/** Queues that were there a moment ago, so that not every message has to ask. */
type Seen = { names: Set<string>; since: Millis };
const seen = new WeakMap<Parts["store"], Map<AccountId, Seen>>();

/**
 * Refuses a queue that would be one more than an account may have. What else makes queues is bounded by itself: schedules,
 * and dead letters that are sent again.
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

/** A queue was deleted. */
export function giveQueue(parts: Parts, account: AccountId, queue: string): void {
  seenOf(parts, account).names.delete(queue);
  givePlace(parts, { table: "flows", account });
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
