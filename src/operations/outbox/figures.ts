import type { Millis } from "../../engine/core/values/basics.ts";
import type { Store } from "../../engine/store/store.ts";
import type { OutboxState } from "./outbox.ts";
import { leaseTime, lookInterval, maxRelays } from "./outbox.ts";

const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);

/**
 * Returns the figures of these outboxes. `failing` are those that take no rows because of an error. `waiting`
 * and `rejected` count rows. The lag is how long the oldest row has waited.
 */
export const sumOutboxes = (states: readonly OutboxState[], now: Millis) => ({
  outboxes: states.length,
  failing: states.filter(({ error }) => error !== null).length,
  waiting: sum(states.map(({ waiting }) => waiting)),
  rejected: sum(states.map(({ rejected }) => rejected)),
  lag: Math.max(0, ...states.map((state) => readLag(state, now))),
});

/**
 * Returns for how long the oldest row had waited when its relay last looked. Since then, a relay that works
 * may have taken it. While no relay works, it still waits.
 */
function readLag({ oldestAt, error, lease }: OutboxState, now: Millis): Millis {
  if (oldestAt === null) return 0;
  const isTaking = error === null && lease !== null && lease.until > now;
  return (isTaking ? lease.until - leaseTime : now) - oldestAt;
}

/**
 * Returns a function that reads the figures of the outboxes from the store of the server. While there are
 * none, it reads only after an account has changed: an account without an outbox costs nothing.
 */
export function createOutboxReader(
  { read, onAccounts }: Pick<Store, "onAccounts"> & { read: Pick<Store["read"], "allOutboxes"> },
  { isShared }: { isShared: boolean },
): (now: Millis) => Promise<ReturnType<typeof sumOutboxes>> {
  let states: readonly OutboxState[] = [];
  let nextLook: Millis = -Infinity;
  onAccounts(() => (nextLook = -Infinity));
  return async (now) => {
    if (states.length > 0 || now >= nextLook) {
      // A change during the read brings another one.
      nextLook = isShared ? now + lookInterval : Infinity;
      try {
        states = await read.allOutboxes(Number.MAX_SAFE_INTEGER, maxRelays);
      } catch (error) {
        nextLook = -Infinity;
        throw error;
      }
    }
    return sumOutboxes(states, now);
  };
}
