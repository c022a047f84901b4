import type { Job } from "../../../../src/operations/jobs/job.ts";
import type { AssertHolds } from "../../../simulation/checkers/observedBatch.ts";
import type { Facts, JobRecord } from "./jobRecord.ts";

type StateContext = {
  assertHolds: AssertHolds;
  facts: Facts;
  /** Reports whether an account has spent its budget or its quota. Null: this has just changed. */
  isForbidden(account: string): boolean | null;
  cover: (what: string) => unknown;
};

/** Checks the row of a job against what the job has done. `before` is undefined for a new job. */
export function checkJobState(
  record: JobRecord,
  before: Job | undefined,
  { assertHolds, facts, isForbidden, cover }: StateContext,
): void {
  const { job, name } = record;
  checkNumbers(record, before, assertHolds);
  const hasEnded = job.state === "done" || job.state === "failed" || job.state === "stopped";
  assertHolds(
    hasEnded === (job.endedAt !== null) && hasEnded === (job.dueAt === null),
    `a job that has not ended is due: ${name} is ${job.state}`,
  );
  assertHolds(
    record.isStopped === (job.state === "stopped"),
    `a job is stopped on request, and stays stopped: ${name} is ${job.state}`,
  );
  if (job.canaryPassed && before?.canaryPassed === false)
    assertHolds(record.hasCanarySucceeded(facts), `a canary passes when it has succeeded: ${name}`);
  if (job.state !== before?.state) cover(`job ${job.state}`);
  if (job.waitsForBudget) {
    assertHolds(
      before?.waitsForBudget === true || isForbidden(job.account) !== false,
      `a job waits for a budget only if it is spent: ${name}`,
    );
    cover("job waiting for a budget");
  } else if (job.state === "waiting") {
    assertHolds(
      job.canary !== null && !job.canaryPassed && job.waitsForDisk !== true,
      `a job waits only for its canary or a budget: ${name}`,
    );
  } else if (before?.waitsForBudget && job.state !== "stopped") cover("job continued with a budget");
  if (job.state === "done") checkDone(record, { assertHolds, facts, cover });
  if (job.state === "failed") checkFailed(record, { assertHolds, facts, cover });
}

function checkNumbers(
  { job, name, handled }: JobRecord,
  before: Job | undefined,
  assertHolds: AssertHolds,
): void {
  const known = [...handled.values()];
  const done = known.filter(({ outcome }) => outcome === "done").length;
  const unclear = known.filter(({ outcome }) => outcome === "unclear").length;
  assertHolds(
    job.done + job.failed === handled.size && job.done >= done && job.done <= done + unclear,
    `a job counts its entries: ${name} says ${job.done} done and ${job.failed} failed, ` +
      `of ${handled.size} handled ${done} are done`,
  );
  assertHolds(
    job.position === (known.at(-1)?.id ?? ""),
    `a job remembers the entry that it handled last: ${name} has ${job.position}`,
  );
  assertHolds(
    job.total === null ? handled.size === 0 : handled.size <= job.total,
    `a job handles at most its total: ${name} has handled ${handled.size} of ${job.total}`,
  );
  const isKept = before === undefined || before.total === null || before.total === job.total;
  assertHolds(isKept, `a total does not change: ${name} from ${before?.total} to ${job.total}`);
}

type EndContext = Omit<StateContext, "isForbidden">;

function checkDone(record: JobRecord, { assertHolds, facts, cover }: EndContext): void {
  const left = record.listLeft(facts);
  assertHolds(
    left.length === 0,
    `a job handles every entry that existed when it began: ${record.name} leaves ${left.join(" ")}`,
  );
  assertHolds(
    record.hasCanarySucceeded(facts),
    `a job is done only when its canary has succeeded: ${record.name}`,
  );
  if (record.handled.size > 1) cover(`${record.job.action} of a job with several entries`);
  if (record.job.canary !== null && record.handled.size > 0) cover("canary succeeded");
}

function checkFailed(record: JobRecord, { assertHolds, facts, cover }: EndContext): void {
  const { job, name } = record;
  if (job.error?.startsWith("canary: ")) {
    assertHolds(
      record.hasCanaryFailed(facts),
      `a canary fails only if one of its entries has failed: ${name}, ${job.error}`,
    );
    cover("canary failed");
    return;
  }
  assertHolds(record.obstacles.has(job.error ?? ""), `a job fails only for a refusal: ${name}, ${job.error}`);
}
