import { leavesReserve } from "./lastPart.ts";

/**
 * The memory of a node for bodies, in bytes: `total` in all, `sending` in messages that are being sent, `responses` in responses. `granted`
 * counts the responses that were given room for all of their bytes and are not stored yet.
 */
export type BodyMemory = { total: number; sending: number; responses: number; granted: number };

/** A response takes this many bytes without waiting for room. */
export const smallResponse = 16 * 1024;

/** Messages that are being sent leave at least this part of the memory to responses: otherwise all could wait for each other. */
const responseShare = 1 / 4;

/** Returns how many bytes responses may still take. */
export const freeForResponses = ({ total, sending, responses }: BodyMemory): number =>
  total - Math.min(sending, total * (1 - responseShare)) - responses;

/**
 * Reports whether a response may take room for all of its `wanted` bytes. `own`: bytes of responses that its account holds. A response
 * that was given room never waits again, so a waiting one continues when one of those is stored, or ends by its timeout. If there is none
 * of those, the response gets its room in any case.
 */
export const hasResponseRoom = (memory: BodyMemory, accountBytes: number, wanted: number): boolean => {
  const free = freeForResponses(memory);
  return memory.granted === 0 || (wanted <= free && leavesReserve({ total: memory.total, free }, accountBytes, wanted));
};
