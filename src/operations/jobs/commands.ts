import { bulkActions } from "../../engine/core/bulk/actions.ts";
import type {
  BulkActionName,
  BulkOutcome,
  BulkPortion,
  BulkSelection,
} from "../../engine/core/bulk/entries.ts";
import { findBudgetRefusal } from "../../engine/core/limits/budget.ts";
import { requireAccount, requireActiveAccount } from "../../engine/core/accounts/plans.ts";
import type { Decision, Draft, Moment } from "../../engine/core/decision/command.ts";
import type { Actor } from "../../engine/core/model/auditEntry.ts";
import type { Job } from "./job.ts";
import {
  canaryCheck,
  isInCanary,
  maxJobFailures,
  readWait,
  waitForBudget,
  waitForDisk,
  withoutWait,
} from "./job.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { GroupChange } from "../../engine/core/deadLetters/groupChange.ts";
import type { NotDone } from "../../engine/core/values/errors.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { firstIdAt } from "../../engine/core/values/ids.ts";
import { limits } from "../../engine/core/values/limits.ts";

type JobRequest = {
  account: AccountId;
  startedBy: Actor;
  /** The highest id that existed. Null: everything created until now. */
  last: string | null;
  rate: number | null;
  canary: number | null;
  change?: GroupChange;
  logRetention: Millis;
  /** The ids of jobs that may be replaced if they have ended, as the caller has read them. */
  known: readonly string[];
} & BulkSelection;

/**
 * Creates a job. If the account has the maximum number of jobs, the oldest of the known jobs that has ended
 * is removed. Throws `Refusal` if none has ended. The jobs are counted in the same transaction, so the limit
 * holds even if several jobs are created at the same time.
 */
export const createJob: Decision<JobRequest, Job> = {
  decide: ({ account, known, ...request }, draft, moment) => {
    requireActiveAccount(draft.get("accounts", account));
    assertFilter(request);
    makeRoom(draft, account, known);
    const job: Job = {
      ...request,
      last: findLast(request, moment.now),
      account,
      id: moment.newId("job"),
      dueAt: moment.now,
      node: moment.node,
      state: "running",
      createdAt: moment.now,
      endedAt: null,
      movedAt: moment.now,
      stoppedBy: null,
      position: "",
      total: null,
      canaryPassed: false,
      results: [],
      done: 0,
      failed: 0,
      failures: [],
      error: null,
    };
    draft.put("jobs", job);
    return job;
  },
};

/** Returns the highest id of a job. Ids of messages and runs are never later than the clock of the store. */
function findLast({ action, last }: Pick<JobRequest, "action" | "last">, now: Millis): string {
  const { list } = bulkActions[action];
  if (list === "deadLetters" && last !== null) return last;
  const newest = firstIdAt(list === "runs" ? "run" : "msg", now + 1);
  return last === null || last > newest ? newest : last;
}

/** Throws `Refusal` for a large filter or change, because each portion of the job writes it again. */
function assertFilter({ filter, change }: BulkSelection & { change?: GroupChange }): void {
  for (const [name, part] of Object.entries({ filter, change })) {
    const { length } = JSON.stringify(part ?? null);
    if (length > limits.jobFilter)
      throw new Refusal("invalid", `${name}: ${length} characters, the limit is ${limits.jobFilter}`);
  }
}

function makeRoom(draft: Draft, account: AccountId, known: readonly string[]): void {
  const count = draft.readQuotaCount({ account, name: "jobs", limit: limits.jobs });
  if (count < limits.jobs) return;
  const [oldest] = known
    .flatMap((id) => draft.get("jobs", account, id) ?? [])
    .filter(({ endedAt }) => endedAt !== null)
    .sort((a, b) => (a.id < b.id ? -1 : 1));
  if (!oldest)
    throw new Refusal(
      "limit-exceeded",
      `jobs: ${count} have not ended, and the limit is ${limits.jobs}; stop a job, or wait for one to end`,
    );
  draft.drop("jobs", account, oldest.id);
}

/**
 * The next entries of a job. `position` is the position that the caller has read. `isEnd`: no entries follow.
 * `failures` are entries that are not tried, because an attempt was refused.
 */
export type JobPortion = BulkPortion & {
  jobId: string;
  action: BulkActionName;
  position: string;
  isEnd: boolean;
  failures?: readonly NotDone[];
};

/**
 * Handles the next entries of a job and moves its position in the same transaction. Returns null, and changes
 * nothing, if the job has ended or another node has moved it. If its account has spent its budget, a job that
 * sends waits, and its entries stay as they are.
 */
export const continueJob: Decision<JobPortion, Job | null> = {
  decide: (portion, draft, moment) => {
    const job = findMovable(draft, portion);
    if (!job) return null;
    const account = requireAccount(draft.get("accounts", portion.account));
    const next = mustWait(account, portion, moment.now)
      ? { ...waitForBudget(job, moment.now), node: moment.node, movedAt: moment.now }
      : moveJob(job, portion, { moment, outcome: handle(portion, draft, moment) });
    draft.put("jobs", next);
    return next;
  },
};

