import { bulkActions } from "../../engine/core/bulk/actions.ts";
import { audited } from "../../engine/core/commands/audit.ts";
import { internal } from "../../engine/core/commands/kinds.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import type { StoredOperation } from "../../engine/store/layout/storedOperation.ts";
import { keyOfAccountRow } from "../../engine/store/layout/storedOperation.ts";
import { describeWorkTable, workTableSchema } from "../../engine/store/layout/workTable.ts";
import type { Range, StorageReads } from "../../engine/store/layout/storageReads.ts";
import { continueJob, createJob, noteJob, removeJobs, stopJob } from "./commands.ts";
import type { Job } from "./job.ts";

declare module "../../engine/core/decision/command.ts" {
  interface Rows {
    jobs: Job;
  }
}

/** Bulk actions that run in the background. */
export const jobs = {
  schema: workTableSchema("jobs"),
  tables: { jobs: describeWorkTable<Job>("jobs") },
  keys: { jobs: keyOfAccountRow },
  commands: {
    createJob: audited(createJob, ({ action }, { id }) => ({ what: bulkActions[action].word, object: id })),
    stopJob: audited(stopJob, ({ id }, answer) =>
      answer?.stopped ? { what: "job.stop", object: id, count: answer.job.done } : null,
    ),
    continueJob: internal(continueJob),
    noteJob: internal(noteJob),
    removeJobs: internal(removeJobs),
  },
  createQueries: (reads: StorageReads) => ({
    /** Returns a job, or null. */
    job: async (account: AccountId, id: string): Promise<Job | null> =>
      (await reads.rows("jobs", [[account, id]]))[0] ?? null,
    /** Returns jobs of an account in the order of their ids. */
    jobs: (range: Range): Promise<readonly Job[]> => reads.range("jobs", range),
    /** Returns the jobs of all accounts that are due, the oldest first. */
    dueJobs: (now: Millis, limit: number): Promise<readonly Job[]> => reads.dueWork("jobs", now, limit),
  }),
  secretTerms: [],
} satisfies StoredOperation;
