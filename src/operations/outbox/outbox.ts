import type { AccountId, Millis, NodeId } from "../../engine/core/values/basics.ts";

/** The outboxes that an account may have. */
export const maxOutboxes = 10;
/** The outboxes of all accounts that a server relays. */
export const maxRelays = 1_000;
/** On a shared database, the notice of a change can be lost, so a node looks again after this time. */
export const lookInterval: Millis = 60_000;

/**
 * An outbox: the database of a user whose rows become messages. It is stored with the account, encrypted.
 * `owner` is what the relay writes into that database, so that no other server takes the rows.
 */
export type OutboxSetting = {
  name: string;
  url: string;
  schema: string;
  /** Whether connections lead to a pooler, which lends them for one transaction at a time. */
  isPooled: boolean;
  /** The token whose rights apply to every row. Its id is null for the token of the account itself. */
  tokenHash: string;
  tokenId: string | null;
  owner: string;
  createdAt: Millis;
};

/** An outbox with the facts of its account that a relay needs. */
export type AccountOutbox = {
  account: AccountId;
  allowedHosts: readonly string[] | null;
  setting: OutboxSetting;
};

/** The facts that the relay has found out about the rows of an outbox. */
export type OutboxStatus = {
  /** The rows that wait, and those that were rejected, each counted up to `maxCounted`. */
  waiting: number;
  rejected: number;
  /** When the oldest row that waits was inserted, and the newest that was rejected. */
  oldestAt: Millis | null;
  rejectedAt: Millis | null;
  /** The reason of the last row that was rejected. */
  reason: string | null;
  /** Why no rows are taken, or null. */
  error: string | null;
  /** Since when there is this error. */
  errorAt: Millis | null;
};

/** The largest number of rows that the relay counts. */
export const maxCounted = 10_000;

/**
 * The state of an outbox. `id` is its name. While a node has the lease, only this node takes rows. `marks`
 * are the keys of rows that were published and may still be in the database of the user.
 */
export type OutboxState = OutboxStatus & {
  account: AccountId;
  id: string;
  /** When it was added. The nodes find all outboxes by it. */
  dueAt: Millis;
  lease: { node: NodeId; number: number; until: Millis } | null;
  marks: readonly Mark[];
  /** The rows that were taken since the outbox was added, and when the last one was. */
  taken: number;
  takenAt: Millis | null;
};

/** A row of the database of a user. The key is unique, and the id is not: a database may be created again. */
export type Mark = readonly [id: string, key: string];

/** The state of an outbox whose rows no node has read. */
export const newState = (account: AccountId, { name, createdAt }: OutboxSetting): OutboxState => ({
  ...{ account, id: name, dueAt: createdAt, lease: null, marks: [], taken: 0, takenAt: null },
  ...{ waiting: 0, rejected: 0, oldestAt: null, rejectedAt: null, reason: null, error: null, errorAt: null },
});

/** How long a node has an outbox without saying so again. */
export const leaseTime: Millis = 15_000;
