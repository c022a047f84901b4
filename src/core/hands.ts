import type { AccountId } from "./message.ts";

/**
 * How many deliveries a node may have running, and how it shares them out.
 *
 * A destination (a host, for one account) may have as many as there are hands free, so the first one that is slow
 * gets at most half, the second at most a third of the whole, and there is nearly always a hand for a newcomer.
 * (The dynamic threshold of Choudhury and Hahne, "Dynamic queue length thresholds", 1998, with a factor of one.)
 */
export type Hands = {
  free: number;
  /** No destination gets more than this, however idle the node. */
  perHost: number;
  /** Due messages wait for a claim, so what is new must not overtake them. */
  behind: boolean;
  /** Running deliveries by destination (`laneOf`). */
  busy: ReadonlyMap<string, number>;
};

/** The name under which the hands of a destination are counted. */
export const laneOf = (account: AccountId, host: string): string => `${account} ${host}`;

/** May one more delivery to this destination begin? `taken` are hands promised since `hands` was counted. */
export function hasHand(hands: Hands, taken: { all: number; lane: number }, lane: string): boolean {
  const free = hands.free - taken.all;
  const running = (hands.busy.get(lane) ?? 0) + taken.lane;
  return free > 0 && running < Math.min(hands.perHost, free);
}

/** For a caller that never delivers anything itself. */
export const noHands: Hands = { free: 0, perHost: 0, behind: true, busy: new Map() };
