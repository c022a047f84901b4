import { reduceShare } from "../node/failingLanes.ts";
import { leavesLastPart, leavesReserve, leavesReserveAfterBody } from "../node/lastPart.ts";
import type { AccountId } from "../values/basics.ts";

/**
 * The deliveries that a node may have running, and how it shares them between destinations.
 *
 * A destination (a host, for one account) may have as many deliveries running as are free. The first slow
 * destination gets at most half of the capacity, the second at most a third, and a new destination nearly
 * always finds some free. This is the dynamic threshold of Choudhury and Hahne ("Dynamic queue length
 * thresholds", 1998) with a factor of one. The memory for bodies that are being sent is shared by the same
 * rule.
 *
 * Accounts with many destinations are held back by a second rule: see `leavesReserve`. A destination whose
 * attempts all fail gets less while others wait: see `FailingLanes`.
 */
export type DeliveryCapacity = {
  free: number;
  /** Whether this node begins no deliveries now, for example because it stops. */
  beginsNone?: boolean;
  /** No destination gets more than this, even if the node is idle. */
  perHost: number;
  /**
   * The accounts whose due messages wait for a claim, so that a new message must not overtake them. True
   * means all accounts, false none.
   */
  backlog: boolean | ReadonlySet<AccountId>;
  /** Running deliveries by destination (`laneName`). */
  runningByLane: ReadonlyMap<string, number>;
  bytes: ByteCapacity;
  /**
   * The deliveries and the memory for bodies that each account holds. Absent: accounts are not distinguished.
   */
  heldByAccount?: { deliveries: CapacityHoldings; bytes: CapacityHoldings };
  /** Called for a destination (`laneName`) that gets no delivery because its account holds its share. */
  denied?(lane: string): void;
  /** Called for a destination (`laneName`) that gets no delivery, and is below its maximum. */
  noteWaiting?(lane: string): void;
  /** The messages that pullers on this node wait for, by destination (`laneName`). Absent: none. */
  pulls?: ReadonlyMap<string, number>;
  /** Reports whether a destination (`laneName`) gets less than others now. */
  isReduced?(lane: string): boolean;
};

/** The whole of a capacity, and what each account holds of it. */
export type CapacityHoldings = { total: number; byAccount: ReadonlyMap<AccountId, number> };

/**
 * Bytes of bodies. `free` may be negative, because the last body taken may exceed the limit. Without that, a
 * large body could wait without end.
 */
export type ByteCapacity = {
  free: number;
  /**
   * The maximum number of bytes that one batch loads for messages that it may send. The first message is
   * always loaded.
   */
  perBatch: number;
  /** Bytes of running deliveries by destination (`laneName`). */
  byLane: Readonly<Record<string, number>>;
};

/**
 * Deliveries and bytes that were taken since the capacity was counted: in all (`all`, `bytes`), by the
 * destination (`lane`, `laneBytes`), and by its account (`account`, `accountBytes`).
 */
export type TakenCapacity = {
  all: number;
  lane: number;
  account?: number;
  bytes: number;
  laneBytes: number;
  accountBytes?: number;
};

/**
 * A delivery that might begin: its destination (`laneName`), and the bytes of its body. `isPulled`: it can
 * begin only if a puller waits for it.
 */
export type NextDelivery = { lane: string; size: number; isPulled?: boolean };

/** Returns the name under which the deliveries of a destination are counted. */
export function laneName(account: AccountId, host: string): string {
  if (last.account !== account || last.host !== host) last = { account, host, lane: `${account} ${host}` };
  return last.lane;
}

/**
 * The name that was made last. Each message needs the name of its destination about five times, and the next
 * message often has the same. A new text would be joined and hashed at each lookup.
 */
let last = { account: "", host: "", lane: " " };

/** Returns the account of a name that `laneName` made. */
export const readLaneAccount = (lane: string): AccountId =>
  lane === last.lane ? last.account : lane.slice(0, lane.indexOf(" "));

/**
 * Returns what the node has used up, so that no delivery to any destination may begin. Returns null if it has
 * some of both.
 */
export const findShortage = ({
  free,
  bytes,
}: Pick<DeliveryCapacity, "free" | "bytes">): "deliveries" | "memory" | null =>
  free <= 0 ? "deliveries" : bytes.free <= 0 ? "memory" : null;

