import { Refusal } from "../core/errors.ts";
import type { AccountId, Millis } from "../core/message.ts";
import type { SetUpName } from "../store/queries.ts";
import type { Parts } from "./route.ts";

type Counted = { count: number; at: Millis };

/** Counting many rows takes a moment, so it is done once in a while, and what is made here meanwhile is added. */
const countedFor: Millis = 60_000;
const counts = new WeakMap<Parts["store"], Map<string, Counted>>();

/** Refuses one more row when an account has `most` already. Of those that are made at the same moment, or on other nodes, a few may go beyond. */
export async function takePlace({ store, now }: Parts, of: { table: SetUpName; account: AccountId; most: number }): Promise<void> {
  const { table, account, most } = of;
  const known = counts.get(store) ?? new Map<string, Counted>();
  counts.set(store, known);
  const name = `${table} ${account}`;
  const last = known.get(name);
  const isFresh = last !== undefined && now() - last.at < countedFor && last.count < most;
  const counted = isFresh ? last : { count: await store.read.countSetUp(table, account, most), at: now() };
  if (counted.count >= most)
    throw new Refusal("limit-exceeded", `${table}: there are ${counted.count}, and there can be no more; delete some that are not needed`);
  known.set(name, { ...counted, count: counted.count + 1 });
}
