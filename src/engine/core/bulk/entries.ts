import type { AccountId, Millis } from "../values/basics.ts";
import type { ErrorCode, NotDone } from "../values/errors.ts";
import type { UnfinishedFilter } from "../explain/listedState.ts";
import type { GroupChange } from "../deadLetters/groupChange.ts";
import type { Filter, RunFilter } from "../model/filters.ts";

// The names, entries and outcomes of bulk actions, without the actions themselves.

/** The actions that a request or a job can do with many entries of a list. */
export const bulkActionNames = [
  "dlq.retry",
  "dlq.delete",
  "runs.resume",
  "runs.restart",
  "runs.cancel",
  "messages.cancel",
] as const;
/** An action that a request or a job can do with many entries of a list. */
export type BulkActionName = (typeof bulkActionNames)[number];

/** An action with dead letters. */
export type DeadLetterActionName = Exclude<BulkActionName, "runs.cancel" | "messages.cancel">;

/**
 * An action and the filter of its entries: active runs for `runs.cancel`, unfinished messages for
 * `messages.cancel`, otherwise dead letters.
 */
export type BulkSelection =
  | { action: "runs.cancel"; filter: RunFilter }
  | { action: "messages.cancel"; filter: UnfinishedFilter }
  | { action: DeadLetterActionName; filter: Filter };

/**
 * An entry of a bulk action. An active run of a list has its key as `id`, and `runId`. A run that is only
 * named has its run id as `id`.
 */
export type BulkEntry = { id: string; runId?: string };

/** Returns the id by which callers know an entry. */
export const readEntryName = ({ id, runId }: BulkEntry): string => runId ?? id;

/**
 * The entries of one transaction. `logRetention`: when the log of a message has expired. `change`: what
 * changes in messages that are sent again.
 */
export type BulkPortion = {
  account: AccountId;
  entries: readonly BulkEntry[];
  logRetention: Millis;
  change?: GroupChange;
};

/** The message or the run that an entry became. A run also has the time of its creation. */
export type BulkResult = { id: string; became: string; createdAt?: Millis };

/** The outcome of an action. `failures` have the reasons for the entries that are unchanged. */
export type BulkOutcome = {
  done: number;
  failures: readonly NotDone[];
  results: readonly BulkResult[];
};

/** Refusals that concern one entry. After any other refusal, the following entries would be refused too. */
export const entryRefusals: ReadonlySet<ErrorCode> = new Set(["invalid", "not-found", "limit-exceeded"]);
