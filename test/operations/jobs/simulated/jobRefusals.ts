import type { Tables } from "../../../simulation/storage/changes.ts";
import type { AssertHolds } from "../../../simulation/checkers/observedBatch.ts";
import type { Portion } from "./jobEffects.ts";
import type { JobRecord } from "./jobRecord.ts";

type RefusalContext = {
  assertHolds: AssertHolds;
  tables: Tables;
  isForbidden(account: string): boolean | null;
  cover: (what: string) => unknown;
};

/**
 * Checks that a portion is refused only for a reason that the rows show, and notes the refusal, because the
 * job may then fail, or count its entries as failed.
 */
export function checkRefused(
  record: JobRecord,
  { portion, refusal }: { portion: Portion; refusal: { code: string; message: string } },
  { assertHolds, tables, isForbidden, cover }: RefusalContext,
): void {
  const { account, action, entries } = portion;
  const isSpent = isForbidden(account) !== false;
  const continuesRuns = action === "runs.resume" || action === "runs.restart";
  const isGone = continuesRuns && entries.some(({ id }) => !canContinue(id, account, tables));
  const mayBeRefused = action === "dlq.retry" || continuesRuns;
  assertHolds(
    (mayBeRefused && isSpent) || isGone,
    `a portion is refused for a reason: ${record.name}, ${refusal.code}: ${refusal.message}`,
  );
  cover(isGone ? "job refused for a run that is gone" : "job refused for its account");
  record.obstacles.add(refusal.message);
  for (const { id } of entries) record.refused.add(id);
}

/** Reports whether the dead letter of a run and its whole history exist. */
function canContinue(dlqId: string, account: string, { deadLetters, runs, steps }: Tables): boolean {
  const key = deadLetters.get(`${account}\n${dlqId}`)?.run?.key;
  const run = runs.get(`${account}\n${key}`);
  if (!run) return false;
  const history = [...steps.values()].filter((step) => step.account === account && step.run === key);
  return history.length >= run.steps;
}
