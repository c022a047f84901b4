import type { AccountId } from "./message.ts";

/**
 * How many deliveries a node may have running, and how it shares them out.
 *
 * A destination (a host, for one account) may have as many as there are hands free, so the first one that is slow
 * gets at most half, the second at most a third of the whole, and there is nearly always a hand for a newcomer.
 * (The dynamic threshold of Choudhury and Hahne, "Dynamic queue length thresholds", 1998, with a factor of one.)
 * The memory for the bodies that are being sent is shared out by the same rule.
 */
export type Hands = {
  free: number;
  /** No destination gets more than this, however idle the node. */
  perHost: number;
  /** Due messages wait for a claim, so what is new must not overtake them. */
  behind: boolean;
  /** Running deliveries by destination (`laneOf`). */
  busy: ReadonlyMap<string, number>;
  bytes: HandBytes;
};

/** Bytes of bodies. Below zero there are none free: the last one taken may go beyond, so that a large one is never left waiting for ever. */
export type HandBytes = {
  free: number;
  /** One batch loads at most so many for messages that it may send; the first one always. */
  perBatch: number;
  /** Those of running deliveries by destination (`laneOf`). */
  busy: Readonly<Record<string, number>>;
};

/** Hands that were promised since `hands` was counted. */
export type Taken = { all: number; lane: number; bytes: number; laneBytes: number };

/** The name under which the hands of a destination are counted. */
export const laneOf = (account: AccountId, host: string): string => `${account} ${host}`;

/** May one more delivery to this destination begin? */
export function hasHand(hands: Hands, taken: Taken, lane: string): boolean {
  const free = hands.free - taken.all;
  const running = (hands.busy.get(lane) ?? 0) + taken.lane;
  return free > 0 && running < Math.min(hands.perHost, free) && hasBytes(hands.bytes, taken, lane);
}

function hasBytes({ free, busy }: HandBytes, taken: Taken, lane: string): boolean {
  return (busy[lane] ?? 0) + taken.laneBytes < free - taken.bytes;
}

/**
 * May a destination have a hand before it is known who else waits? Nothing is running to it, and there are more hands
 * free than destinations that are being sent to, so that nobody misses the one it takes.
 */
export function isNewcomer(hands: Hands, taken: Pick<Taken, "all" | "lane">, lane: string): boolean {
  return (hands.busy.get(lane) ?? 0) + taken.lane === 0 && hands.free - taken.all > hands.busy.size;
}

/** For a caller that never delivers anything itself. */
export const noHands: Hands = { free: 0, perHost: 0, behind: true, busy: new Map(), bytes: { free: 0, perBatch: 0, busy: {} } };
