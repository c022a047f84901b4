import type { AccountId } from "../../core/values/basics.ts";
import type { Waiter } from "../../core/model/run.ts";
import type { StorageReads, WaiterCount } from "../layout/storageReads.ts";
import { toKeys } from "../layout/storageReads.ts";

/** A request for the events that steps wait for. `after`: the event after which the page starts. */
export type WaitedEventsQuery = { account: AccountId; after: string; count: number };

/**
 * An event that steps wait for. `more`: more steps wait than were counted. `oldest` is the waiter of the
 * oldest run, or null if its wait has just ended.
 */
export type WaitedEvent = WaiterCount & { more: boolean; oldest: Waiter | null };

/** A page of events in the order of their ids. `cursor` is null at the end. */
export type WaitedEventsPage = { events: WaitedEvent[]; cursor: string | null };

/** The number of waiters that one page reads. */
export const maxCountedWaiters = 10_000;

/** Returns the events that steps of an account's runs wait for. */
export async function listWaitedEvents(
  storageReads: StorageReads,
  { account, after, count }: WaitedEventsQuery,
): Promise<WaitedEventsPage> {
  const counted = await storageReads.countWaiters({ account, after, limit: maxCountedWaiters });
  const isCut = counted.reduce((sum, one) => sum + one.count, 0) >= maxCountedWaiters;
  // If the read ended within an event, the next page counts this event whole, unless it is the only one.
  const whole = isCut && counted.length > 1 ? counted.slice(0, -1) : counted;
  const page = whole.slice(0, count);
  const oldest = new Map(
    (
      await storageReads.rows(
        "waiters",
        toKeys(
          account,
          page.map(({ oldestId }) => oldestId),
        ),
      )
    ).map((waiter) => [waiter.id, waiter]),
  );
  return {
    events: page.map((one) => ({
      ...one,
      more: isCut && counted.length === 1,
      oldest: oldest.get(one.oldestId) ?? null,
    })),
    cursor: isCut || whole.length > count ? (page.at(-1)?.event ?? null) : null,
  };
}