/** Reports whether one more delivery may begin. */
export function hasCapacity(
  capacity: DeliveryCapacity,
  taken: TakenCapacity,
  { lane, size, isPulled }: NextDelivery,
): boolean {
  if (isPulled && (capacity.pulls?.get(lane) ?? 0) <= taken.lane) return false;
  const free = capacity.free - taken.all;
  const running = (capacity.runningByLane.get(lane) ?? 0) + taken.lane;
  const share = capacity.isReduced?.(lane) ? reduceShare(free) : free;
  return (
    free > 0 &&
    running < Math.min(capacity.perHost, share) &&
    hasBytes(capacity.bytes, taken, lane) &&
    leavesShareToOthers(capacity, taken, { lane, size })
  );
}

/**
 * Reports whether a running delivery to a destination may keep its place: it could begin now if it were
 * not running. So it yields to others as soon as its destination or its account holds more than its share.
 */
export function mayKeepPlace(capacity: DeliveryCapacity, taken: TakenCapacity, lane: string): boolean {
  if (capacity.beginsNone) return false;
  // Another node may be making the delivery.
  const own = (capacity.runningByLane.get(lane) ?? 0) + taken.lane > 0 ? 1 : 0;
  const { all, account = 0 } = taken;
  const others = { ...taken, all: all - own, lane: taken.lane - own, account: account - own };
  return hasCapacity(capacity, others, { lane, size: 0 });
}

/** Reports whether a destination could have more deliveries if other destinations had fewer. */
export const isBelowMaximum = (
  { perHost, runningByLane }: DeliveryCapacity,
  taken: Pick<TakenCapacity, "lane">,
  lane: string,
): boolean => (runningByLane.get(lane) ?? 0) + taken.lane < perHost;

/**
 * Reports whether one more delivery of the account of a destination leaves other accounts their share. The
 * share of the memory must be left free after the whole body is taken.
 */
export function leavesShareToOthers(
  { free, bytes, heldByAccount }: DeliveryCapacity,
  taken: TakenCapacity,
  { lane, size }: NextDelivery,
): boolean {
  if (!heldByAccount) return true;
  // If the last part stays free, it does not matter what the account holds.
  if (
    leavesLastPart({ total: heldByAccount.deliveries.total, free: free - taken.all }, 1) &&
    leavesLastPart({ total: heldByAccount.bytes.total, free: bytes.free - taken.bytes }, size)
  )
    return true;
  const account = readLaneAccount(lane);
  const ownDeliveries = (heldByAccount.deliveries.byAccount.get(account) ?? 0) + (taken.account ?? 0);
  const ownBytes = (heldByAccount.bytes.byAccount.get(account) ?? 0) + (taken.accountBytes ?? 0);
  return (
    leavesReserve({ total: heldByAccount.deliveries.total, free: free - taken.all }, ownDeliveries, 1) &&
    leavesReserveAfterBody(
      { total: heldByAccount.bytes.total, free: bytes.free - taken.bytes },
      ownBytes,
      size,
    )
  );
}

function hasBytes({ free, byLane }: ByteCapacity, taken: TakenCapacity, lane: string): boolean {
  return (byLane[lane] ?? 0) + taken.laneBytes < free - taken.bytes;
}

/**
 * Reports whether a delivery to a destination may begin before it is known which other messages wait. This is
 * allowed if no delivery to the destination is running, and if the free deliveries outnumber the destinations
 * with running deliveries. The delivery then takes nothing from another destination.
 */
export function isNewcomer(
  capacity: DeliveryCapacity,
  taken: Pick<TakenCapacity, "all" | "lane">,
  lane: string,
): boolean {
  return (
    (capacity.runningByLane.get(lane) ?? 0) + taken.lane === 0 &&
    capacity.free - taken.all > capacity.runningByLane.size
  );
}

/** Reports whether due messages of this account wait for a claim. */
export const hasBacklog = ({ backlog }: Pick<DeliveryCapacity, "backlog">, account: AccountId): boolean =>
  typeof backlog === "boolean" ? backlog : backlog.has(account);

/** The capacity of a caller that delivers nothing itself. */
export const noCapacity: DeliveryCapacity = {
  free: 0,
  beginsNone: true,
  perHost: 0,
  backlog: true,
  runningByLane: new Map(),
  bytes: { free: 0, perBatch: 0, byLane: {} },
};
