import type { Hold } from "../store.ts";

/** Returns a hold that is kept in memory. */
export function createHoldInMemory(): Hold {
  let held = false;
  return { isOnHold: async () => held, set: async (isOnHold) => void (held = isOnHold) };
}
