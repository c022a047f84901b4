import { isWithinLastPart, leavesReserve } from "./lastPart.ts";

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
 * Reports whether a response may take room for all of its `needed` bytes. `accountBytes` is what the
 * responses of its account hold. A response that has room never waits again, so each of these responses is
 * stored or times out, and then frees its room for a waiting response. If no response has room, the next one
 * always gets it.
 */
export const hasResponseRoom = (memory: BodyMemory, accountBytes: number, needed: number): boolean => {
  const free = freeForResponses(memory);
  return (
    memory.granted === 0 ||
    (needed <= free && leavesReserve({ total: memory.total, free }, accountBytes, needed))
  );
};

/**
 * While others wait for memory, this many bytes of a response that has room must arrive in this many looks,
 * which are a second apart.
 */
export const leastProgress = { bytes: 32 * 1024, looks: 5 };

/** The size of a body when it had last made progress, and the looks since then. */
export type RoomProgress = { size: number; looks: number };

/** Counts a look at a body of this size. `before` is null at the first look. */
export const countProgress = (before: RoomProgress | null, size: number): RoomProgress =>
  before === null || size - before.size >= leastProgress.bytes
    ? { size, looks: 0 }
    : { size: before.size, looks: before.looks + 1 };

/** Reports whether a response arrives too slowly, so that its attempt must end and free its memory. */
export const hasStalled = ({ looks }: RoomProgress): boolean => looks >= leastProgress.looks;

/**
 * Reports whether a response that has room must make progress, because others wait for memory. If one of its
 * account waits, `isOwnWaiting` is true. Others count if the responses of its account hold more than an
 * eighth (`accountBytes`). They also count if the account of one of them holds at most an eighth, with the
 * bodies that it sends (`isShareWaiting`). So an account that has used up its share does not disturb an
 * account that holds little.
 */
export const needsProgress = (
  total: number,
  accountBytes: number,
  { isOwnWaiting, isShareWaiting }: { isOwnWaiting: boolean; isShareWaiting: boolean },
): boolean => isOwnWaiting || isShareWaiting || !isWithinLastPart(total, accountBytes);
