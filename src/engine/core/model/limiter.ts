import type { AccountId, MessageId, Millis } from "../values/basics.ts";

/**
 * The limiter of a gate: its limits and its counters. `id` is the id of the gate.
 * `engine/core/admission/gate.ts` defines what each counter counts. A limit that is null does not apply.
 */
export type Limiter = {
  account: AccountId;
  id: string;
  createdAt: Millis;
  updatedAt: Millis;
  /**
   * When its waitlist must be served, or when the row is removed because it is idle. Null means that another
   * event must happen first.
   */
  dueAt: Millis | null;
  paused: boolean;
  parallelism: number | null;
  /**
   * For a queue, the number of its occupied slots. For other gates, the number of leased messages that they
   * count.
   */
  running: number;
  /**
   * The number of messages in its waitlist. `waitingDownstream` is the number of messages that wait for an
   * account limit behind this gate and have reserved a slot here.
   */
  waiting: number;
  waitingDownstream?: number;
  rate: number | null;
  period: Millis;
  windowStart: Millis;
  /** The number of deliveries that began in the window. */
  windowUsed: number;
  /**
   * The latest time at which a known message of the limiter is due. The limiter is not removed before that
   * time.
   */
  lastDueAt: Millis;
  /** For a queue, the `ackTimeout` of its messages that set none. */
  ackTimeout?: Millis;
  /** The limits that messages cannot change, because a request has pinned them or has set up the queue. */
  pinned: { parallelism: boolean; rate: boolean };
};

/** The counters of a limiter, or by how much they differ from a recount. */
export type Counters = { running: number; waiting: number; waitingDownstream: number };

/**
 * A queue slot. A message holds it until the message and its callbacks have finished. `id` is the id of the
 * message. `queue` is empty if the queue has been deleted.
 */
export type QueueSlot = { account: AccountId; id: MessageId; queue: string; holders: number };

/**
 * Marks that due messages wait for delivery capacity to one host, in order of acceptance. `dueAt` is the
 * latest time of the next check.
 */
export type HostWaitlist = { account: AccountId; host: string; dueAt: Millis };