const mustWait = (account: Account, { action, entries, failures }: JobPortion, now: Millis): boolean =>
  bulkActions[action].sendsAgain &&
  entries.length > 0 &&
  !failures?.length &&
  account.state !== "passive" &&
  findBudgetRefusal(account, now) !== null;

/** Does the action of a portion with its entries. */
function handle(portion: JobPortion, draft: Draft, moment: Moment): BulkOutcome {
  const { action, entries, failures = [] } = portion;
  return failures.length > 0 || entries.length === 0
    ? { done: 0, failures, results: [] }
    : bulkActions[action].decide(portion, draft, moment);
}

function findMovable(draft: Draft, { account, jobId, action, position }: JobPortion): Job | null {
  const job = draft.get("jobs", account, jobId);
  const isMovable = job?.endedAt === null && readWait(job) !== "canary";
  return isMovable && job.position === position && job.action === action ? job : null;
}

function moveJob(
  before: Job,
  { entries, isEnd }: JobPortion,
  { moment: { now, node }, outcome }: { moment: Moment; outcome: BulkOutcome },
): Job {
  const job = withoutWait(before);
  const done = job.done + outcome.done;
  const failed = job.failed + outcome.failures.length;
  const isCanary = isInCanary(job);
  const waits = isCanary && (isEnd || done + failed >= (job.canary ?? 0));
  const state = waits ? "waiting" : isEnd ? "done" : "running";
  const pause = job.rate === null ? 0 : Math.ceil((entries.length * 1_000) / job.rate);
  return {
    ...job,
    node,
    done,
    failed,
    state,
    position: entries.at(-1)?.id ?? job.position,
    failures: [...job.failures, ...outcome.failures].slice(0, maxJobFailures),
    results: isCanary ? [...job.results, ...outcome.results] : job.results,
    // The entries of a refused portion are handled one by one at once, so their pauses add up.
    dueAt: state === "done" ? null : waits ? now + canaryCheck : Math.max(now, job.dueAt ?? 0) + pause,
    endedAt: state === "done" ? now : null,
    movedAt: now,
  };
}

/**
 * A fact about a job that the server has found out. `canary` is the state of its first entries.
 * `waitsForDisk`: its entries are refused because the disk is almost full.
 */
export type JobNote =
  | { total: number }
  | { error: string }
  | { canary: "pending" | "succeeded" }
  | { waitsForDisk: true };

/** Records a note about a job. Returns null if the job has ended. */
export const noteJob: Decision<{ account: AccountId; jobId: string; note: JobNote }, Job | null> = {
  decide: ({ account, jobId, note }, draft, moment) => {
    const job = draft.get("jobs", account, jobId);
    if (!job || job.endedAt !== null) return null;
    const next = { ...withNote(job, note, moment.now), node: moment.node, movedAt: moment.now };
    draft.put("jobs", next);
    return next;
  },
};

function withNote(job: Job, note: JobNote, now: Millis): Job {
  // A node that counted for a long time has seen only what the portions of another node have left.
  if ("total" in note) return job.total === null ? { ...job, total: note.total } : job;
  if ("error" in note) return endJob({ ...job, error: note.error }, "failed", now);
  const waitsForCanary = readWait(job) === "canary";
  if ("waitsForDisk" in note) return waitsForCanary ? job : waitForDisk(job, now);
  if (!waitsForCanary) return job;
  return note.canary === "pending"
    ? { ...job, dueAt: now + canaryCheck }
    : { ...job, state: "running", canaryPassed: true, dueAt: now };
}

const endJob = (job: Job, state: "stopped" | "failed", now: Millis): Job => ({
  ...withoutWait(job),
  state,
  dueAt: null,
  endedAt: now,
});

/**
 * Stops a job: entries that were not handled stay as they are. Returns null if the job does not exist. A job
 * that has ended does not change.
 */
export const stopJob: Decision<
  { account: AccountId; id: string; stoppedBy: Actor },
  { job: Job; stopped: boolean } | null
> = {
  decide: ({ account, id, stoppedBy }, draft, moment) => {
    const job = draft.get("jobs", account, id);
    if (!job) return null;
    if (job.endedAt !== null) return { job, stopped: false };
    const next = endJob({ ...job, stoppedBy }, "stopped", moment.now);
    draft.put("jobs", next);
    return { job: next, stopped: true };
  },
};

/** Removes jobs of an account that is being deleted. */
export const removeJobs: Decision<{ account: AccountId; ids: readonly string[] }, { removed: number }> = {
  decide: ({ account, ids }, draft) => {
    const known = ids.filter((id) => draft.get("jobs", account, id));
    for (const id of known) draft.drop("jobs", account, id);
    return { removed: known.length };
  },
};
