import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import { logBodyBytes } from "../../../core/values/limits.ts";
import type { AccountId, Bytes, MessageId, MessageState } from "../../../core/model/message.ts";
import { redactBody } from "../../../core/model/redaction.ts";
import type { Notification, Run } from "../../../core/model/run.ts";
import { parseStepId, readRunPart } from "../../../core/model/stepId.ts";
import { failedStepOf, reasonIn } from "../../../core/model/failureText.ts";
import { isPutOff } from "../../../core/workflows/log/view.ts";
import type { RunReason, RunStanding } from "../../../core/workflows/log/whyWaiting.ts";
import { isSleep } from "../../../core/model/run.ts";
import { runReasonNames, runReasonsOf, runText, stepsDone } from "../../../core/workflows/log/whyWaiting.ts";
import type { Store } from "../../../store/store.ts";
import { bodyFields, present } from "../../views/messages.ts";
import { sha256 } from "../../http/sha256.ts";
import type { Parts } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { checkSegment } from "../../settings/segment.ts";
import { kinFields } from "../../views/runs.ts";
import { kin } from "../../views/runShapes.ts";
import { waitingOn } from "../../views/waitingShape.ts";

const millis = (about: string) => z.int().describe(`${about}, in unix milliseconds.`);

const reason = z.object({
  reason: z
    .enum(runReasonNames)
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
  waitingOn: z.array(waitingOn).optional().describe("Why its message has not arrived."),
});

const failure = z.object({
  messageId: z.string().describe("The message that failed."),
  stepId: z.int().optional().describe("The step that failed, where the message was for it."),
  stepName: z.string().optional().describe("The step that failed: as the endpoint says, or else the one that it was called to run."),
  afterStep: z.string().optional().describe("Where neither tells: the last step before it, if there was one."),
  dlqId: z.string().optional().describe("Its dead letter, by which the run can be resumed, as long as that is there."),
  error: z.string().describe("Why it failed."),
  responseStatus: z.int().optional(),
  failureCallbackState: z.string().optional(),
});

const status = z.object({
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
  waitingOn: z.array(reason).optional().describe("What a run that has not ended waits for: one entry for each step that goes on."),
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
  failure: failure.optional(),
  ...kin,
});

/** At most so many messages, and so many waiters, are shown. */
const mostShown = 50;

/** Why a run waits. */
export const runStatus = route({
  method: "GET",
  path: "/v2/workflows/runs/{workflowRunId}/status",
  tag: "Workflow runs",
  summary: "Read why a run waits",
  about: "How far a run is and what it waits for, or how it ended. Of several runs with this id, the newest.",
  params: z.object({ workflowRunId: z.string() }),
  answers: { 200: { about: "How the run stands.", schema: status } },
  refusals: ["not-found"],
  handle: async ({ account, params, parts }) => {
    const runId = checkSegment("workflowRunId", params.workflowRunId);
    const { runs } = await parts.store.read.runs({ account: account.id, filter: { runIds: [runId] }, cursor: null, count: 1 });
    const [run] = runs;
    if (!run) throw new Refusal("not-found", `workflowRunId: there is no run ${JSON.stringify(runId.slice(0, 200))}`);
    const { standing, more, kept } = await standingOf(parts, account.id, run);
    return { status: 200, body: statusJson(standing, { parts, more, kept }) };
  },
});

type Standing = { standing: RunStanding; more: boolean; kept: readonly Notification[] };

/** The run is read last: what has ended meanwhile is not taken for something that waits for nothing. */
async function standingOf({ store: { read }, now }: Parts, account: AccountId, { id }: Run): Promise<Standing> {
  const [states, waiters, kept] = await Promise.all([
    read.messagesOfRun(account, id),
    read.waitersOf(account, id),
    read.notificationsOf(account, id, { bodies: false }),
  ]);
  const shown = states.slice(0, mostShown);
  const messages = await Promise.all(shown.map((state) => read.standing(account, state.id)));
  const steps = await read.history(account, id, { bodies: false });
  const run = await read.run(account, id);
  if (!run) throw new Refusal("not-found", "workflowRunId: the run is past its time");
  const asleep = new Set(run.state === "RUN_STARTED" ? putOff(states, now()) : await putOffAtEnd(read, run, steps));
  const kinAt = (key: string | null | undefined): Promise<Run | null> | null => (key ? read.run(account, key) : null);
  const [origin, next] = await Promise.all([kinAt(run.origin), kinAt(run.continuedBy?.key)]);
  return {
    standing: {
      ...{ run, steps, asleep, kin: { origin, next } },
      waiters: waiters.slice(0, mostShown),
      messages: messages.filter((one) => one !== null),
    },
    more: states.length > mostShown || waiters.length > mostShown,
    kept,
  };
}

