import type { Millis } from "../../core/values/basics.ts";
import type { ClockLead } from "../../core/cluster/clockShift.ts";
import { minute } from "../../core/values/time.ts";
import type { createSequencer } from "../batch/sequencer.ts";
import type { MomentSource } from "../store.ts";
import { StorageRefused } from "../layout/storageErrors.ts";
import { acceptClock, formatClockRefusal, readAccepted, writeLatestAt } from "./acceptedClock.ts";
import type { SqliteDatabase } from "./database.ts";
import type { ClockReport } from "./storeTime.ts";
import { createStoreTime, maxLead, readLatestUsed } from "./storeTime.ts";

/** The clock of a store, and what to do if it is behind. */
export type ClockOptions = {
  momentSource: MomentSource;
  /** A monotonic clock. */
  elapsed(): Millis;
  /**
   * What to do if the store has used times that are more than an hour ahead of the clock. The store is not
   * opened, or it accepts the clock and moves stored times back, or it only follows the clock (`none`), as
   * tools do.
   */
  clockCheck?: "refuse" | "accept" | "none";
  /** Called when the clock was accepted. */
  onAccepted?(lead: ClockLead): void;
  /** Called when the clock is behind the time of the store. */
  onClock?(report: ClockReport): void;
};

/** The time of a store. */
export type OpenTime = {
  now(): Millis;
  /**
   * After `--accept-clock`, stores the time used, at most once a minute: the ids do not show it. Must be
   * called after each batch that has changed something. Never rejects.
   */
  keepLatest?(change: ReturnType<typeof createSequencer>): Promise<void>;
};

/** How far the stored time may be behind the time used. */
const keepInterval: Millis = minute;

/**
 * Returns the time of the store. Damage is reported where it is found. It must not keep a server from
 * starting. `sync` brings changes to the disk.
 */
export async function openTime(
  { momentSource, elapsed, onClock, clockCheck = "none", onAccepted }: ClockOptions,
  { connection, transaction }: Pick<SqliteDatabase, "connection" | "transaction">,
  sync: () => Promise<void>,
): Promise<OpenTime> {
  const create = (latestUsed: Millis | null): (() => Millis) => {
    const now = (): Millis => momentSource.now();
    return createStoreTime({ now, elapsed, latestUsed, ...(onClock && { onReport: onClock }) });
  };
  const latestId = await readLatestUsed(connection).catch(() => null);
  if (latestId === null) return { now: create(null) };
  const accepted = await readAccepted(connection, latestId).catch(() => null);
  const lead = { clock: momentSource.now(), usedAt: accepted ?? latestId };
  const keepsLatest = (latestUsed: Millis | null): OpenTime => {
    // Ids continue just above the latest one, and times follow the clock.
    if (lead.clock <= latestId) momentSource.newId("msg", latestId + 1);
    const now = create(lead.clock > latestId ? latestId : latestUsed);
    return { now, keepLatest: createKeepLatest(now, transaction, latestUsed ?? lead.clock) };
  };
  if (lead.usedAt - lead.clock > maxLead && clockCheck !== "none") {
    if (clockCheck === "refuse") throw new StorageRefused(formatClockRefusal(lead));
    await transaction((writing) => acceptClock(writing, lead, latestId));
    await sync();
    onAccepted?.(lead);
    return keepsLatest(null);
  }
  if (accepted === null) return { now: create(latestId) };
  return keepsLatest(accepted);
}

function createKeepLatest(
  now: () => Millis,
  transaction: SqliteDatabase["transaction"],
  keptBefore: Millis,
): NonNullable<OpenTime["keepLatest"]> {
  let kept = keptBefore;
  return async (change) => {
    const at = now();
    if (at - kept < keepInterval) return;
    try {
      await change(() => transaction((connection) => writeLatestAt(connection, at)));
      kept = at;
    } catch {
      // The batch before it is committed. The next one tries again.
    }
  };
}
