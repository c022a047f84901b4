/** The last part of a capacity, which an account that holds more than this part must leave free. */
const lastPart = 1 / 8;

/**
 * Reports whether an account that holds `own` of a capacity may take `wanted` more without harm to other
 * accounts. An account that holds more than an eighth must leave the last eighth free. The rest goes to any
 * account that has work. A capacity below 8 has no last eighth.
 */
export function leavesReserve(
  { total, free }: { total: number; free: number },
  own: number,
  wanted: number,
): boolean {
  const last = Math.floor(total * lastPart);
  return own + wanted <= last || free - wanted >= last;
}
