import { headerMap } from "../../core/sending/callback.ts";
import { defaults } from "../../core/values/limits.ts";
import type { Bytes, HeaderList, LogRow, Millis, Redaction } from "../../core/model/message.ts";
import { bothHidden, redactBody, redactHeaders } from "../../core/model/redaction.ts";
import { groupsOf } from "../../core/workflows/log/log.ts";
import { reasonIn } from "../../core/model/failureText.ts";
import type { NextItem, StepGroup } from "../../core/workflows/log/log.ts";
import type { RunEvent } from "../../core/workflows/log/events.ts";
import type { CallDetail, InvokeDetail, StepItem, WaitDetail } from "../../core/workflows/log/step.ts";
import type { Kin, KnownRun } from "../../core/workflows/log/view.ts";
import type { Run } from "../../core/model/run.ts";
import { bodyFields, hashOf, isCut, present } from "./messages.ts";
import { sha256 } from "../http/sha256.ts";

/** How a log is shown. `trim`: bytes of each body; null all of them, -1 no bodies. */
export type Shown = { now: Millis; trim: number | null };

type Fields = Record<string, unknown>;
/** What may be seen of the bodies and headers of one run. */
type Sight = { trim: number | null; redaction: Redaction | null };

/** A run with the log of its steps, as it is shown. */
export function runJson(known: KnownRun, { now, trim }: Shown): Fields {
  const { run } = known;
  const sight = { trim, redaction: run.redaction };
  return present({
    ...runFields(run),
    workflowRunCompletedAt: run.endedAt,
    workflowRunCallerIp: run.callerIp,
    ...bodyIn(sight, "workflowRunResponse", run.body.length === 0 ? null : run.body),
    invoker: run.invoker && invokerFields(run.invoker),
    failureFunction: failureJson(known, sight),
    dlqId: dlqIdOf(run),
    ...kinFields(known.kin),
    ...labelFields(run),
    flowControlKey: run.settings.flowControl?.key,
    steps: groupsOf(known, now).map((group) => groupJson(group, sight)),
  });
}

const runFields = ({ runId, url, state, createdAt }: Run): Fields => ({
  ...{ workflowRunId: runId, workflowUrl: url, workflowState: state, workflowRunCreatedAt: createdAt },
});

/** Where it can be resumed from, as long as the dead letter is there. */
const dlqIdOf = ({ failure }: Run): string | null => failure?.dlqId ?? null;

/** The runs before and after it, where it was resumed or restarted. */
export const kinFields = ({ origin, next }: Kin): Fields => ({
  ...(next && { resumedAs: { workflowRunId: next.runId, workflowRunCreatedAt: next.createdAt } }),
  ...(origin && { resumedFrom: { workflowRunId: origin.runId, workflowRunCreatedAt: origin.createdAt } }),
});

const labelFields = ({ labels }: Run): Fields => ({ label: labels[0], labels: labels.length > 0 ? labels : null });

const invokerFields = ({ runId, url, createdAt }: NonNullable<Run["invoker"]>): Fields => ({
  ...{ workflowRunId: runId, workflowUrl: url, workflowRunCreatedAt: createdAt },
});

const groupJson = (group: StepGroup, sight: Sight): Fields =>
  group.type === "next"
    ? { type: group.type, steps: group.steps.map((item) => nextJson(item, sight)) }
    : { type: group.type, steps: group.steps.map((item) => stepJson(item, sight)) };

const nextJson = ({ messageId, stepName, state, retries, retryDelay, errors, nextDueAt }: NextItem, sight: Sight): Fields =>
  present({ messageId, stepName, state, retries, retryDelay, errors: errorsJson(errors, sight), nextDeliveryTime: nextDueAt });

/** A step, as it is shown. */
function stepJson(item: StepItem, sight: Sight): Fields {
  const { stepId, stepName, stepType, callType, messageId, concurrent, state, createdAt, retries, retryDelay } = item;
  return present({
    ...{ stepId, stepName, stepType, callType, messageId },
    ...bodyIn(sightOfOut(item, sight), "out", item.out),
    ...{ concurrent, state, createdAt },
    ...{ retries, retryDelay, headers: item.headers && headersIn(sight, item.headers) },
    errors: errorsJson(item.errors, sight),
    nextDeliveryTime: item.nextDueAt,
    ...{ sleepFor: item.sleepFor, sleepUntil: item.sleepUntil },
    ...(item.wait && waitFields(item.wait, sightOfOut(item, sight))),
    ...(item.call && callFields(item.call, sight)),
    ...(item.invoke && invokeFields(item.invoke, sight)),
    ...(item.isCut ? { truncated: true } : {}),
  });
}

