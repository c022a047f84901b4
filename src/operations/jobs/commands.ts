import { findBudgetRefusal } from "../../engine/core/limits/budget.ts";
import { requireAccount, requireActiveAccount } from "../../engine/core/accounts/plans.ts";
import type { Decision, Draft, Moment } from "../../engine/core/decision/command.ts";
import { deleteDeadLetters, retryDeadLetters } from "../../engine/core/deadLetters/dlq.ts";
import { resumeRun } from "../../engine/core/deadLetters/resume.ts";
import type { Actor } from "../../engine/core/model/auditEntry.ts";
import type { Job, JobAction, JobEntry, JobResult, JobSelection } from "./job.ts";
import {
  canaryCheck,
  isInCanary,
  listJobRuns,
  maxJobFailures,
  readWait,
  sendsAgain,
  waitForBudget,
  waitForDisk,
  withoutWait,
} from "./job.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { cancelRuns } from "../../engine/core/workflows/end.ts";
import type { NotDone } from "../../engine/core/values/errors.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { firstIdAt } from "../../engine/core/values/ids.ts";
import { limits } from "../../engine/core/values/limits.ts";
import { cancel } from "../../engine/core/commands/cancel.ts";

type JobRequest = {
  account: AccountId;
  startedBy: Actor;
  /** The highest id that existed. Null: everything created until now. */
  last: string | null;
  rate: number | null;
  canary: number | null;
  logRetention: Millis;
  /** The ids of jobs that may be replaced if they have ended, as the caller has read them. */
  known: readonly string[];
} & JobSelection;

/** The word of the audit log for each action. It is the same as for the action without a job. */
export const auditWords: Readonly<Record<JobAction, string>> = {
  "dlq.retry": "dlq.retry",
  "dlq.delete": "dlq.delete",
  "runs.resume": "dlq.resume",
  "runs.restart": "dlq.restart",
  "runs.cancel": "run.cancel",
  "messages.cancel": "message.cancel",
};

/**
 * Creates a job. If the account has the maximum number of jobs, the oldest of the known jobs that has ended
 * is removed. Throws `Refusal` if none has ended. The jobs are counted in the same transaction, so the limit
 * holds even if several jobs are created at the same time.
 */
export const createJob: Decision<JobRequest, Job> = {
  decide: ({ account, known, ...request }, draft, moment) => {
    requireActiveAccount(draft.get("accounts", account));
    checkFilter(request);
    makeRoom(draft, account, known);
    const job: Job = {
      ...request,
      last: request.last ?? firstIdAt(request.action === "runs.cancel" ? "run" : "msg", moment.now + 1),
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

/** Throws `Refusal` for a large filter, because each portion of the job writes it again. */
function checkFilter({ filter }: JobSelection): void {
  const { length } = JSON.stringify(filter);
  if (length > limits.jobFilter)
    throw new Refusal("invalid", `filter: ${length} characters, the limit is ${limits.jobFilter}`);
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
      `jobs: ${count} have not ended, and the limit is ${limits.jobs}; stop one, or wait for its end`,
    );
  draft.drop("jobs", account, oldest.id);
}

/**
 * The next entries of a job. `position` is the position that the caller has read. `isEnd`: no entries follow.
 * `failures` are entries that are not tried, because an attempt was refused.
 */
export type JobPortion = {
  account: AccountId;
  jobId: string;
  action: JobAction;
  position: string;
  entries: readonly JobEntry[];
  isEnd: boolean;
  failures?: readonly NotDone[];
  logRetention: Millis;
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
  sendsAgain(action) &&
  entries.length > 0 &&
  !failures &&
  account.state !== "passive" &&
  findBudgetRefusal(account, now) !== null;

/** Does the action of a portion with its entries. */
function handle(portion: JobPortion, draft: Draft, moment: Moment): PortionOutcome {
  if (portion.failures) return { done: 0, failures: portion.failures, results: [] };
  if (portion.entries.length === 0) return { done: 0, failures: [], results: [] };
  return toActionDecision(portion)(draft, moment);
}

function findMovable(draft: Draft, { account, jobId, action, position }: JobPortion): Job | null {
  const job = draft.get("jobs", account, jobId);
  const isMovable = job?.endedAt === null && readWait(job) !== "canary";
  return isMovable && job.position === position && job.action === action ? job : null;
}

type PortionOutcome = { done: number; failures: readonly NotDone[]; results: readonly JobResult[] };

function moveJob(
  before: Job,
  { entries, isEnd }: JobPortion,
  { moment: { now, node }, outcome }: { moment: Moment; outcome: PortionOutcome },
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

type ActionDecision = (draft: Draft, moment: Moment) => PortionOutcome;

/** Binds a decision to its input. `toOutcome` says what its answer means for the job. */
const bind =
  <Input, Answer>(
    decision: Decision<Input, Answer>,
    input: Input,
    toOutcome: (answer: Answer) => PortionOutcome,
  ): ActionDecision =>
  (draft, moment) =>
    toOutcome(decision.decide(input, draft, moment));

const doNothing: ActionDecision = () => ({ done: 0, failures: [], results: [] });

/** Returns the decision that handles the entries of a portion: the same as without a job. */
function toActionDecision({ account, action, entries, failures, logRetention }: JobPortion): ActionDecision {
  if (failures || entries.length === 0) return doNothing;
  const ids = entries.map(({ id }) => id);
  const [dlqId = ""] = ids;
  switch (action) {
    case "dlq.retry":
      return bind(retryDeadLetters, { account, dlqIds: ids, logRetention, overrides: {} }, (retried) => {
        const results = retried.map((one) => ({ id: one.dlqId, became: one.messageId }));
        const found = new Set(results.map(({ id }) => id));
        return { done: results.length, results, failures: ids.filter((id) => !found.has(id)).map(toMissing) };
      });
    case "dlq.delete":
      return bind(
        deleteDeadLetters,
        { account, dlqIds: ids, logRetention },
        ({ deleted, failed = [] }): PortionOutcome => ({ done: deleted, failures: failed, results: [] }),
      );
    case "runs.resume":
    case "runs.restart": {
      const from = action === "runs.resume" ? "failure" : "beginning";
      return bind(
        resumeRun,
        { account, dlqId, from, overrides: {}, logRetention },
        ({ runId, createdAt }) => ({
          done: 1,
          failures: [],
          results: [{ id: dlqId, became: runId, createdAt }],
        }),
      );
    }
    case "runs.cancel":
      return bind(cancelRuns, { account, ...listJobRuns(entries) }, toCancelOutcome);
    case "messages.cancel":
      return bind(cancel, { account, messageIds: ids }, toCancelOutcome);
  }
}

const toMissing = (id: string): NotDone => ({ id, reason: "the dead letter does not exist any more" });

const toCancelOutcome = ({
  cancelled,
  failed = [],
}: {
  cancelled: number;
  failed?: readonly NotDone[];
}): PortionOutcome => ({ done: cancelled, failures: failed, results: [] });

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
