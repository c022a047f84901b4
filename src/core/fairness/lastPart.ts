/** The part of a capacity that an account may always take. To take more, it must leave such a part free. */
const lastPart = 1 / 8;

/**
 * Reports whether an account that holds `own` of a capacity may take `wanted` more without harm to other
 * accounts. An account may always take up to an eighth. To hold more, it must leave the last eighth free. A
 * capacity below 8 has no last eighth.
 */
export function leavesReserve(
  { total, free }: { total: number; free: number },
  own: number,
  wanted: number,
): boolean {
  const last = Math.floor(total * lastPart);
  return own + wanted <= last || free - wanted >= last;
}