const putOff = (states: readonly MessageState[], now: number): MessageId[] =>
  states.filter((state) => isPutOff(state, now)).map(({ id }) => id);

/** Of the last steps only: what has slept before them has woken. */
async function putOffAtEnd(read: Store["read"], { account, endedAt }: Run, steps: RunStanding["steps"]): Promise<MessageId[]> {
  const sleeps = steps.filter(isSleep).slice(-mostShown);
  const views = await Promise.all(sleeps.map(({ messageId }) => read.message(account, messageId)));
  return views.flatMap((view) => (view && view.envelope.notBefore > (endedAt ?? 0) ? [view.envelope.id] : []));
}

function statusJson(standing: RunStanding, { parts, more, kept }: { parts: Parts } & Omit<Standing, "standing">): Record<string, unknown> {
  const { run } = standing;
  const reasons = runReasonsOf(standing, parts.now());
  const results = stepsDone(standing);
  const last = results.at(-1);
  return present({
    ...{ workflowRunId: run.runId, workflowUrl: run.url, workflowState: run.state },
    ...{ workflowRunCreatedAt: run.createdAt, workflowRunCompletedAt: run.endedAt, text: runText(standing, reasons) },
    ...{ labels: run.labels.length > 0 ? run.labels : null, flowControlKey: run.settings.flowControl?.key, stepsDone: results.length },
    lastStep: last?.head && {
      ...{ stepId: last.head.stepId, stepName: last.head.stepName, stepType: last.head.stepType, time: last.createdAt },
    },
    ...(reasons.length === 0 ? {} : { waitingOn: reasons.map(reasonJson), ...(more ? { more } : {}) }),
    kept: kept.length === 0 ? null : countsOf(kept),
    ...(run.state === "RUN_SUCCESS" ? resultFields(run) : {}),
    failure: run.failure && failureJson(run.failure, standing),
    ...kinFields(standing.kin),
  });
}

const reasonJson = ({ event, child, ...rest }: RunReason): Record<string, unknown> => ({
  ...rest,
  ...(event === undefined ? {} : { eventId: event }),
  ...(child === undefined ? {} : { workflowRunId: child.runId, workflowUrl: child.url }),
});

function countsOf(kept: readonly Notification[]): { eventId: string; kind: string; count: number }[] {
  const byEvent = Map.groupBy(kept, ({ kind, event }) => `${kind} ${event}`);
  return [...byEvent.values()].slice(0, mostShown).flatMap((all) => {
    const [first] = all;
    return first ? [{ eventId: first.event, kind: first.kind, count: all.length }] : [];
  });
}

function resultFields({ body, redaction }: Run): Record<string, unknown> {
  const shown = redactBody(body, redaction, sha256);
  const { text, base64 } = bodyFields(cut(shown));
  const truncated = shown.byteLength > logBodyBytes ? true : null;
  return { result: text, resultBase64: base64, resultBytes: body.byteLength, truncated };
}

/** No character of UTF-8 is cut in two. */
function cut(body: Bytes): Bytes {
  let end = Math.min(body.byteLength, logBodyBytes);
  while (end > 0 && end < body.byteLength && ((body[end] ?? 0) & 0xc0) === 0x80) end--;
  return body.subarray(0, end);
}

function failureJson(failure: NonNullable<Run["failure"]>, { run, steps }: RunStanding): Record<string, unknown> {
  const { messageId, dlqId, status, headers, callback } = failure;
  const step = steps.find((one) => one.messageId === messageId);
  const head = step?.head;
  const failed = failedStepOf(step && readRunPart(step.id), head, headers);
  return present({
    ...{
      messageId,
      dlqId,
      error: reasonIn(failure, run.redaction),
      responseStatus: status,
      failureCallbackState: callback?.state,
    },
    ...{
      ...failed,
      stepId:
        step && parseStepId(step.id).kind !== "result" && head?.stepName === failed.stepName ? head?.stepId || head?.targetStep : null,
    },
  });
}
