import type { AccountId, Millis } from "../values/basics.ts";

/** The counts of an account. Bytes are bytes of bodies, except in `storedBytes`. */
export type Counts = {
  /**
   * Messages outside workflows: one for each message that was accepted or created, including callbacks, and
   * one for each retry.
   */
  messages: number;
  /** Messages that a workflow run waits for, counted like `messages`. */
  workflowMessages: number;
  /** Runs that were started, resumed or restarted. */
  workflowRuns: number;
  delivered: number;
  failed: number;
  cancelled: number;
  workflowDelivered: number;
  workflowFailed: number;
  workflowCancelled: number;
  /** Bytes that clients and the endpoints of workflows published. */
  bytesIn: number;
  /** Bytes that were sent, counted once for each attempt. */
  bytesOut: number;
  /** Dead letters added minus dead letters removed. */
  deadLetters: number;
  /** Bytes of rows added minus bytes of rows removed: see `engine/core/limits/storageQuota.ts`. */
  storedBytes: number;
};

/** The name of a count. */
export type CountName = keyof Counts;

/** Counts that are all 0. */
export const noCounts: Readonly<Counts> = {
  messages: 0,
  workflowMessages: 0,
  workflowRuns: 0,
  delivered: 0,
  failed: 0,
  cancelled: 0,
  workflowDelivered: 0,
  workflowFailed: 0,
  workflowCancelled: 0,
  bytesIn: 0,
  bytesOut: 0,
  deadLetters: 0,
  storedBytes: 0,
};

/** The names of all counts. */
export const countNames = Object.keys(noCounts).filter((name): name is CountName => name in noCounts);

/**
 * A bucket: what one node counted for an account in one period of time. `id` is `<size>/<start>/<node>`. The
 * accepted calls of a source are in separate rows as `messages`, with the id `source/<source>/<part>`.
 */
export type Usage = Counts & { account: AccountId; id: string };

/** The number of requests that an account made on the day that begins at `day`. */
export type DayCount = { account: AccountId; day: Millis; requests: number };

/**
 * The number of an account's requests that all nodes together have claimed for one second. `second` is the
 * number of that second.
 */
export type SecondCount = { account: AccountId; second: number; requests: number };
