import type { FieldsOf } from "../../api/fields/field.ts";
import {
  integer,
  list,
  longText,
  object,
  omitEmpty,
  optional,
  text,
  time,
  word,
} from "../../api/fields/field.ts";
import { notDoneFields } from "../../api/fields/notDone.ts";
import type { Actor } from "../../engine/core/model/auditEntry.ts";
import { actorKinds } from "../../engine/core/model/auditEntry.ts";
import type { BulkResult } from "../../engine/core/bulk/entries.ts";
import { bulkActionNames } from "../../engine/core/bulk/entries.ts";
import type { Job } from "./job.ts";
import { jobWaits, readWait } from "./job.ts";

const actorFields: FieldsOf<Actor> = {
  kind: word(actorKinds)("The kind of the credential.", ({ kind }) => kind),
  token: optional(text)("The id of the token; main is the account's own token.", ({ token }) => token),
  name: optional(text)("The user name that the caller gave.", ({ name }) => name),
};

const resultFields: FieldsOf<BulkResult> = {
  id: text("The id of the dead letter.", ({ id }) => id),
  became: text("The id of the new message or run.", ({ became }) => became),
};

/** The fields of a job. */
export const jobFields = {
  jobId: text("The id of the job.", ({ id }) => id, "JOB"),
  action: word(bulkActionNames)("The action that the job does with each entry.", ({ action }) => action),
  state: word(["running", "waiting", "stopped", "done", "failed"])(
    "running: entries are left. waiting: the job waits; waitingFor says for what. stopped: a caller " +
      "stopped it. done: all entries were handled. failed: it ended early; error gives the reason.",
    ({ state }) => state,
  ),
  waitingFor: optional(word(jobWaits))(
    "Present while the job waits. canary: it continues when its first entries have succeeded. disk: it " +
      "continues when the disk of the server has room for new messages. budget: it continues when the " +
      "account may spend again.",
    readWait,
  ),
  total: optional(integer)(
    "The number of entries when the job began. Absent until they are counted.",
    ({ total }) => total,
  ),
  done: integer("The number of entries with which the action succeeded.", ({ done }) => done),
  failed: integer(
    "The number of entries with which the action failed. They are unchanged.",
    ({ failed }) => failed,
  ),
  failures: optional(list(notDoneFields))(
    "The first entries that failed, at most 20, with the reasons.",
    ({ failures }) => omitEmpty(failures),
  ),
  error: optional(longText)("Why the job ended early.", ({ error }) => error),
  rate: optional(integer)("The maximum number of entries per second.", ({ rate }) => rate),
  canary: optional(integer)(
    "The number of entries that must succeed before the others follow.",
    ({ canary }) => canary,
  ),
  results: optional(list(resultFields))(
    "The messages or runs that the entries of the canary became.",
    ({ results }) => omitEmpty(results),
  ),
  createdAt: time("When the job was created, in Unix milliseconds.", ({ createdAt }) => createdAt, "CREATED"),
  endedAt: optional(time)("When the job ended, in Unix milliseconds.", ({ endedAt }) => endedAt),
  startedBy: object(actorFields)("The caller that started the job.", ({ startedBy }) => startedBy),
  stoppedBy: optional(object(actorFields))("The caller that stopped the job.", ({ stoppedBy }) => stoppedBy),
} satisfies FieldsOf<Job>;
