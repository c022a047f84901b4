import type { BulkResult, BulkSelection } from "../../engine/core/bulk/entries.ts";
import type { GroupChange } from "../../engine/core/deadLetters/groupChange.ts";
import type { NotDone } from "../../engine/core/values/errors.ts";
import type { Actor } from "../../engine/core/model/auditEntry.ts";
import type { AccountId, Millis, NodeId } from "../../engine/core/values/basics.ts";

/**
 * The state of a job.
 * - `running`: entries are left, or are being counted.
 * - `waiting`: the job waits. `readWait` says for what.
 * - `stopped`: a caller stopped it.
 * - `done`: all entries were handled.
 * - `failed`: it ended early; `error` gives the reason.
 */
export type JobState = "running" | "waiting" | "stopped" | "done" | "failed";

/**
 * A bulk action that runs in the background, portion by portion. Each portion is a transaction that also
 * moves `position`, so each entry is handled once, also after a crash.
 */
export type Job = {
  account: AccountId;
  id: string;
  /** When the next portion may start; null after the end. */
  dueAt: Millis | null;
  /** The node that did the last portion. Other nodes take over if it does not continue. */
  node: NodeId;
  state: JobState;
  /** A job that waits because new content is refused while the disk is almost full. */
  waitsForDisk?: true;
  /**
   * A job that waits because its account has spent its budget. It has `waitsForDisk` as well, because version
   * 0.1.0 takes any other wait for that of a canary, and would skip the canary.
   */
  waitsForBudget?: true;
  createdAt: Millis;
  endedAt: Millis | null;
  /** When the store last changed this row. Absent if version 0.1.0 has written it. */
  movedAt?: Millis;
  startedBy: Actor;
  stoppedBy: Actor | null;
  /** The id of the entry that was handled last. Empty at the start. */
  position: string;
  /** The highest id that existed when the job was created. Later entries do not belong to it. */
  last: string;
  /** The number of entries at the start. Null until they are counted. */
  total: number | null;
  /** The maximum number of entries per second. Null: no limit. */
  rate: number | null;
  /** The number of entries that must succeed before the others are handled. Null: none. */
  canary: number | null;
  canaryPassed: boolean;
  /** The results of the canary. */
  results: readonly BulkResult[];
  done: number;
  failed: number;
  /** The first entries that failed. */
  failures: readonly NotDone[];
  error: string | null;
  logRetention: Millis;
  /** What changes in the messages that the job sends again. */
  change?: GroupChange;
} & BulkSelection;

/** The maximum number of failures that a job keeps. */
export const maxJobFailures = 20;

/** Other nodes take over a job that was due this long ago. */
const jobTakeover: Millis = 5_000;
/** A job that waits for its canary is checked again after this time. */
export const canaryCheck: Millis = 2_000;
/** A job that waits for room on the disk is tried again after this time. */
const diskCheck: Millis = 5_000;
/** A job that waits for the budget of its account is tried again after this time. */
const budgetCheck: Millis = 30_000;

/** The things that a job may wait for: the success of its canary, room on the disk, or an unspent budget. */
export const jobWaits = ["canary", "disk", "budget"] as const;
type JobWait = (typeof jobWaits)[number];

/** Returns what a job waits for. Null: it does not wait. */
export function readWait({ state, waitsForDisk, waitsForBudget }: Job): JobWait | null {
  if (state !== "waiting") return null;
  if (!waitsForDisk) return "canary";
  return waitsForBudget ? "budget" : "disk";
}

/** Returns a job without its wait for the disk or the budget. */
export const withoutWait = ({ waitsForDisk: _disk, waitsForBudget: _budget, ...job }: Job): Job => job;

/** Returns a job that waits until the disk has room, and is tried again after a while. */
export const waitForDisk = (job: Job, now: Millis): Job => ({
  ...withoutWait(job),
  state: "waiting",
  waitsForDisk: true,
  dueAt: now + diskCheck,
});

/** Returns a job that waits until its account may spend again, and is tried again after a while. */
export const waitForBudget = (job: Job, now: Millis): Job => ({
  ...withoutWait(job),
  state: "waiting",
  waitsForDisk: true,
  waitsForBudget: true,
  dueAt: now + budgetCheck,
});

/** Reports whether a node may do the next portion of a job now. */
export const mayContinueJob = ({ dueAt, node }: Job, self: NodeId, now: Millis): boolean =>
  dueAt !== null && (node === self ? dueAt <= now : dueAt + jobTakeover <= now);

/** Reports whether the next entries of a job belong to its canary. */
export const isInCanary = ({ canary, canaryPassed, done, failed }: Job): boolean =>
  canary !== null && !canaryPassed && done + failed < canary;

/**
 * Returns a selection as a job keeps it. Version 0.1.0 knows neither causes nor changes: it would take all
 * entries, or send them unchanged. It takes no entries with an empty list of hosts.
 */
export const toKeptFilter = <S extends BulkSelection>(selection: S, change?: GroupChange): S =>
  change !== undefined || ("causes" in selection.filter && selection.filter.causes !== undefined)
    ? { ...selection, filter: { ...selection.filter, hosts: [] } }
    : selection;

/** Returns a selection as it was before `toKeptFilter`. */
export function readKeptFilter<S extends BulkSelection>(selection: S): S {
  const { hosts, ...filter } = selection.filter;
  return hosts?.length === 0 ? { ...selection, filter } : selection;
}
