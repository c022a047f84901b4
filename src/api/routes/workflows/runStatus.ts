import { z } from "zod";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { logBodyBytes } from "../../../engine/core/values/limits.ts";
import type { AccountId, Bytes, MessageId } from "../../../engine/core/values/basics.ts";
import type { MessageState } from "../../../engine/core/model/messageState.ts";
import { redactBody } from "../../../engine/core/model/redaction.ts";
import type { Notification, Run } from "../../../engine/core/model/run.ts";
import { parseStepId, readRunPart } from "../../../engine/core/model/stepId.ts";
import { findFailedStep, formatRunFailure } from "../../../engine/core/model/failureText.ts";
import { isDelayed } from "../../../engine/core/workflows/log/view.ts";
import type { RunWaitState } from "../../../engine/core/explain/whyRunWaits.ts";
import { isSleep } from "../../../engine/core/model/run.ts";
import { listDoneSteps, runWaitReasonNames } from "../../../engine/core/explain/whyRunWaits.ts";
import type { Store } from "../../../engine/store/store.ts";
import { bodyFields } from "../../fields/content.ts";
import { omitMissing, toJson } from "../../fields/field.ts";
import { sha256 } from "../../http/sha256.ts";
import type { RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { parseSegment } from "../../settings/segment.ts";
import { lineageFields } from "../../fields/run.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { formatRunStatus, listShownRunReasons } from "../../views/runWaitReasons.ts";
import { waitReasonSchema } from "../../views/waitReasonSchema.ts";

const millis = (about: string) => z.int().describe(`${about}, in Unix milliseconds.`);

const reasonSchema = z.object({
  reason: z
    .enum(runWaitReasonNames)
    .describe(
      "Why the run waits. event: for an event. webhook: for a call to its webhook. run: for the end of a " +
        "run that it invoked. call: for the response of a third party. sleep: for the end of a sleep. " +
        "endpoint: for its endpoint to accept a message. nothing: the endpoint has accepted all messages " +
        "and posted no further step.",
    ),
  text: z.string().describe("The reason as a sentence."),
  stepId: z.int().min(0).optional().describe("The number of the step that waits, if it is known."),
  stepName: z.string().optional().describe("The name of the step that waits, if it is known."),
  since: millis("When the wait began").optional(),
  until: millis("When the wait ends at the latest").optional(),
  eventId: z.string().optional().describe("For event and webhook, the id of the event."),
  workflowRunId: z.string().optional().describe("For run, the id of the invoked run."),
  workflowUrl: z.string().optional().describe("For run, the URL of the invoked run's workflow."),
  url: z.string().optional().describe("The destination of the message that has not been delivered."),
  messageId: z.string().optional().describe("The id of the message that has not been delivered."),
  waitingOn: z
    .array(waitReasonSchema)
    .optional()
    .describe("Why the message has not been delivered; the current reason first."),
});

const failureSchema = z.object({
  messageId: z.string().describe("The id of the message that failed."),
  stepId: z
    .int()
    .min(0)
    .optional()
    .describe("The number of the failed step, if the message was for a known step."),
  stepName: z
    .string()
    .optional()
    .describe(
      "The name of the failed step: the step that the endpoint reported, or else the step of the message.",
    ),
  afterStep: z
    .string()
    .optional()
    .describe("The name of the last step before the failure. Present only if stepName is unknown."),
  dlqId: z
    .string()
    .optional()
    .describe("The id of the run in the dead letter queue, as long as it is there and can be resumed."),
  error: z.string().describe("Why the run failed."),
  responseStatus: z
    .int()
    .min(200)
    .max(999)
    .optional()
    .describe("The HTTP status of the last response. Absent if there was no response."),
  failureCallbackState: z
    .string()
    .optional()
    .describe(
      "The state of the failure callback: CALLBACK_INPROGRESS, CALLBACK_SUCCESS, CALLBACK_FAIL or " +
        "CALLBACK_CANCELED. Absent if the run has no failure callback.",
    ),
});

const statusSchema = z.object({
  workflowRunId: z.string().describe("The id of the run."),
  workflowUrl: z.string().describe("The URL of the workflow."),
  workflowState: z
    .enum(["RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED"])
    .describe(
      "RUN_STARTED: active. RUN_SUCCESS: finished with a result. RUN_FAILED: failed for good. " +
        "RUN_CANCELED: cancelled.",
    ),
  workflowRunCreatedAt: millis("When the run was created"),
  workflowRunCompletedAt: z
    .int()
    .optional()
    .describe("When the run ended, in Unix milliseconds. Absent for an active run."),
  text: z.string().describe("The whole status as one sentence."),
  labels: z.array(z.string()).optional().describe("The labels of the run."),
  flowControlKey: z.string().optional().describe("The flow-control key of the run."),
  stepsDone: z
    .int()
    .min(0)
    .describe("The number of steps that have a result. A sleep counts when it is over."),
  lastStep: z
    .object({
      stepId: z.int().min(0).describe("The number of the step."),
      stepName: z.string().describe("The name of the step."),
      stepType: z.string().describe("The type of the step, such as Run, Call or SleepFor."),
      time: millis("When the result of the step was accepted"),
    })
    .optional()
    .describe("The latest step that has a result. Absent if there is none."),
  waitingOn: z
    .array(reasonSchema)
    .optional()
    .describe("For an active run, the reasons why it waits: one entry for each step that has not ended."),
  more: z.literal(true).optional().describe("The run waits for more than waitingOn lists."),
  kept: z
    .array(
      z.object({
        eventId: z.string().describe("The id of the event."),
        kind: z
          .enum(["event", "webhook"])
          .describe("event: a notification. webhook: a call to a webhook of the run."),
        count: z.int().min(0).describe("The number of kept events or calls with this id."),
      }),
    )
    .optional()
    .describe("Events and webhook calls that arrived before a step waited for them."),
  result: z
    .string()
    .optional()
    .describe(`For RUN_SUCCESS, the result of the run as text, cut to ${logBodyBytes / 1024} KiB.`),
  resultBase64: z.string().optional().describe("The result in base64, if it is not UTF-8."),
  resultBytes: z.int().optional().describe("The size of the whole result in bytes."),
  truncated: z.literal(true).optional().describe("The result is cut."),
  failure: failureSchema.optional().describe("For RUN_FAILED, how the run failed."),
  ...toSchema(lineageFields).shape,
});

/** The maximum number of messages, and of waiters, that are shown. */
const maxShown = 50;

/** The route that reads how far a run is and why it waits. */
export const runStatus = route({
  method: "GET",
  path: "/v2/workflows/runs/{workflowRunId}/status",
  tag: "Workflow runs",
  summary: "Read why a run waits",
  about:
    "Returns how far a run is and what it waits for, or how it ended. If several runs have had this id, " +
    "shows the newest.",
  params: z.object({ workflowRunId: z.string().describe("The id of the run.") }),
  answers: { 200: { about: "The status of the run.", schema: statusSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => {
    const runId = parseSegment("workflowRunId", params.workflowRunId);
    const { runs } = await context.store.read.runs({
      account: account.id,
      filter: { runIds: [runId] },
      cursor: null,
      count: 1,
    });
    const [run] = runs;
    if (!run)
      throw new Refusal("not-found", `workflowRunId: there is no run ${JSON.stringify(runId.slice(0, 200))}`);
    const { waitState, more, kept } = await readRunStatus(context, account.id, run);
    return { status: 200, body: statusJson(waitState, { context, more, kept }) };
  },
});

type RunStatusData = { waitState: RunWaitState; more: boolean; kept: readonly Notification[] };

/**
 * Reads the status of a run. The run itself is read last. If it ends during the reads, it is therefore shown
 * as ended, and not as active with nothing to wait for.
 */
async function readRunStatus(
  { store: { read }, now }: RouteContext,
  account: AccountId,
  { id }: Run,
): Promise<RunStatusData> {
  const [states, waiters, kept] = await Promise.all([
    read.listRunMessages(account, id),
    read.listWaiters(account, id),
    read.listNotifications(account, id, { bodies: false }),
  ]);
  const shown = states.slice(0, maxShown);
  const messages = await Promise.all(shown.map((state) => read.waitState(account, state.id)));
  const steps = await read.history(account, id, { bodies: false });
  const run = await read.run(account, id);
  if (!run) throw new Refusal("not-found", "workflowRunId: the run was deleted when its retention ended");
  const delayed = new Set(
    run.state === "RUN_STARTED" ? listAsleep(states, now()) : await listAsleepAtEnd(read, run, steps),
  );
  const findRelatedRun = (key: string | null | undefined): Promise<Run | null> | null =>
    key ? read.run(account, key) : null;
  const [origin, next] = await Promise.all([
    findRelatedRun(run.origin),
    findRelatedRun(run.continuedBy?.key),
  ]);
  return {
    waitState: {
      run,
      steps,
      delayed,
      lineage: { origin, next },
      waiters: waiters.slice(0, maxShown),
      messages: messages.filter((one) => one !== null),
    },
    more: states.length > maxShown || waiters.length > maxShown,
    kept,
  };
}

const listAsleep = (states: readonly MessageState[], now: number): MessageId[] =>
  states.filter((state) => isDelayed(state, now)).map(({ id }) => id);

/**
 * Returns the messages that were asleep when the run ended. Checks only the last 50 sleeps, because earlier
 * ones had already ended.
 */
async function listAsleepAtEnd(
  read: Store["read"],
  { account, endedAt }: Run,
  steps: RunWaitState["steps"],
): Promise<MessageId[]> {
  const sleeps = steps.filter(isSleep).slice(-maxShown);
  const views = await Promise.all(sleeps.map(({ messageId }) => read.message(account, messageId)));
  return views.flatMap((view) => (view && view.message.notBefore > (endedAt ?? 0) ? [view.message.id] : []));
}

function statusJson(
  waitState: RunWaitState,
  { context, more, kept }: { context: RouteContext } & Omit<RunStatusData, "waitState">,
): Record<string, unknown> {
  const { run } = waitState;
  const reasons = listShownRunReasons(waitState, context.now());
  const results = listDoneSteps(waitState);
  const last = results.at(-1);
  return omitMissing({
    workflowRunId: run.runId,
    workflowUrl: run.url,
    workflowState: run.state,
    workflowRunCreatedAt: run.createdAt,
    workflowRunCompletedAt: run.endedAt,
    text: formatRunStatus(waitState, reasons),
    labels: run.labels.length > 0 ? run.labels : null,
    flowControlKey: run.settings.flowControl?.key,
    stepsDone: results.length,
    lastStep: last?.head && {
      stepId: last.head.stepId,
      stepName: last.head.stepName,
      stepType: last.head.stepType,
      time: last.createdAt,
    },
    ...(reasons.length === 0 ? {} : { waitingOn: reasons, ...(more ? { more } : {}) }),
    kept: kept.length === 0 ? null : countByEvent(kept),
    ...(run.state === "RUN_SUCCESS" ? resultFields(run) : {}),
    failure: run.failure && failureJson(run.failure, waitState),
    ...toJson(lineageFields, waitState),
  });
}

function countByEvent(kept: readonly Notification[]): { eventId: string; kind: string; count: number }[] {
  const byEvent = Map.groupBy(kept, ({ kind, event }) => `${kind} ${event}`);
  return [...byEvent.values()].slice(0, maxShown).flatMap((all) => {
    const [first] = all;
    return first ? [{ eventId: first.event, kind: first.kind, count: all.length }] : [];
  });
}

function resultFields({ body, redaction }: Run): Record<string, unknown> {
  const shown = redactBody(body, redaction, sha256);
  const { text, base64 } = bodyFields(cutBody(shown));
  const truncated = shown.byteLength > logBodyBytes ? true : null;
  return { result: text, resultBase64: base64, resultBytes: body.byteLength, truncated };
}

/** Returns the beginning of a body, up to `logBodyBytes`. Does not split a UTF-8 character. */
function cutBody(body: Bytes): Bytes {
  let end = Math.min(body.byteLength, logBodyBytes);
  while (end > 0 && end < body.byteLength && ((body[end] ?? 0) & 0xc0) === 0x80) end--;
  return body.subarray(0, end);
}

function failureJson(
  failure: NonNullable<Run["failure"]>,
  { run, steps }: RunWaitState,
): Record<string, unknown> {
  const { messageId, dlqId, status, headers, callback } = failure;
  const step = steps.find((one) => one.messageId === messageId);
  const head = step?.head;
  const failedStep = findFailedStep(step && readRunPart(step.id), head, headers);
  return omitMissing({
    messageId,
    dlqId,
    error: formatRunFailure(failure, run.redaction),
    responseStatus: status,
    failureCallbackState: callback?.state,
    ...failedStep,
    stepId:
      step && parseStepId(step.id).kind !== "result" && head?.stepName === failedStep.stepName
        ? head?.stepId || head?.targetStep
        : null,
  });
}
