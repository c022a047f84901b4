import type { Delivery, LeaseRef } from "../core/model/message.ts";

/** Adds to a named count, and forgets a count that has become 0. */
export function addToCount(counts: Map<string, number>, name: string, by: number): void {
  const count = (counts.get(name) ?? 0) + by;
  if (count === 0) counts.delete(name);
  else counts.set(name, count);
}

/** Returns the lease of a delivery. */
export const toLeaseRef = ({ message, attempt }: Delivery): LeaseRef => ({ account: message.account, messageId: message.id, attempt });
