import { leavesReserve } from "./lastPart.ts";

/**
 * The memory of a node for bodies, in bytes: `total` is all of it, `sending` is held by messages in flight,
 * and `responses` by responses. `granted` is the number of responses that have room for all of their bytes
 * and are not stored yet.
 */
export type BodyMemory = { total: number; sending: number; responses: number; granted: number };

/** The bytes that a response takes without waiting for room. */
export const smallResponse = 16 * 1024;

/**
 * The part of the memory that messages in flight leave to responses. Without this part, messages and
 * responses could wait for each other without end.
 */
const responseShare = 1 / 4;

/** Returns how many bytes responses may still take. */
export const freeForResponses = ({ total, sending, responses }: BodyMemory): number =>
  total - Math.min(sending, total * (1 - responseShare)) - responses;

/**
 * Reports whether a response may take room for all of its `wanted` bytes. `accountBytes` is what the
 * responses of its account hold. A response that has room never waits again, so each of these responses is
 * stored or times out, and then frees its room for a waiting response. If no response has room, the next one
 * always gets it.
 */
export const hasResponseRoom = (memory: BodyMemory, accountBytes: number, wanted: number): boolean => {
  const free = freeForResponses(memory);
  return (
    memory.granted === 0 ||
    (wanted <= free && leavesReserve({ total: memory.total, free }, accountBytes, wanted))
  );
};
