import { leavesReserve } from "../fairness/lastPart.ts";
import type { AccountId } from "../model/message.ts";

/**
 * How many deliveries a node may have running, and how it shares them out.
 *
 * A destination (a host, for one account) may have as many as there are hands free, so the first one that is slow
 * gets at most half, the second at most a third of the whole, and there is nearly always a hand for a newcomer.
 * (The dynamic threshold of Choudhury and Hahne, "Dynamic queue length thresholds", 1998, with a factor of one.)
 * The memory for the bodies that are being sent is shared out by the same rule.
 *
 * Accounts with many destinations are held back by a second rule: see `leavesReserve`.
 */
export type DeliveryCapacity = {
  free: number;
  /** No destination gets more than this, however idle the node. */
  perHost: number;
  /** Whose due messages wait for a claim, so that what is new must not overtake them: those of all accounts, of none, or of these. */
  backlog: boolean | ReadonlySet<AccountId>;
  /** Running deliveries by destination (`laneName`). */
  runningByLane: ReadonlyMap<string, number>;
  bytes: ByteCapacity;
  /** The deliveries and the memory for bodies that each account holds. Absent: accounts are not distinguished. */
  heldByAccount?: { deliveries: CapacityHoldings; bytes: CapacityHoldings };
  /** Called for a destination (`laneName`) that gets no delivery because its account holds its share. */
  denied?(lane: string): void;
};

/** The whole of a capacity, and what each account holds of it. */
export type CapacityHoldings = { total: number; byAccount: ReadonlyMap<AccountId, number> };

/** Bytes of bodies. Below zero there are none free: the last one taken may go beyond, so that a large one is never left waiting for ever. */
export type ByteCapacity = {
  free: number;
  /** One batch loads at most so many for messages that it may send; the first one always. */
  perBatch: number;
  /** Those of running deliveries by destination (`laneName`). */
  byLane: Readonly<Record<string, number>>;
};

/** Deliveries that were promised since the capacity was counted: `account` and `accountBytes` to the account of the destination. */
export type TakenCapacity = { all: number; lane: number; account?: number; bytes: number; laneBytes: number; accountBytes?: number };

/** The name under which the hands of a destination are counted. */
export const laneName = (account: AccountId, host: string): string => `${account} ${host}`;

/** Returns the account of a name that `laneName` made. */
export const readLaneAccount = (lane: string): AccountId => lane.slice(0, lane.indexOf(" "));

/** May one more delivery to this destination begin? */
export function hasCapacity(hands: DeliveryCapacity, taken: TakenCapacity, lane: string): boolean {
  const free = hands.free - taken.all;
  const running = (hands.runningByLane.get(lane) ?? 0) + taken.lane;
  return (
    free > 0 && running < Math.min(hands.perHost, free) && hasBytes(hands.bytes, taken, lane) && leavesShareToOthers(hands, taken, lane)
  );
}

/** Reports whether the account of a destination may have one more delivery, as far as other accounts are concerned. */
export function leavesShareToOthers({ free, bytes, heldByAccount }: DeliveryCapacity, taken: TakenCapacity, lane: string): boolean {
  if (!heldByAccount) return true;
  const account = readLaneAccount(lane);
  const ownHands = (heldByAccount.deliveries.byAccount.get(account) ?? 0) + (taken.account ?? 0);
  const ownBytes = (heldByAccount.bytes.byAccount.get(account) ?? 0) + (taken.accountBytes ?? 0);
  return (
    leavesReserve({ total: heldByAccount.deliveries.total, free: free - taken.all }, ownHands, 1) &&
    leavesReserve({ total: heldByAccount.bytes.total, free: bytes.free - taken.bytes }, ownBytes, 1)
  );
}

function hasBytes({ free, byLane }: ByteCapacity, taken: TakenCapacity, lane: string): boolean {
  return (byLane[lane] ?? 0) + taken.laneBytes < free - taken.bytes;
}

/**
 * May a destination have a hand before it is known who else waits? Nothing is running to it, and there are more hands
 * free than destinations that are being sent to, so that nobody misses the one it takes.
 */
export function isNewcomer(hands: DeliveryCapacity, taken: Pick<TakenCapacity, "all" | "lane">, lane: string): boolean {
  return (hands.runningByLane.get(lane) ?? 0) + taken.lane === 0 && hands.free - taken.all > hands.runningByLane.size;
}

/** Whether due messages of this account wait for a claim. */
export const hasBacklog = ({ backlog }: Pick<DeliveryCapacity, "backlog">, account: AccountId): boolean =>
  typeof backlog === "boolean" ? backlog : backlog.has(account);

/** For a caller that never delivers anything itself. */
export const noCapacity: DeliveryCapacity = {
  free: 0,
  perHost: 0,
  backlog: true,
  runningByLane: new Map(),
  bytes: { free: 0, perBatch: 0, byLane: {} },
};
