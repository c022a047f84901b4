import { z } from "zod";
import type { Actor } from "../../engine/core/model/auditEntry.ts";
import type { Job } from "./job.ts";
import { bulkActionNames } from "../../engine/core/bulk/entries.ts";
import { jobWaits, readWait } from "./job.ts";
import { notDoneSchema } from "../../api/views/schemas.ts";
import { omitMissing } from "../../api/views/messages.ts";

const actor = (about: string) =>
  z
    .object({
      kind: z.enum(["token", "password", "operator", "commandLine"]).describe("The kind of the credential."),
      token: z.string().optional().describe("The id of the token; main is the account's own token."),
      name: z.string().optional().describe("The user name that the caller gave."),
    })
    .describe(about);

/** A job, as the API shows it. */
export const jobSchema = z.object({
  jobId: z.string().describe("The id of the job."),
  action: z.enum(bulkActionNames).describe("The action that the job does with each entry."),
  state: z
    .enum(["running", "waiting", "stopped", "done", "failed"])
    .describe(
      "running: entries are left. waiting: the job waits; waitingFor says for what. stopped: a caller " +
        "stopped it. done: all entries were handled. failed: it ended early; error gives the reason.",
    ),
  waitingFor: z
    .enum(jobWaits)
    .optional()
    .describe(
      "Present while the job waits. canary: it continues when its first entries have succeeded. disk: it " +
        "continues when the disk of the server has room for new messages. budget: it continues when the " +
        "account may spend again.",
    ),
  total: z
    .int()
    .optional()
    .describe("The number of entries when the job began. Absent until they are counted."),
  done: z.int().describe("The number of entries with which the action succeeded."),
  failed: z.int().describe("The number of entries with which the action failed. They are unchanged."),
  failures: notDoneSchema.describe("The first entries that failed, at most 20, with the reasons."),
  error: z.string().optional().describe("Why the job ended early."),
  rate: z.int().optional().describe("The maximum number of entries per second."),
  canary: z.int().optional().describe("The number of entries that must succeed before the others follow."),
  results: z
    .array(
      z.object({
        id: z.string().describe("The id of the dead letter."),
        became: z.string().describe("The id of the new message or run."),
      }),
    )
    .optional()
    .describe("The messages or runs that the entries of the canary became."),
  createdAt: z.int().describe("When the job was created, in Unix milliseconds."),
  endedAt: z.int().optional().describe("When the job ended, in Unix milliseconds."),
  startedBy: actor("The caller that started the job."),
  stoppedBy: actor("The caller that stopped the job.").optional(),
});

/** Returns a job as the API shows it. */
export const jobJson = (job: Job): Record<string, unknown> =>
  omitMissing({
    jobId: job.id,
    action: job.action,
    state: job.state,
    waitingFor: readWait(job),
    total: job.total,
    done: job.done,
    failed: job.failed,
    failures: job.failures.length > 0 ? job.failures : null,
    error: job.error,
    rate: job.rate,
    canary: job.canary,
    results: job.results.length > 0 ? job.results.map(({ id, became }) => ({ id, became })) : null,
    createdAt: job.createdAt,
    endedAt: job.endedAt,
    startedBy: actorJson(job.startedBy),
    stoppedBy: job.stoppedBy && actorJson(job.stoppedBy),
  });

const actorJson = ({ kind, token, name }: Actor): Record<string, unknown> =>
  omitMissing({ kind, token, name });
