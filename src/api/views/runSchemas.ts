import { z } from "zod";
import { explanationField, settledByField } from "../fields/attempt.ts";
import { messageEventStates } from "../fields/logEvent.ts";
import { aboutRunStates, referenceFields, runEntryFields, runStates } from "../fields/run.ts";
import { toSchema } from "./fieldSchema.ts";

const { explanation, settledBy } = toSchema({
  explanation: explanationField(() => null),
  settledBy: settledByField(() => false),
}).shape;

const millis = (about: string) => z.int().describe(`${about}, in Unix milliseconds.`);
const headers = (about: string) =>
  z.record(z.string(), z.array(z.string())).describe(`${about}: names to lists of values.`);

const truncated = z.literal(true).optional().describe("A body or a response in this object is cut.");

/** The states of a step. */
export const stepStates = [
  "STEP_PROGRESS",
  "STEP_SUCCESS",
  "STEP_RETRY",
  "STEP_FAILED",
  "STEP_CANCELED",
] as const;
/** The kinds of events of a run. */
export const eventStates = [...runStates, ...messageEventStates, "WAITER_ADDED", "INVOKED"] as const;

const aboutStepStates =
  "STEP_PROGRESS: not finished. STEP_SUCCESS: has a result. STEP_RETRY: will be retried. STEP_FAILED: " +
  "failed for good. STEP_CANCELED: cancelled.";
const aboutEventStates =
  `${aboutRunStates} CREATED: a message was accepted. ACTIVE: its delivery started. ERROR: an attempt ` +
  "failed. RETRY: another attempt is planned. DELIVERED: it was delivered. FAILED: it failed for good. " +
  "CANCEL_REQUESTED: its cancellation was requested while it was in flight. CANCELLED: it was cancelled. " +
  "WAITER_ADDED: a step began to wait for an event. INVOKED: a step invoked another run.";

const failedAttempt = z.object({
  error: z.string().optional().describe("Why the attempt failed."),
  explanation,
  body: z.string().optional().describe("The body of the response as text, cut to 16 KiB."),
  bodyBase64: z.string().optional().describe("The body in base64, if it is not UTF-8."),
  headers: headers("Headers of the response").optional(),
  status: z
    .int()
    .min(200)
    .max(999)
    .optional()
    .describe("The HTTP status of the response. Absent if there was no response."),
  truncated,
  time: millis("When the attempt failed"),
});

const attempts = {
  retries: z.int().min(0).describe("The maximum number of retries."),
  retryDelay: z
    .string()
    .optional()
    .describe("The expression for the time between two attempts, in milliseconds, if one was set."),
  errors: z
    .array(failedAttempt)
    .optional()
    .describe("The failed attempts, oldest first. If there are very many, only the latest ones."),
  nextDeliveryTime: millis("When the next attempt is due").optional(),
};

const callFields = {
  callUrl: z.string().optional().describe("The URL of the third party."),
  callMethod: z.string().optional().describe("The HTTP method of the request."),
  callHeaders: headers("Headers of the request").optional(),
  callBody: z.string().optional().describe("The body of the request, if it is UTF-8."),
  callBodyBase64: z.string().optional().describe("The body of the request in base64, if it is not UTF-8."),
  callResponseStatus: z
    .int()
    .optional()
    .describe(
      "The HTTP status of the response. -1 if there was no response; callResponseBody gives the reason.",
    ),
  callResponseBody: z.string().optional().describe("The body of the response, if it is UTF-8."),
  callResponseBodyBase64: z
    .string()
    .optional()
    .describe("The body of the response in base64, if it is not UTF-8."),
  callResponseHeaders: headers("Headers of the response").optional(),
};

const invokedFields = {
  invokedWorkflowRunId: z.string().optional().describe("The id of the run that the step invoked."),
  invokedWorkflowUrl: z.string().optional().describe("The URL of the invoked run's workflow."),
  invokedWorkflowCreatedAt: millis("When the invoked run was created").optional(),
  invokedWorkflowRunBody: z.string().optional().describe("The payload of the invoked run, if it is UTF-8."),
  invokedWorkflowRunBodyBase64: z.string().optional().describe("The payload in base64, if it is not UTF-8."),
  invokedWorkflowRunHeaders: headers("Headers of the invoked run").optional(),
};

