import type { Activity } from "../core/model/activity.ts";
import type { CommandResult, CommandName, CommandInput } from "./catalog/commands.ts";
import type { RemainingQuota } from "../core/values/errors.ts";
import type { Remedy } from "../core/values/remedy.ts";
import type { DeliveryCapacity } from "../core/admission/capacity.ts";
import type { Delivery } from "../core/model/delivery.ts";
import type { LeaseRef } from "../core/model/messageState.ts";
import type { ClientChoice } from "../core/model/runPost.ts";
import type { IdKind, Millis, NodeId } from "../core/values/basics.ts";
import type { NodeRecord } from "../core/cluster/nodeState.ts";
import type { Queries } from "./catalog/queries.ts";

/**
 * `canWait`: no caller waits for the result, so the call may be stored up to 20 ms later, together with
 * other calls.
 */
export type ExecuteOptions = { canWait?: boolean };

/** Removes a listener. The call that added the listener returned this function. */
export type Unsubscribe = () => void;

/** The storage of all data. It is implemented in memory, on SQLite and on PostgreSQL. */
export interface Store {
  /**
   * Runs a command in one transaction: loads the rows that it needs, decides, and writes the changes. The
   * changes are on disk when the promise resolves.
   */
  execute<N extends CommandName>(
    name: N,
    input: CommandInput<N>,
    options?: ExecuteOptions,
  ): Promise<CommandResult<N>>;
  /** Lists, single rows and counts. A query takes no locks and makes no decisions. */
  read: Queries;
  /**
   * Returns when the next message, waitlist, limiter, schedule or waiter is due, or null if none is. The time
   * may be in the past.
   */
  nextDueAt(): Promise<Millis | null>;
  /**
   * Reports whether a request would be stored now, as far as is known. The result is false while a batch has
   * run for more than 2 s. It is also false from the time a batch found the storage unavailable until a probe
   * has been stored. A probe runs only when this function or `isInDoubt` is called, at most once per second,
   * and not within 10 s after a change failed for lack of room.
   */
  takesChanges(): Promise<boolean>;
  /**
   * Reports whether the storage failed to take the last batch, or has worked on one batch for more than 2 s.
   * The call returns at once. If the storage failed, the call also starts a probe.
   */
  isInDoubt(): boolean;
  /**
   * Calls the listener with the due time of the earliest row that a batch of this node or of another node
   * left due.
   */
  onDue(listener: (at: Millis) => void): Unsubscribe;
  /**
   * Calls the listener when this node or another node changed an account. A notification from another node
   * can be lost.
   */
  onAccounts(listener: () => void): Unsubscribe;
  /**
   * Whether all deliveries of all nodes are held. Nodes read it and send nothing meanwhile. The store itself
   * does not enforce it.
   */
  readonly hold: Hold;
  /** The parts that only some storages have. */
  readonly upkeep: StoreUpkeep;
  /**
   * Sets the receiver of deliveries. Before this call, a message is never leased in the batch that publishes
   * it.
   */
  attach(sink: DeliverySink): void;
  /** Sets the observer of the batches of this node. */
  observe(observer: BatchObserver): void;
  /**
   * Declares that no account keeps log entries from before `time`. If the log is stored in parts, old parts
   * are dropped as a whole once `expire` has visited them. Their rows are then not deleted one by one.
   */
  forgetBefore(time: Millis): Promise<void>;
  /** Waits for the batches in flight, then closes the storage. */
  close(): Promise<void>;
}

/** The parts that only some storages have. Other storages have values that do nothing: see `soleNode`. */
export type StoreUpkeep = {
  /** The disk of the files. Null: it is that of a database server, which looks after it itself. */
  readonly disk: StoreDisk | null;
  readonly membership: Membership;
  /**
   * Returns the nodes that share the storage, at most 100, those that have changed something last first. The
   * list is empty if this node is the only one.
   */
  nodes(): Promise<NodeRecord[]>;
};

/** The disk with the files of a store. */
export type StoreDisk = {
  /** Reports whether new content is refused because the disk is almost full. */
  isLow(): boolean;
  /** Returns how many bytes must be free for new content. */
  needed(): number;
  /**
   * Reports whether history should be removed before its retention ends, because the disk has little room. It
   * looks at the disk at each call.
   */
  isShort(): boolean;
  /** Gives a little free space of a database file back to the disk. Reports whether there may be more. */
  giveBackSpace(): Promise<boolean>;
  /**
   * Reads all of the table after the given one (null: the first one) with its indexes, and reports damage
   * like a read that meets it. Returns the name of the table, or null after the last one.
   */
  checkTable(after: string | null): Promise<string | null>;
};

