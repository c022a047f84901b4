import type { NotDone } from "../../engine/core/values/errors.ts";
import type { Actor } from "../../engine/core/model/auditEntry.ts";
import type { Filter, RunFilter } from "../../engine/core/model/filters.ts";
import type { AccountId, Millis, NodeId } from "../../engine/core/values/basics.ts";
import type { RunKey } from "../../engine/core/model/runPost.ts";

/** The actions that a job can do with each of its entries. */
export const jobActions = [
  "dlq.retry",
  "dlq.delete",
  "runs.resume",
  "runs.restart",
  "runs.cancel",
  "messages.cancel",
] as const;
/** An action that a job can do with each of its entries. */
export type JobAction = (typeof jobActions)[number];

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
 * The action of a job and the filter of its entries: active runs for `runs.cancel`, otherwise messages or
 * dead letters.
 */
export type JobSelection =
  | { action: "runs.cancel"; filter: RunFilter }
  | { action: Exclude<JobAction, "runs.cancel">; filter: Filter };

/** An entry of a job. A run that is cancelled has its key as `id`, and `runId`. */
export type JobEntry = { id: string; runId?: string };

/** The message or the run that an entry became. A run also has the time of its creation. */
export type JobResult = { id: string; became: string; createdAt?: Millis };

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
  results: readonly JobResult[];
  done: number;
  failed: number;
  /** The first entries that failed. */
  failures: readonly NotDone[];
  error: string | null;
  logRetention: Millis;
} & JobSelection;

/** The maximum number of failures that a job keeps. */
export const maxJobFailures = 20;

/** The maximum number of entries that one transaction handles. Retried bodies are in memory together. */
const portionSizes: Readonly<Record<JobAction, number>> = {
  "dlq.retry": 4,
  "dlq.delete": 100,
  "runs.resume": 1,
  "runs.restart": 1,
  "runs.cancel": 20,
  "messages.cancel": 100,
};

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

/** Returns how many entries the next portion may have. */
export function readPortionSize(job: Job): number {
  const { action, rate, canary, done, failed } = job;
  const size = Math.min(portionSizes[action], rate ?? Infinity);
  return isInCanary(job) ? Math.min(size, (canary ?? 0) - done - failed) : size;
}

/** Reports whether the next entries of a job belong to its canary. */
export const isInCanary = ({ canary, canaryPassed, done, failed }: Job): boolean =>
  canary !== null && !canaryPassed && done + failed < canary;

/** Reports whether an action sends messages or runs again, which the account must be able to pay for. */
export const sendsAgain = (action: JobAction): boolean =>
  action === "dlq.retry" || action === "runs.resume" || action === "runs.restart";

/** Reports whether entries of a job are listed from the newest to the oldest. */
export const isNewestFirst = ({ action }: Pick<Job, "action">): boolean => action === "runs.cancel";

/** Reports whether an entry belongs to a job and was not handled yet. */
export function isLeft(job: Job, id: string): boolean {
  const { position, last } = job;
  if (id > last) return false;
  return position === "" || (isNewestFirst(job) ? id < position : id > position);
}

/** The runs of a portion that are cancelled. */
export const listJobRuns = (entries: readonly JobEntry[]): { runIds: string[]; keys: RunKey[] } => ({
  runIds: entries.map(({ runId }) => runId ?? ""),
  keys: entries.map(({ id }) => id),
});