/** A step of a run, as the API shows it. */
const stepSchema = z.object({
  stepId: z.int().min(0).optional().describe("The number of the step. Absent for the initial step."),
  stepName: z.string().describe("The name of the step."),
  stepType: z
    .string()
    .describe(
      "The type of the step: Initial, Run, SleepFor, SleepUntil, Call, Wait, Notify, Invoke, " +
        "CreateWebhook or WaitForWebhook.",
    ),
  callType: z
    .enum(["step", "toCallback", "fromCallback"])
    .describe("step, or for a call: toCallback until the third party responds, then fromCallback."),
  messageId: z.string().optional().describe("The id of the message that carries the step."),
  out: z
    .string()
    .optional()
    .describe(
      "The result of the step, if it is UTF-8. For the initial step, the payload of the run. For Wait and " +
        "WaitForWebhook, the event in base64, as the endpoint receives it.",
    ),
  outBase64: z.string().optional().describe("The result in base64, if it is not UTF-8."),
  concurrent: z.int().min(0).describe("The number of steps that run in parallel, including this one."),
  state: z.enum(stepStates).describe(aboutStepStates),
  createdAt: millis("When the step was accepted"),
  endedAt: z
    .int()
    .optional()
    .describe(
      "When the step ended, in Unix milliseconds: when its result was accepted, when its sleep was over, " +
        "or when the run ended before the step did. Absent before that.",
    ),
  ...attempts,
  headers: headers("Headers of the call to the endpoint").optional(),
  sleepFor: z
    .union([z.string(), z.number()])
    .optional()
    .describe("How long the step sleeps: seconds, or a duration such as 1d."),
  sleepUntil: z.union([z.string(), z.number()]).optional().describe("When the sleep ends, in Unix seconds."),
  waitEventId: z.string().optional().describe("The id of the event that the step waits for."),
  waitTimeoutDuration: z.string().optional().describe("The timeout of the wait, as a duration such as 7d."),
  waitTimeoutDeadline: millis("When the wait times out").optional(),
  waitTimeout: z.boolean().optional().describe("Whether the wait timed out. Absent while the step waits."),
  eventData: z
    .string()
    .optional()
    .describe("The event, if it is UTF-8. For WaitForWebhook, the request as JSON."),
  ...callFields,
  ...invokedFields,
  truncated: z
    .literal(true)
    .optional()
    .describe(
      "A body of this step is cut (trimBody), or bodies and headers are omitted because the run is too " +
        "large for a page.",
    ),
});

const nextSchema = z.object({
  messageId: z.string().describe("The id of the message that calls the endpoint."),
  stepName: z.string().optional().describe("The name of the step that failed, if the endpoint reported it."),
  state: z.enum(stepStates).describe(aboutStepStates),
  ...attempts,
});

const groupSchema = z.union([
  z.object({
    type: z
      .enum(["sequential", "parallel"])
      .describe("sequential: one step. parallel: steps that run at the same time."),
    steps: z.array(stepSchema).describe("The steps of the group."),
  }),
  z.object({
    type: z.literal("next").describe("The endpoint is called for a step that is not known yet."),
    steps: z.array(nextSchema).describe("The calls to the endpoint."),
  }),
]);

