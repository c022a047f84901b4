import { gateKinds } from "../../engine/core/admission/gate.ts";
import type { BriefReason, ListedProgress } from "../../engine/core/explain/runProgress.ts";
import { briefReasonNames } from "../../engine/core/explain/runProgress.ts";
import { formatRunFailure } from "../../engine/core/model/failureText.ts";
import type { Run } from "../../engine/core/model/run.ts";
import type { RunLineage } from "../../engine/core/workflows/log/view.ts";
import type { FieldsOf } from "./field.ts";
import { count, longText, object, omitEmpty, optional, text, texts, time, word } from "./field.ts";

/** The states of a run. */
export const runStates = ["RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED"] as const;
/** The meanings of the states of a run. */
export const aboutRunStates =
  "RUN_STARTED: active. RUN_SUCCESS: finished with a result. RUN_FAILED: failed for good. RUN_CANCELED: " +
  "cancelled.";

type NamedRun = Pick<Run, "runId" | "createdAt">;
const nameFields: FieldsOf<NamedRun> = {
  workflowRunId: text("The id of the run.", ({ runId }) => runId),
  workflowRunCreatedAt: time("When the run was created, in Unix milliseconds.", ({ createdAt }) => createdAt),
};

/** The fields of the runs that a run continues, and that continue it, if it was resumed or restarted. */
export const lineageFields = {
  resumedAs: optional(object(nameFields))(
    "The run that resumed or restarted this one.",
    ({ lineage }) => lineage.next,
  ),
  resumedFrom: optional(object(nameFields))(
    "The run that this one resumes or restarts.",
    ({ lineage }) => lineage.origin,
  ),
} satisfies FieldsOf<{ lineage: RunLineage }>;

/** The fields of a run that another run names. */
export const referenceFields: FieldsOf<Pick<Run, "runId" | "url" | "createdAt">> = {
  workflowRunId: text("The id of the run.", ({ runId }) => runId),
  workflowUrl: text("The URL of its workflow.", ({ url }) => url),
  workflowRunCreatedAt: time("When the run was created, in Unix milliseconds.", ({ createdAt }) => createdAt),
};

const briefReasonFields: FieldsOf<BriefReason> = {
  reason: word(briefReasonNames)(
    "Why the run waits. event: for an event. webhook: for a call to its webhook. run: for the end of a run " +
      "that it invoked. sleep: for the end of a sleep. retry: for the next attempt of a call that failed. " +
      "held: for a gate. sending: for the response to a call.",
    ({ reason }) => reason,
  ),
  stepName: optional(text)("The name of the step that waits, if it is known.", ({ stepName }) => stepName),
  eventId: optional(text)("For event and webhook, the id of the event.", ({ event }) => event),
  workflowRunId: optional(text)("For run, the id of the invoked run.", ({ runId }) => runId),
  since: optional(time)("When the wait began, in Unix milliseconds.", ({ since }) => since),
  until: optional(time)("When the wait ends at the latest, in Unix milliseconds.", ({ until }) => until),
  gate: optional(word(gateKinds))("For held, the gate.", ({ gate }) => gate),
};

const progressFields: FieldsOf<ListedProgress> = {
  stepsDone: optional(count)(
    "The number of steps that have a result. Absent if the history has more than 100 entries.",
    ({ steps }) => steps?.done,
  ),
  stepsOpen: optional(count)(
    "The number of steps that were planned and have no result. Absent like stepsDone.",
    ({ steps }) => steps?.open,
  ),
  waitingOn: optional(object(briefReasonFields))(
    "For an active run, why it waits. If several steps wait, the one that has waited longest.",
    ({ reason }) => reason,
  ),
};

/** The fields of a run in a list, without its steps and its result. */
export const runEntryFields = {
  workflowRunId: text("The id of the run.", ({ run }) => run.runId, "RUN"),
  workflowUrl: longText("The URL of the workflow.", ({ run }) => run.url, "WORKFLOW"),
  workflowState: word(runStates)(aboutRunStates, ({ run }) => run.state),
  workflowRunCreatedAt: time(
    "When the run was created, in Unix milliseconds.",
    ({ run }) => run.createdAt,
    "CREATED",
  ),
  workflowRunCompletedAt: optional(time)(
    "When the run ended, in Unix milliseconds. Absent for an active run.",
    ({ run }) => run.endedAt,
  ),
  workflowRunCallerIp: optional(text)(
    "The IP address of the client that started the run, if it is known.",
    ({ run }) => run.callerIp,
  ),
  invoker: optional(object(referenceFields))("The run that invoked this one.", ({ run }) => run.invoker),
  dlqId: optional(text)(
    "The id of the run in the dead letter queue, as long as it is there.",
    ({ run }) => run.failure?.dlqId,
  ),
  error: optional(text)(
    "For RUN_FAILED, why the run failed.",
    ({ run }) => run.failure && formatRunFailure(run.failure, run.redaction),
  ),
  ...lineageFields,
  label: optional(text)("The first label of the run.", ({ run }) => run.labels[0]),
  labels: optional(texts)("All labels of the run.", ({ run }) => omitEmpty(run.labels)),
  flowControlKey: optional(text)(
    "The flow-control key of the run.",
    ({ run }) => run.settings.flowControl?.key,
  ),
  historyEntries: count(
    "The number of entries in its history: the payload, plans, calls, responses and results.",
    ({ run, active }) => active?.steps ?? run.steps,
  ),
  waitingSteps: optional(count)(
    "For an active run, the number of steps that wait: for an event, for a call to a webhook, or for " +
      "an invoked run.",
    ({ active }) => active?.waiting,
  ),
  progress: optional(object(progressFields))(
    "How far the run is. Present only with progress=true.",
    ({ progress }) => progress,
  ),
} satisfies FieldsOf<{
  run: Run;
  active: { steps: number; waiting: number } | null;
  lineage: RunLineage;
  progress?: ListedProgress;
}>;