/**
 * What came of a call has all headers of its answer in it, and a call to a webhook all of the request, so each is hidden as a whole where any
 * header is, as a callback is.
 */
const sightOfOut = ({ call, stepType }: StepItem, sight: Sight): Sight =>
  (call || stepType === "WaitForWebhook") && sight.redaction?.headers ? { ...sight, redaction: { ...sight.redaction, body: true } } : sight;

function waitFields({ eventId, timeout, deadline, timedOut, event }: WaitDetail, sight: Sight): Fields {
  const { eventData, truncated } = event ? bodyIn(sight, "eventData", event) : {};
  return {
    ...{ waitEventId: eventId, waitTimeoutDuration: timeout, waitTimeoutDeadline: deadline, waitTimeout: timedOut },
    ...{ eventData, ...(truncated === undefined ? {} : { truncated }) },
  };
}

const callFields = ({ url, method, headers, body, response }: CallDetail, sight: Sight): Fields => ({
  ...{ callUrl: url, callMethod: method, callHeaders: headersIn(sight, headers), ...bodyIn(sight, "callBody", body) },
  ...(response && {
    callResponseStatus: response.status,
    ...bodyIn(sight, "callResponseBody", response.body),
    callResponseHeaders: headersIn(sight, response.headers),
  }),
});

function invokeFields({ runId, url, createdAt, payload, headers, redaction }: InvokeDetail, { trim, redaction: own }: Sight): Fields {
  const sight = { trim, redaction: bothHidden(own, redaction) };
  return {
    ...{ invokedWorkflowRunId: runId, invokedWorkflowUrl: url, invokedWorkflowCreatedAt: createdAt },
    ...bodyIn(sight, "invokedWorkflowRunBody", payload),
    invokedWorkflowRunHeaders: headers && headersIn(sight, headers),
  };
}

const errorsJson = (errors: readonly LogRow[], sight: Sight): Fields[] | null =>
  errors.length === 0 ? null : errors.map((row) => errorJson(row, sight));

const errorJson = (row: LogRow, sight: Sight): Fields =>
  present({
    ...{ error: errorText(row), ...answerBodyIn(sight, "body", row), status: row.status, time: row.time },
    headers: row.status === null ? null : headersIn(sight, row.headers),
  });

/** The body of a response of which the log keeps the beginning. */
const answerBodyIn = (sight: Sight, name: string, row: Pick<LogRow, "body" | "digest" | "cut">): Fields => ({
  ...bodyIn(sight, name, row.body, row.digest),
  ...(isCut(row, sight.redaction) ? { truncated: true } : {}),
});

/** What went wrong with an attempt. */
const errorText = ({ error, status }: LogRow): string | null =>
  error ?? (status === null ? null : `the destination answered with status ${status}`);

/** The failure callback of a run, and the failure that it was told of. */
function failureJson({ run, log }: KnownRun, sight: Sight): Fields | null {
  const { failure, settings } = run;
  if (!failure?.callback) return null;
  const { messageId, url, state, responseStatus, responseBody = "", responseHeaders, digest, cut } = failure.callback;
  const last = log.findLast((row) => row.messageId === failure.messageId && row.states.includes("FAILED"));
  const tries = log.filter((row) => row.messageId === messageId && row.states.includes("ERROR"));
  return present({
    ...{ messageId, url, state, dlqId: dlqIdOf(run) },
    ...{ failStatus: failure.status, ...(last ? answerBodyIn(sight, "failResponse", last) : {}) },
    failHeaders: failure.status === null ? null : headersIn(sight, failure.headers),
    errors: errorsJson(tries, sight),
    ...{ responseStatus, ...bodyIn(sight, "responseBody", responseBody === "" ? null : responseBody, digest) },
    ...(isCut({ digest, cut }, sight.redaction) ? { truncated: true } : {}),
    responseHeaders: responseHeaders && headersIn(sight, responseHeaders),
    maxRetries: settings.failureCallback?.retries ?? settings.retries ?? defaults.retries,
    nextDeliveryTime: state === "CALLBACK_INPROGRESS" ? tries.at(-1)?.nextDueAt : null,
  });
}

