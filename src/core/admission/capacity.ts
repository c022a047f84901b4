import { leavesLastPart } from "../fairness/lastPart.ts";
import type { AccountId } from "../model/message.ts";

/**
 * How many deliveries a node may have running, and how it shares them out.
 *
 * A destination (a host, for one account) may have as many as there are hands free, so the first one that is slow
 * gets at most half, the second at most a third of the whole, and there is nearly always a hand for a newcomer.
 * (The dynamic threshold of Choudhury and Hahne, "Dynamic queue length thresholds", 1998, with a factor of one.)
 * The memory for the bodies that are being sent is shared out by the same rule.
 *
 * Accounts with many destinations are held back by a second rule: see `leavesLastPart`.
 */
export type Hands = {
  free: number;
  /** No destination gets more than this, however idle the node. */
  perHost: number;
  /** Whose due messages wait for a claim, so that what is new must not overtake them: those of all accounts, of none, or of these. */
  behind: boolean | ReadonlySet<AccountId>;
  /** Running deliveries by destination (`laneOf`). */
  busy: ReadonlyMap<string, number>;
  bytes: HandBytes;
  /** The deliveries and the memory for bodies that each account holds. Absent: accounts are not distinguished. */
  held?: { hands: Holding; bytes: Holding };
  /** Called for a destination (`laneOf`) that gets no delivery because its account holds its share. */
  denied?(lane: string): void;
};

/** The whole of a capacity, and what each account holds of it. */
export type Holding = { total: number; byAccount: ReadonlyMap<AccountId, number> };

/** Bytes of bodies. Below zero there are none free: the last one taken may go beyond, so that a large one is never left waiting for ever. */
export type HandBytes = {
  free: number;
  /** One batch loads at most so many for messages that it may send; the first one always. */
  perBatch: number;
  /** Those of running deliveries by destination (`laneOf`). */
  busy: Readonly<Record<string, number>>;
};

/** Hands that were promised since `hands` was counted: `account` and `accountBytes` to the account of the destination. */
export type Taken = { all: number; lane: number; account?: number; bytes: number; laneBytes: number; accountBytes?: number };

/** The name under which the hands of a destination are counted. */
export const laneOf = (account: AccountId, host: string): string => `${account} ${host}`;

/** Returns the account of a name that `laneOf` made. */
export const accountOf = (lane: string): AccountId => lane.slice(0, lane.indexOf(" "));

/** May one more delivery to this destination begin? */
export function hasHand(hands: Hands, taken: Taken, lane: string): boolean {
  const free = hands.free - taken.all;
  const running = (hands.busy.get(lane) ?? 0) + taken.lane;
  return free > 0 && running < Math.min(hands.perHost, free) && hasBytes(hands.bytes, taken, lane) && leavesOthers(hands, taken, lane);
}

/** Reports whether the account of a destination may have one more delivery, as far as other accounts are concerned. */
export function leavesOthers({ free, bytes, held }: Hands, taken: Taken, lane: string): boolean {
  if (!held) return true;
  const account = accountOf(lane);
  const ownHands = (held.hands.byAccount.get(account) ?? 0) + (taken.account ?? 0);
  const ownBytes = (held.bytes.byAccount.get(account) ?? 0) + (taken.accountBytes ?? 0);
  return (
    leavesLastPart({ total: held.hands.total, free: free - taken.all }, ownHands, 1) &&
    leavesLastPart({ total: held.bytes.total, free: bytes.free - taken.bytes }, ownBytes, 1)
  );
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

/** Whether due messages of this account wait for a claim. */
export const isBehind = ({ behind }: Pick<Hands, "behind">, account: AccountId): boolean =>
  typeof behind === "boolean" ? behind : behind.has(account);

/** For a caller that never delivers anything itself. */
export const noHands: Hands = { free: 0, perHost: 0, behind: true, busy: new Map(), bytes: { free: 0, perBatch: 0, busy: {} } };
