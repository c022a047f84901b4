import type { Job } from "../../../../src/operations/jobs/job.ts";
import type { RandomCommand } from "../../../engine/store/randomCommands.ts";

/** Returns a command about jobs. Its entries often belong to the job; some are stale or of another kind. */
export function makeJobCommand(
  account: string,
  { jobs, ids }: { jobs: readonly Job[]; ids: readonly string[] },
  pickOne: <T>(list: readonly T[]) => T,
): RandomCommand {
  const startedBy = { kind: "token", token: "main", address: null } as const;
  const [job] = jobs;
  const create = {
    name: "createJob",
    input: {
      account,
      action: pickOne(["dlq.retry", "dlq.delete", "messages.cancel"] as const),
      filter: {},
      startedBy,
      last: "~",
      rate: pickOne([null, 2]),
      canary: pickOne([null, 1]),
      known: jobs.map(({ id }) => id),
      logRetention: 400_000,
    },
  } as const;
  if (!job) return create;
  const { account: owner, id: jobId, action, position } = job;
  const entries = ids.map((id) => ({ id }));
  const portion = { account: owner, jobId, action, position, entries, logRetention: 400_000 };
  const notes = [{ total: 3 }, { canary: "succeeded" }, { canary: "pending" }, { error: "e" }] as const;
  return pickOne<RandomCommand>([
    create,
    { name: "continueJob", input: { ...portion, isEnd: pickOne([true, false]) } },
    { name: "continueJob", input: { ...portion, isEnd: false } },
    {
      name: "continueJob",
      input: { ...portion, entries: [], failures: [{ id: "x", reason: "r" }], isEnd: false },
    },
    { name: "noteJob", input: { account: owner, jobId, note: pickOne(notes) } },
    { name: "stopJob", input: { account, id: jobId, stoppedBy: startedBy } },
    { name: "removeJobs", input: { account: owner, ids: [jobId] } },
  ]);
}
