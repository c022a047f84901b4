import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import { logBodyBytes } from "../../../core/values/limits.ts";
import type { AccountId, Bytes, MessageId, MessageState } from "../../../core/model/message.ts";
import { redactBody } from "../../../core/model/redaction.ts";
import type { Notification, Run } from "../../../core/model/run.ts";
import { parseStepId, readRunPart } from "../../../core/model/stepId.ts";
import { findFailedStep, formatRunFailure } from "../../../core/model/failureText.ts";
import { isDelayed } from "../../../core/workflows/log/view.ts";
import type { RunWaitReason, RunWaitState } from "../../../core/workflows/log/whyWaiting.ts";
import { isSleep } from "../../../core/model/run.ts";
import { runWaitReasonNames, listRunWaitReasons, formatRunStatus, listDoneSteps } from "../../../core/workflows/log/whyWaiting.ts";
import type { Store } from "../../../store/store.ts";
import { bodyFields, omitMissing } from "../../views/messages.ts";
import { sha256 } from "../../http/sha256.ts";
import type { RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { checkSegment } from "../../settings/segment.ts";
import { lineageFields } from "../../views/runs.ts";
import { lineageSchema } from "../../views/runSchemas.ts";
import { waitReasonSchema } from "../../views/waitReasonSchema.ts";

const millis = (about: string) => z.int().describe(`${about}, in unix milliseconds.`);

const reasonSchema = z.object({
  reason: z
    .enum(runWaitReasonNames)
    .describe(
      "event, webhook: until it comes. run: until a run that it invoked has ended. call: until a third party has answered. sleep: until the time has come. " +
        "endpoint: until the endpoint has taken its message. nothing: the endpoint has taken everything, and asked for nothing more.",
    ),
  text: z.string().describe("The same in words."),
  stepId: z.int().optional(),
  stepName: z.string().optional(),
  since: millis("Since when").optional(),
  until: millis("Until when").optional(),
  eventId: z.string().optional(),
  workflowRunId: z.string().optional().describe("The run that it invoked."),
  workflowUrl: z.string().optional().describe("The URL of that run."),
  url: z.string().optional().describe("Where its message goes."),
  messageId: z.string().optional(),
  waitingOn: z.array(waitReasonSchema).optional().describe("Why its message has not arrived."),
});

const failureSchema = z.object({
  messageId: z.string().describe("The message that failed."),
  stepId: z.int().optional().describe("The step that failed, where the message was for it."),
  stepName: z.string().optional().describe("The step that failed: as the endpoint says, or else the one that it was called to run."),
  afterStep: z.string().optional().describe("Where neither tells: the last step before it, if there was one."),
  dlqId: z.string().optional().describe("Its dead letter, by which the run can be resumed, as long as that is there."),
  error: z.string().describe("Why it failed."),
  responseStatus: z.int().optional(),
  failureCallbackState: z.string().optional(),
});

const statusSchema = z.object({
  workflowRunId: z.string(),
  workflowUrl: z.string(),
  workflowState: z.enum(["RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED"]),
  workflowRunCreatedAt: millis("Created"),
  workflowRunCompletedAt: millis("Ended").optional(),
  text: z.string().describe("All of it in one sentence."),
  labels: z.array(z.string()).optional(),
  flowControlKey: z.string().optional(),
  stepsDone: z.int().describe("Steps that have a result, and do not sleep any more."),
  lastStep: z.object({ stepId: z.int(), stepName: z.string(), stepType: z.string(), time: millis("When its result came") }).optional(),
  waitingOn: z.array(reasonSchema).optional().describe("What a run that has not ended waits for: one entry for each step that goes on."),
  more: z.literal(true).optional().describe("It waits for more than is listed."),
  kept: z
    .array(z.object({ eventId: z.string(), kind: z.enum(["event", "webhook"]), count: z.int() }))
    .optional()
    .describe("Events and calls that came before the run asked for them."),
  result: z
    .string()
    .optional()
    .describe(`What it returned, cut to ${logBodyBytes / 1024} KiB.`),
  resultBase64: z.string().optional().describe("The same in base64, when it is not UTF-8."),
  resultBytes: z.int().optional().describe("How long it is."),
  truncated: z.literal(true).optional().describe("The result was cut."),
  failure: failureSchema.optional(),
  ...lineageSchema,
});

/** At most so many messages, and so many waiters, are shown. */
const maxShown = 50;

/** Why a run waits. */
export const runStatus = route({
  method: "GET",
  path: "/v2/workflows/runs/{workflowRunId}/status",
  tag: "Workflow runs",
  summary: "Read why a run waits",
  about: "How far a run is and what it waits for, or how it ended. Of several runs with this id, the newest.",
  params: z.object({ workflowRunId: z.string() }),
  answers: { 200: { about: "How the run stands.", schema: statusSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => {
    const runId = checkSegment("workflowRunId", params.workflowRunId);
    const { runs } = await context.store.read.runs({ account: account.id, filter: { runIds: [runId] }, cursor: null, count: 1 });
    const [run] = runs;
    if (!run) throw new Refusal("not-found", `workflowRunId: there is no run ${JSON.stringify(runId.slice(0, 200))}`);
    const { waitState, more, kept } = await readRunStatus(context, account.id, run);
    return { status: 200, body: statusJson(waitState, { context, more, kept }) };
  },
});

type RunStatusData = { waitState: RunWaitState; more: boolean; kept: readonly Notification[] };

/** The run is read last: what has ended meanwhile is not taken for something that waits for nothing. */
async function readRunStatus({ store: { read }, now }: RouteContext, account: AccountId, { id }: Run): Promise<RunStatusData> {
  const [states, waiters, kept] = await Promise.all([
    read.listRunMessages(account, id),
    read.listWaiters(account, id),
    read.listNotifications(account, id, { bodies: false }),
  ]);
  const shown = states.slice(0, maxShown);
  const messages = await Promise.all(shown.map((state) => read.waitState(account, state.id)));
  const steps = await read.history(account, id, { bodies: false });
  const run = await read.run(account, id);
  if (!run) throw new Refusal("not-found", "workflowRunId: the run is past its time");
  const delayed = new Set(run.state === "RUN_STARTED" ? listAsleep(states, now()) : await listAsleepAtEnd(read, run, steps));
  const findRelatedRun = (key: string | null | undefined): Promise<Run | null> | null => (key ? read.run(account, key) : null);
  const [origin, next] = await Promise.all([findRelatedRun(run.origin), findRelatedRun(run.continuedBy?.key)]);
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

/** Of the last steps only: what has slept before them has woken. */
async function listAsleepAtEnd(read: Store["read"], { account, endedAt }: Run, steps: RunWaitState["steps"]): Promise<MessageId[]> {
  const sleeps = steps.filter(isSleep).slice(-maxShown);
  const views = await Promise.all(sleeps.map(({ messageId }) => read.message(account, messageId)));
  return views.flatMap((view) => (view && view.message.notBefore > (endedAt ?? 0) ? [view.message.id] : []));
}

function statusJson(
  waitState: RunWaitState,
  { context, more, kept }: { context: RouteContext } & Omit<RunStatusData, "waitState">,
): Record<string, unknown> {
  const { run } = waitState;
  const reasons = listRunWaitReasons(waitState, context.now());
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
    ...(reasons.length === 0 ? {} : { waitingOn: reasons.map(reasonJson), ...(more ? { more } : {}) }),
    kept: kept.length === 0 ? null : countByEvent(kept),
    ...(run.state === "RUN_SUCCESS" ? resultFields(run) : {}),
    failure: run.failure && failureJson(run.failure, waitState),
    ...lineageFields(waitState.lineage),
  });
}

const reasonJson = ({ event, child, ...rest }: RunWaitReason): Record<string, unknown> => ({
  ...rest,
  ...(event === undefined ? {} : { eventId: event }),
  ...(child === undefined ? {} : { workflowRunId: child.runId, workflowUrl: child.url }),
});

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

/** No character of UTF-8 is cut in two. */
function cutBody(body: Bytes): Bytes {
  let end = Math.min(body.byteLength, logBodyBytes);
  while (end > 0 && end < body.byteLength && ((body[end] ?? 0) & 0xc0) === 0x80) end--;
  return body.subarray(0, end);
}

function failureJson(failure: NonNullable<Run["failure"]>, { run, steps }: RunWaitState): Record<string, unknown> {
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
      step && parseStepId(step.id).kind !== "result" && head?.stepName === failedStep.stepName ? head?.stepId || head?.targetStep : null,
  });
}
