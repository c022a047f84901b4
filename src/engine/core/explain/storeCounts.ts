import { gateKinds, readWaitlist } from "../admission/gate.ts";
import type { MessageState } from "../model/messageState.ts";
import { countRetries } from "../sending/retry.ts";

/**
 * The rows of all accounts that a store counts. Each batch adds its changes to the counts in its own
 * transaction, so the counts are exact after a crash. Reading them costs the same for any number of rows.
 * Messages that are being sent are not among them, because an index has them and they are few.
 */
export const storeCountNames = [
  "pending",
  "retrying",
  ...gateKinds.map((kind) => `held ${kind}` as const),
  "deadLetters",
  "activeRuns",
  "waiters",
] as const;

/** The name of a count of all accounts. */
export type StoreCountName = (typeof storeCountNames)[number];

/**
 * Returns the count to which a message belongs, or null if it is being sent. A message that waits because its
 * queue or key is paused counts as held.
 */
export function readStoreCount(state: MessageState): StoreCountName | null {
  if (state.leasedBy !== null) return null;
  const gate = state.state === "held" ? readWaitlist(state) : null;
  if (gate) return `held ${gate.kind}`;
  return countRetries(state) > 0 ? "retrying" : "pending";
}

/**
 * The figures of all accounts. `leased` is the number of messages that are being sent, and `acknowledging` of
 * those whose receivers hold the attempt. `oldestDueAt` is the
 * earliest due time of a message that no node is sending, or null.
 */
export type StoreFigures = {
  counts: Readonly<Record<StoreCountName, number>>;
  leased: number;
  acknowledging: number;
  oldestDueAt: number | null;
};

/** Returns counts in which all that are missing are 0. */
export const fillStoreCounts = (
  counts: Readonly<Partial<Record<string, number>>>,
): Record<StoreCountName, number> =>
  Object.fromEntries(storeCountNames.map((name) => [name, counts[name] ?? 0])) as Record<
    StoreCountName,
    number
  >;
