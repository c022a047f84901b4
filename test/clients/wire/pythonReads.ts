import { z } from "zod";

// The responses that the parsers of the Python client accept. A parser fails if a member that it indexes is
// missing. Members that it reads with a default may be missing.

/** A string. */
export const text = z.string();
/** A whole number. */
export const whole = z.int();
const lists = z.record(text, z.array(text));

/** The response to a publish. */
export const sent = z.object({ messageId: text, deduplicated: z.boolean().optional() });
/** The response to a publish to a URL group. */
export const sentToGroup = z.array(sent.extend({ url: text }));
/** The response to a batch. */
export const sentInBatch = z.array(z.union([sent, sentToGroup]));

/** The flow control of a message. */
export const flowControl = { flowControlKey: text, parallelism: whole, rate: whole, period: whole };
/** A message. */
export const message = z.object({
  messageId: text,
  url: text,
  method: text,
  maxRetries: whole,
  notBefore: whole,
  createdAt: whole,
  header: lists.optional(),
  callbackHeader: lists.optional(),
  failureCallbackHeader: lists.optional(),
  body: text.optional(),
  topicName: text.optional(),
  endpointName: text.optional(),
  queueName: text.optional(),
  scheduleId: text.optional(),
  callback: text.optional(),
  failureCallback: text.optional(),
  callerIP: text.optional(),
  label: text.optional(),
});
/** A dead letter without its id. */
export const deadLetter = message.extend({
  responseStatus: whole,
  responseHeader: lists.optional(),
  responseBody: text.optional(),
});
/** A page of dead letters. */
export const deadLetters = z.object({
  cursor: text.optional(),
  messages: z.array(deadLetter.extend({ dlqId: text })),
});

/** The states that version 2.0.5 knows. Its enumeration fails on any other. */
const states = [
  "CREATED",
  "ACTIVE",
  "RETRY",
  "ERROR",
  "DELIVERED",
  "FAILED",
  "CANCEL_REQUESTED",
  "CANCELED",
] as const;
const logEntry = z.object({
  time: whole,
  messageId: text,
  state: z.enum(states),
  url: text,
  header: lists.optional(),
});
/** A page of the log. */
export const log = z.object({ cursor: text.optional(), events: z.array(logEntry) });
/** A queue. */
export const queue = z.object({
  name: text,
  parallelism: whole,
  createdAt: whole,
  updatedAt: whole,
  lag: whole,
  paused: z.boolean(),
});
const endpoint = z.object({ url: text, name: text.optional() });
/** A URL group. */
export const group = z.object({
  name: text,
  createdAt: whole,
  updatedAt: whole,
  endpoints: z.array(endpoint),
});
/** A schedule. */
export const schedule = z.object({
  scheduleId: text,
  destination: text,
  cron: text,
  createdAt: whole,
  method: text,
  retries: whole,
  header: lists.optional(),
  isPaused: z.boolean().optional(),
  delay: whole.optional(),
  callerIP: text.optional(),
  body: text.optional(),
});
/** The signing keys. */
export const keys = z.object({ current: text, next: text });
/** The state of a flow-control key. */
export const flowControlState = z.object({
  flowControlKey: text,
  waitListSize: whole,
  parallelismMax: whole,
  parallelismCount: whole,
  rateMax: whole,
  rateCount: whole,
  ratePeriod: whole,
  ratePeriodStart: whole,
  isPaused: z.boolean(),
  isPinnedParallelism: z.boolean(),
  isPinnedRate: z.boolean(),
});
