import type { Activity } from "../../core/model/activity.ts";
import type { Delivery } from "../../core/model/delivery.ts";
import type { LeaseRef } from "../../core/model/messageState.ts";
import type { BatchResult, DeliverySink } from "../store.ts";
import type { TimeIndexEntry } from "./recentTimeIndex.ts";
import { BatchUsage } from "./usage.ts";
import type { UndoLog } from "./undoLog.ts";

/**
 * The effects of the commands of a batch in addition to changed rows. They happen when the batch is
 * committed.
 */
export class Effects {
  /** Leased messages, for the dispatcher of this node. */
  readonly deliveries: Delivery[] = [];
  /** Leases whose deliveries the dispatcher of this node aborts. */
  readonly abortedLeases: LeaseRef[] = [];
  /** One entry for each delivery in flight of another node that this batch ended. */
  readonly abortedElsewhere: true[] = [];
  /** Deliveries in flight of this node whose outcomes need not be stored. */
  readonly settledLeases: LeaseRef[] = [];
  /** The activities of the commands, for the metrics of the node. */
  readonly activities: Activity[] = [];
  /** Inconsistent data that was found, for the log of the server. */
  readonly faults: string[] = [];
  /** Entries of the time index that are new. */
  readonly newTimeIndexEntries: TimeIndexEntry[] = [];
  /** The usage of accounts. */
  readonly usage = new BatchUsage();
  readonly #undo: UndoLog;

  constructor(undo: UndoLog) {
    this.#undo = undo;
  }

  /** Adds an entry to one of the lists, for the running command. */
  add<Entry>(list: Entry[], entry: Entry): void {
    list.push(entry);
    this.#undo.push(() => list.pop());
  }
}

/** Passes the effects of a stored batch to the node that sends the deliveries. */
export function passEffects(result: BatchResult, sink: DeliverySink): void {
  for (const message of result.faults) sink.fault(message);
  for (const delivery of result.deliveries) sink.deliver(delivery);
  for (const lease of result.abortedLeases) sink.abort(lease);
  for (const lease of result.settledLeases) sink.settled(lease);
}
