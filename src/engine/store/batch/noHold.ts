import type { Hold } from "../store.ts";

/** Returns a hold that is kept in memory. */
export function createHoldInMemory(): Hold {
  let held = false;
  return { isHeld: async () => held, set: async (isHeld) => void (held = isHeld) };
}
