import type { CommandResult, CommandName, CommandInput } from "../core/commands/index.ts";
import type { TableName } from "../core/decision/command.ts";
import type { RemainingQuota } from "../core/values/errors.ts";
import type { DeliveryCapacity } from "../core/admission/capacity.ts";
import type { Delivery, LeaseRef, IdKind, Millis, NodeId } from "../core/model/message.ts";
import type { Queries } from "./queries/index.ts";

/** A call that nobody waits for may be stored a few milliseconds later, together with others. */
export type ExecuteOptions = { canWait?: boolean };

export type Unsubscribe = () => void;

/** Where everything is kept. One interface; memory, SQLite and PostgreSQL behind it. */
export interface Store {
  /** Loads what the command needs, decides, writes the changes: one transaction, on the disk when it answers. */
  execute<N extends CommandName>(name: N, input: CommandInput<N>, options?: ExecuteOptions): Promise<CommandResult<N>>;
  /** Lists, single rows, figures. Never locks, never decides. */
  read: Queries;
  /** When the next message or line falls due, if any. May be in the past. */
  nextDueAt(): Promise<Millis | null>;
  /**
   * Reports whether a request would be stored now, as far as is known. False while a batch has run for more than 2 s, and after the
   * storage could not be reached for a batch or could not take it, until a probe was stored. A probe runs only when this is called,
   * and at most once a second.
   */
  takesChanges(): Promise<boolean>;
  /** Reports whether the storage failed to take the last batch, or has worked on one for more than 2 s. Costs nothing. */
  isInDoubt(): boolean;
  /** Called when something became due that nobody was told of: by this node's writes, or another node's. */
  onDue(listener: (at: Millis) => void): Unsubscribe;
  /** Called when an account was changed: by this node, or another one. Word of another one can be lost. */
  onAccounts(listener: () => void): Unsubscribe;
  /** If it is missing, the leases of this node end by time alone. */
  readonly sessionLease?: SessionLease;
  /** Says who leases through this store. Until then nothing is leased at once. */
  attach(sink: DeliverySink): void;
  /**
   * Says that no account keeps logs from before `time`. Where the log is kept in parts, old parts go as a whole, as soon as `expire` has
   * been through them, and their rows are not deleted one by one.
   */
  forgetBefore(time: Millis): Promise<void>;
  /** Waits for what is under way, then lets go of the data. */
  close(): Promise<void>;
}

/** What other nodes see of this one: while it is there, they leave its leases alone. See docs/decisions/0051. */
export interface SessionLease {
  /** Without it, no delivery begins, and after 1.5 s those in flight end. */
  isHeld(): boolean;
  /** For how long others may have seen that it is lost, at the moment of `onChange`. */
  lostFor(): Millis;
  onChange(listener: () => void): Unsubscribe;
}

/** A node as its store sees it: the hands it has free now, and where it hears of its leased deliveries. */
export type DeliverySink = {
  readCapacity(): DeliveryCapacity;
  deliver(delivery: Delivery): void;
  /** Of a delivery whose outcome nobody waits for any more. */
  abort(lease: LeaseRef): void;
  /** Something that cannot be, told to people. */ fault(message: string): void;
};

/** A command on its way: plain data. */
export type CommandCall = { name: CommandName; input: unknown };

/** `later`: it needs more than this batch could load, and has to be asked again in a batch of its own. */
export type CommandReply =
  | { later: true }
  | { answer: unknown }
  | { refused: { code: string; message: string; remainingQuota?: RemainingQuota } }
  | { failed: string };

/** What came of a batch: an answer to each call, and what the node has to know. */
export type BatchResult = {
  replies: CommandReply[];
  deliveries: Delivery[];
  abortedLeases: LeaseRef[];
  dueAt: Millis | null;
  faults: string[];
};

/**
 * Runs calls as one transaction. Rejects when the storage failed; then nothing of the batch happened, except with
 * `Unavailable`: then it is not known.
 */
export type RunBatch = (calls: readonly CommandCall[], capacity: DeliveryCapacity) => Promise<BatchResult>;

/** Where a store takes time, ids and chance from. Handed in by whoever opens it. */
export type MomentSource = { node: NodeId; now(): Millis; random(): number; newId(kind: IdKind, now: Millis): string };

/** The storage cannot be reached, or went away in the middle: whether the batch happened is not known. */
export class Unavailable extends Error {}

/** The connection was lost before the commit was sent, so nothing of the batch happened. */
export class Interrupted extends Unavailable {}

/** The tables were replaced by those of another version, to which this program must not write. Nothing of the batch happened. */
export class Outdated extends Unavailable {}

/** The storage is that of another version of this program, or is not ours at all. */
export class StorageRefused extends Error {}

/** In the order in which they are locked and written: first what many want to change, so that they wait with empty hands. */
export const tableNames: readonly TableName[] = [
  ...(["accounts", "urlGroups", "schedules", "sources", "tokens", "activeRuns", "runs", "waiters", "notifications", "steps"] as const),
  ...(["storedMessages", "limiters", "queueSlots", "hostWaitlists"] as const),
  ...(["deduplications", "messages", "deadLetters", "rejections", "log", "keptLog", "tags", "timeIndex", "usage", "dayCounts"] as const),
  ...(["secondCounts", "audit"] as const),
];

const tableOrder = new Map<string, number>(tableNames.map((name, index) => [name, index]));

/** The tables that something has members for, in that order. */
export function listTables(byTable: { readonly [T in TableName]?: unknown }): TableName[] {
  const found: TableName[] = [];
  for (const name in byTable) if (tableOrder.has(name)) found.push(name as TableName);
  return found.length > 1 ? found.sort((a, b) => (tableOrder.get(a) ?? 0) - (tableOrder.get(b) ?? 0)) : found;
}
