/** No account that holds more than this part of a capacity may take the last part of it. */
const lastPart = 1 / 8;

/**
 * Reports whether an account that holds `own` of a capacity may take `wanted` more, as far as other accounts are concerned: an account
 * that holds more than an eighth leaves the last eighth free. All else goes to whichever account has work. A capacity below 8 has no last eighth.
 */
export function leavesReserve({ total, free }: { total: number; free: number }, own: number, wanted: number): boolean {
  const last = Math.floor(total * lastPart);
  return own + wanted <= last || free - wanted >= last;
}