const failureFunction = z.object({
  messageId: z.string().describe("The id of the failure callback's message."),
  url: z.string().describe("The URL of the failure callback."),
  state: z
    .enum(["CALLBACK_INPROGRESS", "CALLBACK_SUCCESS", "CALLBACK_FAIL", "CALLBACK_CANCELED"])
    .describe(
      "CALLBACK_INPROGRESS: being delivered. CALLBACK_SUCCESS: delivered. CALLBACK_FAIL: failed for good. " +
        "CALLBACK_CANCELED: cancelled.",
    ),
  dlqId: z
    .string()
    .optional()
    .describe("The id of the run in the dead letter queue, as long as it is there."),
  failStatus: z
    .int()
    .min(200)
    .max(999)
    .optional()
    .describe("The HTTP status of the response that made the run fail. Absent if there was no response."),
  failHeaders: headers("Headers of the response that made the run fail").optional(),
  failResponse: z
    .string()
    .optional()
    .describe("The body of the response that made the run fail, if it is UTF-8, cut to 16 KiB."),
  failResponseBase64: z.string().optional().describe("The body in base64, if it is not UTF-8."),
  responseStatus: z
    .int()
    .min(200)
    .max(999)
    .optional()
    .describe("The HTTP status of the last response to the failure callback."),
  responseHeaders: headers("Headers of the last response").optional(),
  responseBody: z.string().optional().describe("The body of the last response."),
  truncated,
  maxRetries: z.int().min(0).describe("The maximum number of retries of the failure callback."),
  errors: attempts.errors,
  nextDeliveryTime: attempts.nextDeliveryTime,
});

/** A run in a list, as the API shows it. */
export const runEntrySchema = toSchema(runEntryFields);
const {
  error: _error,
  historyEntries: _entries,
  waitingSteps: _waiting,
  ...runFields
} = runEntrySchema.shape;
const { label, labels } = runFields;

/** A run with the log of its steps, as the API shows it. */
export const runSchema = z.object({
  ...runFields,
  workflowRunResponse: z.string().optional().describe("The result of the run, if it is UTF-8."),
  workflowRunResponseBase64: z.string().optional().describe("The result in base64, if it is not UTF-8."),
  truncated,
  invoked: z
    .array(toSchema({ ...referenceFields, workflowState: runEntryFields.workflowState }))
    .optional()
    .describe("The runs that steps of this run invoked: at most 200, as long as they are kept."),
  failureFunction: failureFunction
    .optional()
    .describe("The failure callback. Present if the run has failed and has one."),
  steps: z.array(groupSchema).describe("The steps of the run in groups, in the order in which they began."),
});

/** An event of a run, as the API shows it. */
export const runEventSchema = z.object({
  time: millis("When the event happened"),
  state: z.enum(eventStates).describe(aboutEventStates),
  messageId: z.string().optional().describe("The id of the message that the event is about."),
  workflowRunId: z.string().describe("The id of the run."),
  workflowUrl: z.string().describe("The URL of the workflow."),
  workflowCreatedAt: millis("When the run was created"),
  stepInfo: stepSchema
    .partial()
    .optional()
    .describe(
      "The step that the event belongs to. The first event of a step has all its fields; later events " +
        "have only its name, type and state.",
    ),
  nextDeliveryTime: attempts.nextDeliveryTime,
  error: z.string().optional().describe("Why the attempt, the message or the run failed."),
  responseStatus: z.int().min(200).max(999).optional().describe("The HTTP status of the response."),
  settledBy,
  responseBody: z.string().optional().describe("The body of the response, cut to 16 KiB."),
  responseHeaders: headers("Headers of the response").optional(),
  truncated,
  invokerWorkflowRunId: z
    .string()
    .optional()
    .describe("For RUN_STARTED, the id of the run that invoked this one."),
  invokerWorkflowUrl: z
    .string()
    .optional()
    .describe("For RUN_STARTED, the URL of the invoking run's workflow."),
  invokerWorkflowCreatedAt: z
    .int()
    .optional()
    .describe("For RUN_STARTED, when the invoking run was created, in Unix milliseconds."),
  workflowRunResponse: z
    .string()
    .optional()
    .describe("For RUN_SUCCESS, the result of the run, if it is UTF-8."),
  workflowRunResponseBase64: z.string().optional().describe("The result in base64, if it is not UTF-8."),
  dlqId: z
    .string()
    .optional()
    .describe(
      "For RUN_FAILED and FAILED, the id of the run in the dead letter queue, as long as it is there.",
    ),
  ...{ label, labels },
  callerIp: z
    .string()
    .optional()
    .describe("The IP address of the client that started the run, if it is known."),
});