const headersIn = ({ redaction }: Sight, headers: HeaderList): Record<string, string[]> =>
  headerMap(redactHeaders(headers, redaction, sha256));

/**
 * A body as a field of this name, where it is a text, or as `<name>Base64` where it is none; hidden, cut or left out as it may be seen.
 * If it is cut here, `truncated` says so. `digest`: of a body that was cut before, the hash of all of it.
 */
function bodyIn({ redaction, trim }: Sight, name: string, body: string | Bytes | null, digest?: string): Fields {
  if (body === null || trim === -1) return {};
  if (redaction?.body) return { [name]: Buffer.from(redactBody(Buffer.from(body), redaction, hashOf(digest))).toString() };
  const truncated = trim !== null && Buffer.byteLength(body) > trim ? { truncated: true } : {};
  const { text = "", base64 } = typeof body === "string" ? { text: body } : bodyFields(body);
  if (base64 === undefined) return { [name]: trim === null ? text : cutText(text, trim), ...truncated };
  return { [`${name}Base64`]: trim === null ? base64 : Buffer.from(body).subarray(0, trim).toString("base64"), ...truncated };
}

/** The beginning of a text, of at most so many bytes as UTF-8. */
function cutText(text: string, bytes: number): string {
  if (text.length * 3 <= bytes) return text;
  // A character that is cut in two is left out.
  return new TextDecoder().decode(Buffer.from(text.slice(0, bytes)).subarray(0, bytes), { stream: true });
}

/** Something that happened in a run, as it is shown. What a step has to tell is told with the first event of it. */
export function runEventJson({ known: { run }, ...event }: RunEvent & { known: KnownRun }, trim: number | null): Fields {
  const sight = { trim, redaction: run.redaction };
  const { time, state, messageId, item, row } = event;
  return present({
    ...{ time, state, messageId, workflowRunId: run.runId, workflowUrl: run.url, workflowCreatedAt: run.createdAt },
    stepInfo: item && (event.isFirst ? stepJson({ ...item, errors: [] }, sight) : nameJson(item)),
    ...(row && attemptFields(row, state, { ...sight, dlqId: dlqIdOf(run) })),
    ...(state === "RUN_STARTED" && run.invoker ? invokerOf(run.invoker) : {}),
    ...(state === "RUN_SUCCESS" ? bodyIn(sight, "workflowRunResponse", run.body.length === 0 ? null : run.body) : {}),
    ...(state === "RUN_FAILED" ? { dlqId: dlqIdOf(run), error: run.failure && reasonIn(run.failure, run.redaction) } : {}),
    ...{ ...labelFields(run), callerIp: run.callerIp },
  });
}

const nameJson = ({ stepId, stepName, stepType, callType, concurrent, state }: StepItem): Fields =>
  present({ stepId, stepName, stepType, callType, concurrent, state });

const invokerOf = ({ runId, url, createdAt }: NonNullable<Run["invoker"]>): Fields => ({
  ...{ invokerWorkflowRunId: runId, invokerWorkflowUrl: url, invokerWorkflowCreatedAt: createdAt },
});

function attemptFields(row: LogRow, state: RunEvent["state"], { dlqId, ...sight }: Sight & { dlqId: string | null }): Fields {
  if (state === "RETRY") return { nextDeliveryTime: row.nextDueAt };
  if (state === "FAILED") return { error: errorText(row), dlqId: row.dlqId === dlqId ? dlqId : null };
  if (state !== "ERROR" && state !== "DELIVERED") return {};
  const { body, headers, truncated } = errorJson(row, sight);
  const answer = { responseStatus: row.status, responseBody: body, responseHeaders: headers, ...(truncated ? { truncated } : {}) };
  if (state === "DELIVERED") return row.headers.length > 0 || row.body.length > 0 ? answer : { responseStatus: row.status };
  return {
    error: errorText(row),
    nextDeliveryTime: row.nextDueAt,
    ...answer,
  };
}
