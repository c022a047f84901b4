import { z } from "zod";

const millis = (about: string) => z.int().describe(`${about}, in unix milliseconds.`);
const headers = (about: string) => z.record(z.string(), z.array(z.string())).describe(`${about}: names to lists of values.`);

const truncated = z.literal(true).optional().describe("A body or a response in here was cut.");

/** What a state of a run can be. */
export const runStates = ["RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED"] as const;
/** What a state of a step can be. */
export const stepStates = ["STEP_PROGRESS", "STEP_SUCCESS", "STEP_RETRY", "STEP_FAILED", "STEP_CANCELED"] as const;
/** What can happen in a run. */
export const eventStates = [
  ...runStates,
  ...["CREATED", "ACTIVE", "RETRY", "ERROR", "DELIVERED", "FAILED", "CANCEL_REQUESTED", "CANCELLED"],
  ...["WAITER_ADDED", "INVOKED"],
] as const;

const failedAttempt = z.object({
  error: z.string().optional().describe("What went wrong."),
  body: z.string().optional().describe("Body of the response, cut to 16 KiB. As bodyBase64 where it is no text."),
  bodyBase64: z.string().optional(),
  headers: headers("Headers of the response").optional(),
  status: z.int().optional().describe("Absent when there was no response."),
  truncated,
  time: millis("When it failed"),
});

const attempts = {
  retries: z.int().describe("How often it is tried again at most."),
  retryDelay: z.string().optional().describe("The expression for the time between two attempts, where one was set."),
  errors: z.array(failedAttempt).optional().describe("Attempts that failed, oldest first; only the last ones of very many."),
  nextDeliveryTime: millis("When it is tried next").optional(),
};

const callFields = {
  callUrl: z.string().optional().describe("The third party that is called."),
  callMethod: z.string().optional(),
  callHeaders: headers("Headers of the request").optional(),
  callBody: z.string().optional().describe("As callBodyBase64 where it is no text."),
  callBodyBase64: z.string().optional(),
  callResponseStatus: z.int().optional().describe("0 when there was no response; callResponseBody says why."),
  callResponseBody: z.string().optional().describe("As callResponseBodyBase64 where it is no text."),
  callResponseBodyBase64: z.string().optional(),
  callResponseHeaders: headers("Headers of the response").optional(),
};

const invokedFields = {
  invokedWorkflowRunId: z.string().optional().describe("The run that it has invoked."),
  invokedWorkflowUrl: z.string().optional(),
  invokedWorkflowCreatedAt: millis("When that run was created").optional(),
  invokedWorkflowRunBody: z.string().optional().describe("What it was given. As invokedWorkflowRunBodyBase64 where it is no text."),
  invokedWorkflowRunBodyBase64: z.string().optional(),
  invokedWorkflowRunHeaders: headers("What it was given").optional(),
};

/** A step of a run, as it is shown. */
const stepSchema = z.object({
  stepId: z.int().optional().describe("Absent on the initial step."),
  stepName: z.string(),
  stepType: z.string().describe("Initial, Run, SleepFor, SleepUntil, Call, Wait, Notify, Invoke, CreateWebhook or WaitForWebhook."),
  callType: z
    .enum(["step", "toCallback", "fromCallback"])
    .describe("toCallback while a third party is called, fromCallback once it has answered."),
  messageId: z.string().optional().describe("The message that carries it."),
  out: z
    .string()
    .optional()
    .describe(
      "What it returned; of the initial step the payload; of Wait and WaitForWebhook the event in base64, as endpoints get it. As outBase64 where it is no text.",
    ),
  outBase64: z.string().optional(),
  concurrent: z.int().describe("How many steps go side by side with it, itself included."),
  state: z.enum(stepStates),
  createdAt: millis("When it was accepted"),
  ...attempts,
  headers: headers("What the endpoint is called with").optional(),
  sleepFor: z.union([z.string(), z.number()]).optional().describe("Seconds, or a duration such as 1d."),
  sleepUntil: z.union([z.string(), z.number()]).optional().describe("Unix seconds."),
  waitEventId: z.string().optional().describe("The event that it waits for."),
  waitTimeoutDuration: z.string().optional(),
  waitTimeoutDeadline: millis("When it gives up").optional(),
  waitTimeout: z.boolean().optional().describe("Whether it gave up. Absent while it waits."),
  eventData: z.string().optional().describe("The event that came, where it is a text; of WaitForWebhook the request, as JSON."),
  ...callFields,
  ...invokedFields,
  truncated: z
    .literal(true)
    .optional()
    .describe("A body of this step is cut (trimBody), or bodies and headers are left out because the run is too large for a page."),
});

