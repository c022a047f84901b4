import type { EndpointCall, RunWaitReason, RunWaitState } from "../../engine/core/explain/whyRunWaits.ts";
import { listDoneSteps, listRunWaitReasons, readCall } from "../../engine/core/explain/whyRunWaits.ts";
import {
  findFailedStep,
  formatRunFailure,
  lacksFailureFunction,
} from "../../engine/core/model/failureText.ts";
import type { Run, Step } from "../../engine/core/model/run.ts";
import { readRunPart } from "../../engine/core/model/stepId.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { parseUrl } from "../../engine/core/values/url.ts";
import { waitReasonJson } from "./waitReasons.ts";

// The sentences for what a run waits for. `engine/core/explain/whyRunWaits.ts` finds the reasons.

/** A reason as the API shows it. */
export type ShownRunReason = { reason: RunWaitReason["reason"]; text: string; [fact: string]: unknown };

/** Returns why a run has not ended, as the API shows it. See `listRunWaitReasons`. */
export const listShownRunReasons = (waitState: RunWaitState, now: Millis): ShownRunReason[] =>
  listRunWaitReasons(waitState, now).map(runWaitReasonJson);

function runWaitReasonJson(waiting: RunWaitReason): ShownRunReason {
  const { stepId, stepName, since } = waiting;
  const head = {
    ...(stepId === undefined ? {} : { stepId }),
    ...(stepName === undefined ? {} : { stepName }),
    ...(since === undefined ? {} : { since }),
  };
  const { reason } = waiting;
  const text = formatReason(waiting);
  switch (waiting.reason) {
    case "nothing":
      return { reason, text, url: waiting.url, ...head };
    case "call":
    case "sleep":
    case "endpoint": {
      const { messageId, url } = waiting;
      const waitingOn = waiting.waitingOn.map(waitReasonJson);
      return {
        ...{ reason, text, ...head, messageId, url, waitingOn },
        ...(waiting.reason === "sleep" ? { until: waiting.until } : {}),
      };
    }
    case "run": {
      const { until, child } = waiting;
      const end = until === undefined ? {} : { until };
      return { reason, text, ...head, ...end, workflowRunId: child.runId, workflowUrl: child.url };
    }
    case "event":
    case "webhook": {
      const { until, event } = waiting;
      return { reason, text, ...head, ...(until === undefined ? {} : { until }), eventId: event };
    }
  }
}

function formatReason(waiting: RunWaitReason): string {
  switch (waiting.reason) {
    case "nothing": {
      const step = waiting.since === undefined ? "a step" : `a step since ${iso(waiting.since)}`;
      return (
        `nothing is in flight: ${waiting.url} accepted every message, ` +
        `but neither posted ${step} nor finished the run`
      );
    }
    case "call":
      return `${formatStep(waiting)} calls ${readHost(waiting.url)}: ${formatWaitingOn(waiting)}`;
    case "sleep":
      return `${formatStep(waiting)} sleeps until ${iso(waiting.until)}`;
    case "endpoint":
      return `${formatCall(waiting.call)}: ${formatWaitingOn(waiting)}`;
    case "run": {
      const { since, child } = waiting;
      const target = `the run ${JSON.stringify(child.runId)} of ${readHost(child.url)}`;
      return `${formatStep(waiting)} waits for the end of ${target} since ${iso(since)}`;
    }
    case "event":
    case "webhook": {
      const { reason, event, since, until } = waiting;
      const what = reason === "webhook" ? "a call to the webhook" : "the event";
      const subject = `${what} ${JSON.stringify(event)}`;
      const end = until === undefined ? "" : `, until ${iso(until)}`;
      return `${formatStep(waiting)} waits for ${subject} since ${iso(since)}${end}`;
    }
  }
}

const formatWaitingOn = ({ waitingOn }: Extract<RunWaitReason, { waitingOn: unknown }>): string =>
  waitingOn.map((one) => waitReasonJson(one).text).join("; ");

/** Returns the purpose of a call to the endpoint. */
function formatCall({ purpose, step, isFollowed }: EndpointCall, verb: "is" | "was" = "is"): string {
  const name = formatStep(step ?? {});
  if (purpose === "begin")
    return isFollowed
      ? "the first call of the endpoint has not ended yet"
      : `the endpoint ${verb} called for the first time`;
  if (purpose === "run-step") return `the endpoint ${verb} called to run ${name}`;
  if (purpose === "send-response") return `the endpoint ${verb} sent the response to the call of ${name}`;
  return isFollowed
    ? `the call of the endpoint to continue after ${name} has not ended yet`
    : `the endpoint ${verb} called to continue after ${name}`;
}

const formatStep = ({ stepId, stepName }: { stepId?: number; stepName?: string }): string =>
  stepId === undefined ? "a step" : `step ${stepId} ${JSON.stringify(stepName)}`;

/** Returns the state of a run and its reasons to wait in one sentence. */
export function formatRunStatus(
  { run, steps, delayed, lineage }: Omit<RunWaitState, "waiters" | "messages">,
  reasons: readonly Pick<ShownRunReason, "text">[],
): string {
  const done = listDoneSteps({ steps, delayed }).length;
  const origin = lineage.origin ? `resumes ${lineage.origin.runId}, ` : "";
  const progress = `${origin}${done === 0 ? "no step" : done === 1 ? "1 step" : `${done} steps`} done`;
  const [first, ...others] = reasons;
  if (first) {
    const more = others.length > 0 ? `; and ${others.length} more` : "";
    return `running since ${iso(run.createdAt)}, ${progress}; ${first.text}${more}`;
  }
  const when = run.endedAt === null ? "" : ` at ${iso(run.endedAt)}`;
  if (run.state === "RUN_FAILED") return `failed${when}, ${progress}${formatFailure(run, steps)}`;
  return `${run.state === "RUN_CANCELED" ? "was cancelled" : "ended"}${when}, ${progress}`;
}

function formatFailure({ failure, continuedBy, redaction }: Run, steps: readonly Step[]): string {
  if (!failure) return ", for an unknown reason";
  const step = steps.find(({ messageId }) => messageId === failure.messageId);
  const { stepName } = findFailedStep(step && readRunPart(step.id), step?.head, failure.headers);
  const called = formatCall(readCall(step), "was");
  const where = stepName === null ? `when ${called}` : `at step ${JSON.stringify(stepName)}`;
  const callback =
    failure.callback && !lacksFailureFunction(failure.callback.responseHeaders ?? [])
      ? `; its failure callback is in state ${failure.callback.state}`
      : "";
  const next = continuedBy ? `; resumed as ${continuedBy.runId}` : "";
  return `, ${where}: ${formatRunFailure(failure, redaction)}${callback}${next}`;
}

const readHost = (url: string): string => parseUrl(url)?.host ?? "?";
const iso = (time: Millis): string => new Date(time).toISOString();