/** Whether the operator has put all deliveries on hold. It is kept with the data. */
export type Hold = { isOnHold(): Promise<boolean>; set(isOnHold: boolean): Promise<void> };

/**
 * The lock that shows other nodes that this node is alive. While this node has the lock, the others do not
 * take over its leases. See docs/decisions/0051.
 */
export interface Membership {
  /**
   * Reports whether this node has the lock. Without it, no delivery starts, and deliveries in flight are
   * aborted after 1.5 s.
   */
  isAlive(): boolean;
  /**
   * Returns how long before the call of `onChange` other nodes may already have seen the loss, in
   * milliseconds.
   */
  lostFor(): Millis;
  onChange(listener: () => void): Unsubscribe;
}

/** The upkeep of a store that no other node shares: nobody takes over, so its membership never ends. */
export const soleNode: Pick<StoreUpkeep, "nodes" | "membership"> = {
  nodes: async () => [],
  membership: { isAlive: () => true, lostFor: () => 0, onChange: () => () => undefined },
};

/**
 * The node that sends the deliveries of a store. `readCapacity` returns the delivery capacity that is free
 * now, and `deliver` receives leased messages.
 */
export type DeliverySink = {
  readCapacity(): DeliveryCapacity;
  deliver(delivery: Delivery): void;
  /** Called for a delivery in flight whose outcome is no longer needed. */
  abort(lease: LeaseRef): void;
  /** Called if another node may have ended deliveries of this node that are in flight. */
  renewLeases(): void;
  /** Called for a delivery in flight that is settled, whatever its outcome. */
  settled(lease: LeaseRef): void;
  /** Called for a state of the data that should be impossible. The message goes to the server's log. */
  fault(message: string): void;
};

/**
 * Receives what is stored, for metrics: called when a batch begins, and when it is on disk. `published` is
 * called for each accepted publish that is on disk, with the result of `elapsed` when it was called.
 */
export type BatchObserver = {
  elapsed(): Millis;
  published(calledAt: Millis): void;
  began(): void;
  stored(result: Pick<BatchResult, "activities" | "changedRows">): void;
};

/** A command as plain data, so that it can be sent to another thread. */
export type CommandCall = { name: CommandName; input: unknown };

/**
 * The result of one call of a batch. `later`: the call needs more rows than this batch could load and must
 * run again in its own batch.
 */
export type CommandReply =
  | { later: true }
  | { answer: unknown }
  | { refused: { code: string; message: string; remedy?: Remedy; remainingQuota?: RemainingQuota } }
  | { failed: string };

/**
 * The result of a batch: one reply per call, and what the node must do next. `dueAt`: the due time of the
 * earliest row that the batch left due, or null. `activities`: what its commands did. `changedRows`: the
 * number of rows that it inserted, updated and removed.
 */
export type BatchResult = {
  replies: CommandReply[];
  deliveries: Delivery[];
  abortedLeases: LeaseRef[];
  /** Present if the batch ended deliveries in flight of other nodes. */
  abortsElsewhere?: true;
  settledLeases: LeaseRef[];
  dueAt: Millis | null;
  faults: string[];
  activities: readonly Activity[];
  changedRows: number;
};

/**
 * Runs calls as one transaction. Rejects if the storage failed. After an `Unavailable` that is neither
 * `Interrupted` nor `Outdated`, it is unknown whether the batch was stored. After any other error, nothing
 * was stored.
 */
export type RunBatch = (calls: readonly CommandCall[], capacity: DeliveryCapacity) => Promise<BatchResult>;

/** The source of time, ids and randomness for a store. */
export type MomentSource = {
  node: NodeId;
  now(): Millis;
  random(): number;
  /** Reports whether the disk has too little room for new content. Default: it has enough. */
  isDiskLow?(): boolean;
  /** See `BodyLimit`. */
  maxBody?: number | undefined;
  /** See `Moment`. */
  skipsCallsOf?: ClientChoice | undefined;
  /** Reports whether steps may run on. Default: they may. */
  runsOn?(): boolean;
  newId(kind: IdKind, now: Millis): string;
};
