import type { AccountId } from "../../core/values/basics.ts";
import type { DeliveryCapacity, NextDelivery, TakenCapacity } from "../../core/admission/capacity.ts";
import {
  readLaneAccount,
  hasCapacity,
  isBelowMaximum,
  isNewcomer,
  leavesShareToOthers,
  mayKeepPlace,
} from "../../core/admission/capacity.ts";
import type { UndoLog } from "./undoLog.ts";

/** The delivery capacity of a node that a batch has given to deliveries so far. */
export class BatchCapacity {
  readonly #capacity: DeliveryCapacity;
  readonly #byLane = new Map<string, CapacityCount>();
  readonly #byAccount = new Map<AccountId, CapacityCount>();
  readonly #total: CapacityCount = { deliveries: 0, bytes: 0 };
  readonly #denied = new Set<string>();
  readonly #undo: UndoLog;

  constructor(capacity: DeliveryCapacity, undo: UndoLog) {
    this.#capacity = capacity;
    this.#undo = undo;
  }

  hasCapacity(next: NextDelivery): boolean {
    const { lane } = next;
    const taken = this.#readTaken(lane);
    const isFree = hasCapacity(this.#capacity, taken, next);
    // A message that waits for a puller takes nothing from others.
    if (isFree || next.isPulled) return isFree;
    if (!leavesShareToOthers(this.#capacity, taken, next)) this.#deny(lane);
    if (isBelowMaximum(this.#capacity, taken, lane)) this.#capacity.noteWaiting?.(lane);
    return false;
  }

  mayKeepPlace(lane: string): boolean {
    return mayKeepPlace(this.#capacity, this.#readTaken(lane), lane);
  }

  #deny(lane: string): void {
    if (this.#denied.has(lane)) return;
    this.#denied.add(lane);
    this.#undo.pushSilently(() => this.#denied.delete(lane));
  }

  /** Reports the destinations that got no delivery because their accounts hold their shares. */
  reportDenied(): void {
    for (const lane of this.#denied) this.#capacity.denied?.(lane);
  }

  /**
   * Reports whether a delivery gets no capacity because it waits for a puller, or because its account holds
   * its share of the node.
   */
  isDenied(next: NextDelivery): boolean {
    return next.isPulled || !leavesShareToOthers(this.#capacity, this.#readTaken(next.lane), next);
  }

  #readTaken(lane: string): TakenCapacity {
    const { deliveries, bytes } = this.#total;
    const laneCount = this.#byLane.get(lane);
    const accountCount = this.#byAccount.get(readLaneAccount(lane));
    return {
      all: deliveries,
      lane: laneCount?.deliveries ?? 0,
      account: accountCount?.deliveries ?? 0,
      bytes,
      laneBytes: laneCount?.bytes ?? 0,
      accountBytes: accountCount?.bytes ?? 0,
    };
  }

  isNewcomer(lane: string): boolean {
    return isNewcomer(
      this.#capacity,
      { all: this.#total.deliveries, lane: this.#byLane.get(lane)?.deliveries ?? 0 },
      lane,
    );
  }

  /** Takes capacity for one delivery. */
  take({ lane, size }: NextDelivery): void {
    const all = [
      this.#total,
      findOrCreateCount(this.#byLane, lane),
      findOrCreateCount(this.#byAccount, readLaneAccount(lane)),
    ];
    addToCounts(all, 1, size);
    this.#undo.push(() => addToCounts(all, -1, -size));
  }
}

function findOrCreateCount(all: Map<string, CapacityCount>, name: string): CapacityCount {
  let found = all.get(name);
  if (found === undefined) all.set(name, (found = { deliveries: 0, bytes: 0 }));
  return found;
}

type CapacityCount = { deliveries: number; bytes: number };

function addToCounts(counts: readonly CapacityCount[], deliveries: number, bytes: number): void {
  for (const counter of counts) {
    counter.deliveries += deliveries;
    counter.bytes += bytes;
  }
}
