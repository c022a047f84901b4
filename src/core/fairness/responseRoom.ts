import { leavesReserve } from "./lastPart.ts";

/**
 * The memory of a node for bodies, in bytes: `total` is all of it, `sending` is held by messages in flight,
 * and `responses` by responses. `granted` is the number of responses that were given room for all of their
 * bytes and are not stored yet.
 */
export type BodyMemory = { total: number; sending: number; responses: number; granted: number };

/** The bytes that a response takes without waiting for room. */
export const smallResponse = 16 * 1024;

/**
 * The part of the memory that messages in flight leave to responses. Otherwise all could wait for each other.
 */
const responseShare = 1 / 4;

/** Returns how many bytes responses may still take. */
export const freeForResponses = ({ total, sending, responses }: BodyMemory): number =>
  total - Math.min(sending, total * (1 - responseShare)) - responses;

/**
 * Reports whether a response may take room for all of its `wanted` bytes. `accountBytes` is what the
 * responses of its account hold. A response that was given room never waits again, so a waiting response
 * continues when one of those is stored or times out. If there are none of those, the response always gets
 * its room.
 */
export const hasResponseRoom = (memory: BodyMemory, accountBytes: number, wanted: number): boolean => {
  const free = freeForResponses(memory);
  return (
    memory.granted === 0 ||
    (wanted <= free && leavesReserve({ total: memory.total, free }, accountBytes, wanted))
  );
};
