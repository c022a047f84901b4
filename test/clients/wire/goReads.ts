import { z } from "zod";

// The responses that Go's encoding/json accepts for the types of the Go clients. A member may be missing or
// null, unknown members are skipped, and a member of another type fails the whole call.

const text = z.string().nullish();
const whole = z.int().nullish();
const truth = z.boolean().nullish();
const lists = z.record(z.string(), z.array(z.string())).nullish();
/** A `[]byte` is base64 with padding. */
const bytes = z.base64().nullish();

const message = {
  messageId: text,
  endpointName: text,
  url: text,
  urlGroup: text,
  method: text,
  header: lists,
  body: text,
  bodyBase64: text,
  maxRetries: whole,
  notBefore: whole,
  createdAt: whole,
  callback: text,
  failureCallback: text,
  scheduleId: text,
  callerIP: text,
  queueName: text,
  api: text,
};
const deadLetter = z.object({
  ...message,
  dlqId: text,
  responseStatus: whole,
  responseHeader: lists,
  responseBody: text,
  responseBodyBase64: text,
});
const event = z.object({
  time: whole,
  messageId: text,
  state: text,
  error: text,
  nextDeliveryTime: whole,
  url: text,
  topicName: text,
  endpointName: text,
  api: text,
  queueName: text,
  scheduleId: text,
});
const sent = z.object({ messageId: text, deduplicated: truth, url: text });
const queue = z.object({
  name: text,
  parallelism: whole,
  createdAt: whole,
  updatedAt: whole,
  lag: whole,
  paused: truth,
});
const group = z.object({
  name: text,
  createdAt: whole,
  updatedAt: whole,
  endpoints: z.array(z.object({ url: text, name: text })).nullish(),
});
const schedule = z.object({
  scheduleId: text,
  createdAt: whole,
  cron: text,
  destination: text,
  key: text,
  method: text,
  header: lists,
  body: text,
  bodyBase64: text,
  retries: whole,
  delay: whole,
  callback: text,
  failureCallback: text,
  lastScheduleTime: whole,
  nextScheduleTime: whole,
  lastScheduleStates: z.record(z.string(), z.string()).nullish(),
  callerIP: text,
  isPaused: truth,
});
const waiter = z.object({
  url: text,
  headers: lists,
  deadline: whole,
  timeoutBody: bytes,
  timeoutUrl: text,
  timeoutHeaders: lists,
});
/** `error` is of an interface type, which only accepts null. */
const notified = z.object({ waiter: waiter.nullish(), messageId: text, error: z.null().optional() });

const step = z.object({
  stepId: whole,
  stepName: text,
  stepType: text,
  callType: text,
  messageId: text,
  headers: lists,
  targetStep: whole,
  out: text,
  concurrent: whole,
  state: text,
  createdAt: whole,
  sleepUntil: whole,
  sleepFor: whole,
  callUrl: text,
  callMethod: text,
  callBody: text,
  callHeaders: lists,
  callResponseStatus: whole,
  callResponseBody: text,
  callResponseHeaders: lists,
  waitEventId: text,
  waitTimeoutDuration: text,
  waitTimeoutDeadline: whole,
  waitTimeout: truth,
  invokedWorkflowRunId: text,
  invokedWorkflowUrl: text,
  invokedWorkflowCreatedAt: whole,
  invokedWorkflowRunBody: text,
  invokedWorkflowRunHeaders: lists,
});
const run = z.object({
  workflowRunId: text,
  workflowUrl: text,
  workflowState: text,
  workflowRunCreatedAt: whole,
  workflowRunCompletedAt: whole,
  workflowRunResponse: text,
  steps: z.array(z.object({ steps: z.array(step).nullish(), type: text })).nullish(),
  invoker: z.object({ workflowRunId: text, workflowUrl: text, workflowRunCreatedAt: whole }).nullish(),
  failureFunction: z
    .object({
      messageId: text,
      url: text,
      state: text,
      failHeaders: lists,
      failStatus: whole,
      failResponse: text,
      dlqId: text,
    })
    .nullish(),
});

/** The responses that the parsers of the Go clients accept, by their type. */
export const reads = {
  sent,
  queue,
  group,
  schedule,
  deadLetter,
  run,
  message: z.object(message),
  error: z.object({ error: z.string() }),
  sentToGroup: z.array(sent),
  batch: z.array(z.union([sent, z.array(sent)])),
  queues: z.array(queue),
  groups: z.array(group),
  schedules: z.array(schedule),
  waiters: z.array(waiter),
  notified: z.array(notified),
  deadLetters: z.object({ cursor: text, messages: z.array(deadLetter) }),
  events: z.object({ cursor: text, events: z.array(event) }),
  runs: z.object({ cursor: text, runs: z.array(run) }),
  count: z.record(z.string(), z.int()),
  cancelled: z.object({ cancelled: z.int() }),
  scheduleId: z.object({ scheduleId: z.string() }),
  keys: z.object({ current: z.string(), next: z.string() }),
};