const nextSchema = z.object({
  messageId: z.string(),
  stepName: z.string().optional().describe("Where it failed, if the endpoint has said so."),
  state: z.enum(stepStates),
  ...attempts,
});

const groupSchema = z.union([
  z.object({ type: z.enum(["sequential", "parallel"]), steps: z.array(stepSchema) }),
  z.object({ type: z.literal("next").describe("The endpoint is called for a step that is not known yet."), steps: z.array(nextSchema) }),
]);

const failureFunction = z.object({
  messageId: z.string(),
  url: z.string(),
  state: z.enum(["CALLBACK_INPROGRESS", "CALLBACK_SUCCESS", "CALLBACK_FAIL", "CALLBACK_CANCELED"]),
  dlqId: z.string().optional(),
  failStatus: z.int().optional().describe("The response that made the run fail. Absent when there was none."),
  failHeaders: headers("Its headers").optional(),
  failResponse: z.string().optional().describe("Its body, cut to 16 KiB. As failResponseBase64 where it is no text."),
  failResponseBase64: z.string().optional(),
  responseStatus: z.int().optional().describe("The last response of the failure callback."),
  responseHeaders: headers("Its headers").optional(),
  responseBody: z.string().optional(),
  truncated,
  maxRetries: z.int(),
  errors: attempts.errors,
  nextDeliveryTime: attempts.nextDeliveryTime,
});

const labels = { label: z.string().optional().describe("The first label."), labels: z.array(z.string()).optional() };

const runNameSchema = z.object({ workflowRunId: z.string(), workflowRunCreatedAt: millis("When it was created") });

/** The runs before and after a run, where it was resumed or restarted. */
export const lineageSchema = {
  resumedAs: runNameSchema.optional().describe("It was resumed or restarted: the run that goes on with it."),
  resumedFrom: runNameSchema.optional().describe("The run that it goes on with, or begins again."),
};

/** A run with the log of its steps, as it is shown. */
export const runSchema = z.object({
  workflowRunId: z.string(),
  workflowUrl: z.string(),
  workflowState: z.enum(runStates),
  workflowRunCreatedAt: millis("When it was created"),
  workflowRunCompletedAt: millis("When it ended").optional(),
  workflowRunCallerIp: z.string().optional().describe("Who triggered it."),
  workflowRunResponse: z.string().optional().describe("What it returned. As workflowRunResponseBase64 where it is no text."),
  workflowRunResponseBase64: z.string().optional(),
  truncated,
  invoker: z
    .object({ workflowRunId: z.string(), workflowUrl: z.string(), workflowRunCreatedAt: millis("When it was created") })
    .optional()
    .describe("The run that has invoked it."),
  failureFunction: failureFunction.optional().describe("The failure callback of a run that has failed."),
  dlqId: z.string().optional().describe("Its dead letter, as long as that is there."),
  ...lineageSchema,
  ...labels,
  flowControlKey: z.string().optional(),
  steps: z.array(groupSchema).describe("What it has done, in the order in which it was begun."),
});

/** Something that happened in a run, as it is shown. */
export const runEventSchema = z.object({
  time: millis("When it happened"),
  state: z.enum(eventStates),
  messageId: z.string().optional(),
  workflowRunId: z.string(),
  workflowUrl: z.string(),
  workflowCreatedAt: millis("When the run was created"),
  stepInfo: stepSchema
    .partial()
    .optional()
    .describe("The step that it happened to. All of it with the first event of a step, and its name with the others."),
  nextDeliveryTime: attempts.nextDeliveryTime,
  error: z.string().optional(),
  responseStatus: z.int().optional(),
  responseBody: z.string().optional(),
  responseHeaders: headers("Headers of the response").optional(),
  truncated,
  invokerWorkflowRunId: z.string().optional().describe("With RUN_STARTED: the run that has invoked it."),
  invokerWorkflowUrl: z.string().optional(),
  invokerWorkflowCreatedAt: z.int().optional(),
  workflowRunResponse: z.string().optional().describe("With RUN_SUCCESS: what it returned."),
  workflowRunResponseBase64: z.string().optional(),
  dlqId: z.string().optional(),
  ...labels,
  callerIp: z.string().optional(),
});
