import type { Commands } from "../../../../src/engine/store/catalog/commands.ts";
import type { BulkActionName } from "../../../../src/engine/core/bulk/entries.ts";
import type { Job } from "../../../../src/operations/jobs/job.ts";
import { alterDecision, alterInput } from "../../../simulation/mutants/alterDecision.ts";

/** Alters the job that a decision writes. */
const writeJobAs = (name: "continueJob" | "stopJob", turn: (job: Job, now: number) => Job): Commands =>
  alterDecision(name, (_, _draft, { now }) => ({ put: { jobs: (row) => turn(row, now) } }));

/** An id that comes after those of all entries of an action. */
const lastOf = (action: BulkActionName): string =>
  action === "messages.cancel" ? "msg_z" : action === "runs.cancel" ? "run_z" : "9000000000000-000000000";

/** Faults of jobs. */
export const jobMutants: Record<string, Commands> = {
  "a job handles an entry twice after a restart": writeJobAs("continueJob", (job) => ({
    ...job,
    position: "",
  })),
  "a stopped job continues": writeJobAs("stopJob", (job, now) => ({
    ...job,
    state: "running",
    dueAt: now,
    endedAt: null,
  })),
  "the failure of a canary is ignored": alterInput("noteJob", (input) =>
    "error" in input.note && input.note.error.startsWith("canary: ")
      ? { ...input, note: { canary: "succeeded" as const } }
      : input,
  ),
  "a job takes entries that came after it began": alterInput("createJob", (input) => ({
    ...input,
    last: lastOf(input.action),
  })),
};
