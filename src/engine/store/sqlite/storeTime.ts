import type { Millis } from "../../core/values/basics.ts";
import type { UsedTime } from "../../core/cluster/sharedTime.ts";
import { maxClockJump, nextBatchTime } from "../../core/cluster/sharedTime.ts";
import { readIdTime } from "../../core/values/ids.ts";
import { hour } from "../../core/values/time.ts";
import type { DatabaseConnection } from "../sql/database.ts";

/**
 * The longest lead of the store over the clock. A longer lead would last for more than ten hours; it is more
 * likely that an earlier time of the clock was wrong.
 */
export const maxLead: Millis = hour;

/** The clock shows an earlier time than the store has used. `followsClock`: the store goes back with it. */
export type ClockReport = { clock: Millis; usedAt: Millis; followsClock: boolean };

const latestSql = `select ${["log", "messages", "dead_letters", "runs"]
  .map((table) => `max((select max(id) from ${table} where account = accounts.id)) as ${table}`)
  .join(", ")} from accounts`;

/**
 * Returns the latest time in the ids of the store, or null if it has none. Looks up one id per account and
 * table. Due times do not count, because they are in the future.
 */
export async function readLatestUsed({ query }: Pick<DatabaseConnection, "query">): Promise<Millis | null> {
  const [row = {}] = await query(latestSql, []);
  const times = Object.values(row).flatMap((id) => (typeof id === "string" ? readIdTime(id) : []));
  return times.filter(Number.isFinite).reduce<Millis | null>((a, b) => Math.max(a ?? 0, b), null);
}

type StoreTimeOptions = {
  now(): Millis;
  /** A monotonic clock. */
  elapsed(): Millis;
  latestUsed: Millis | null;
  onReport?(report: ClockReport): void;
};

/**
 * Returns the time of an SQLite store. It never goes back, also over a restart, as decision 0050 describes,
 * unless the clock is more than an hour behind the latest time used.
 */
export function createStoreTime({ now, elapsed, latestUsed, onReport }: StoreTimeOptions): () => Millis {
  // Ids of the latest millisecond exist already.
  const first = latestUsed === null ? null : latestUsed + 1;
  let own: UsedTime | null = first === null ? null : { usedAt: first, clockOffset: 0, clockOffsetAt: first };
  let readAt: Millis | null = null;
  let lead: Millis = 0;
  return () => {
    const clock = now();
    const at = elapsed();
    const sinceOwn = readAt === null ? 0 : Math.max(0, Math.floor(at - readAt));
    const usedBefore = own?.usedAt ?? clock;
    const followsClock = usedBefore - clock > maxLead;
    own = nextBatchTime({ clock, own: followsClock ? null : own, stored: null, sinceOwn });
    readAt = at;
    const leadBefore = lead;
    lead = own.usedAt - clock;
    if (followsClock || lead - leadBefore > maxClockJump)
      onReport?.({ clock, usedAt: usedBefore, followsClock });
    return own.usedAt;
  };
}
