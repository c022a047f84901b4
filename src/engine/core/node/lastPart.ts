/** The part of a capacity that an account may always take. To take more, it must leave such a part free. */
const lastPart = 1 / 8;

/**
 * Reports whether an account that holds `own` of a capacity may take `added` more without harm to other
 * accounts. An account may always take up to an eighth. To hold more, it must leave the last eighth free. A
 * capacity below 8 has no last eighth.
 */
export function leavesReserve(
  { total, free }: { total: number; free: number },
  own: number,
  added: number,
): boolean {
  return isWithinLastPart(total, own + added) || free - added >= sizeOfLastPart(total);
}

/**
 * Like `leavesReserve`, for a body of `size` bytes, which is taken as a whole. An account that holds less
 * than an eighth may always take one more body. Otherwise, a body that is larger than an eighth could wait
 * without end. To take more, the account must leave the last eighth free after this body.
 */
export function leavesReserveAfterBody(
  { total, free }: { total: number; free: number },
  own: number,
  size: number,
): boolean {
  const last = sizeOfLastPart(total);
  return own < last || free - Math.max(1, size) >= last;
}

/** Reports whether the last eighth of a capacity stays free after `taken` is taken. */
export const leavesLastPart = ({ total, free }: { total: number; free: number }, taken: number): boolean =>
  free - Math.max(1, taken) >= sizeOfLastPart(total);

/** Reports whether `own` is at most the part of a capacity that an account may always take. */
export const isWithinLastPart = (total: number, own: number): boolean => own <= sizeOfLastPart(total);

const sizeOfLastPart = (total: number): number => Math.floor(total * lastPart);
