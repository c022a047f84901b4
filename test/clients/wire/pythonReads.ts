import { z } from "zod";

// The responses that the parsers of the Python client accept. A parser fails if a member that it indexes is
// missing. Members that it reads with a default may be missing.

export const text = z.string();
export const whole = z.int();
const lists = z.record(text, z.array(text));

export const sent = z.object({ messageId: text, deduplicated: z.boolean().optional() });
export const sentToGroup = z.array(sent.extend({ url: text }));
export const sentInBatch = z.array(z.union([sent, sentToGroup]));

export const flowControl = { flowControlKey: text, parallelism: whole, rate: whole, period: whole };
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
export const deadLetter = message.extend({
  responseStatus: whole,
  responseHeader: lists.optional(),
  responseBody: text.optional(),
});
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
export const log = z.object({ cursor: text.optional(), events: z.array(logEntry) });
export const queue = z.object({
  name: text,
  parallelism: whole,
  createdAt: whole,
  updatedAt: whole,
  lag: whole,
  paused: z.boolean(),
});
const endpoint = z.object({ url: text, name: text.optional() });
export const group = z.object({
  name: text,
  createdAt: whole,
  updatedAt: whole,
  endpoints: z.array(endpoint),
});
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
export const keys = z.object({ current: text, next: text });
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
