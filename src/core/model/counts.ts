import type { AccountId, Millis } from "./message.ts";

/** What is counted. Bytes are those of bodies. */
export type Counts = {
  /** Outside workflows: each message that was taken in or made, callbacks among them, and each time that one was to be sent again. */
  messages: number;
  /** The same of messages that a workflow run waits for. */
  workflowMessages: number;
  /** Runs that were started, resumed or restarted. */
  workflowRuns: number;
  delivered: number;
  failed: number;
  cancelled: number;
  workflowDelivered: number;
  workflowFailed: number;
  workflowCancelled: number;
  /** Of what was published, by clients or by the endpoints of workflows. */
  bytesIn: number;
  /** Of what was sent, once for each attempt. */
  bytesOut: number;
  /** Dead letters that came, less those that went. */
  deadLetters: number;
  /** Bytes of rows that came, less those of rows that went: see `core/accounts/storageQuota.ts`. */
  storedBytes: number;
};

export type CountName = keyof Counts;

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

export const countNames = Object.keys(noCounts).filter((name): name is CountName => name in noCounts);

/** A bucket of an account: what one node counted in one stretch of time. `id`: `<size>/<when it begins>/<node>`. */
export type Usage = Counts & { account: AccountId; id: string };

/** How many requests of an account were taken in on a day, which begins at `day`. */
export type DayCount = { account: AccountId; day: Millis; requests: number };

/** How many requests of an account all nodes have taken of what it may have in a second, by the number of that. */
export type SecondCount = { account: AccountId; second: number; requests: number };
