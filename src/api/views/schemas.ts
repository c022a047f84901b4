import { z } from "zod";

const millis = (about: string) => z.int().describe(`${about}, in unix milliseconds.`);
const headers = (about: string) => z.record(z.string(), z.array(z.string())).describe(`${about}: names to lists of values.`);

const identityFields = {
  messageId: z.string(),
  url: z.string().describe("The destination."),
  topicName: z.string().optional().describe("The URL group it was published to."),
  endpointName: z.string().optional().describe("The name of the endpoint in it."),
  queueName: z.string().optional().describe("The queue it goes through."),
  scheduleId: z.string().optional().describe("The schedule that made it."),
  method: z.string(),
  header: headers("Headers that are delivered"),
};

const sendFields = {
  maxRetries: z.int(),
  retryDelayExpression: z.string().optional(),
  callback: z.string().optional(),
  failureCallback: z.string().optional(),
  callerIP: z.string().optional().describe("The IP address of the publisher."),
  label: z.string().optional().describe("The first label."),
  labels: z.array(z.string()).optional(),
};

/** Whether a row cannot be shown. */
export const damaged = z.literal(true).optional().describe("Its stored content was altered on the disk, and is left out.");

/** A message, as it is shown. */
export const messageSchema = z.object({
  damaged,
  ...identityFields,
  body: z.string().optional().describe("The body, when it is UTF-8. Absent when it is empty."),
  bodyBase64: z.string().optional().describe("The body in base64, when it is not UTF-8."),
  notBefore: millis("Not sent before"),
  createdAt: millis("Accepted"),
  ...sendFields,
  flowControlKey: z.string().optional(),
  parallelism: z.int().optional().describe("Deliveries at once, as the message has it."),
  rate: z.int().optional().describe("Deliveries begun in each period, as the message has it."),
  period: z.number().optional().describe("In seconds."),
});

/** A dead letter, as it is shown. */
export const deadLetterSchema = messageSchema.extend({
  dlqId: z.string(),
  responseStatus: z.int().optional().describe("The status of the last response. Absent when there was none; error says why."),
  responseHeader: headers("Headers of the last response").optional(),
  responseBody: z.string().optional().describe("Body of the last response, when it is UTF-8."),
  responseBodyBase64: z.string().optional().describe("Body of the last response in base64, when it is not UTF-8."),
  truncated: z.literal(true).optional().describe("Only a part of the last response is kept: it is longer than that."),
  error: z.string().nullable().describe("Why there was no response to the last attempt. null if there was one."),
  failureCallbackInfo: z
    .object({
      state: z.enum(["CALLBACK_INPROGRESS", "CALLBACK_SUCCESS", "CALLBACK_FAIL", "CALLBACK_CANCELED"]),
      responseStatus: z.int().optional(),
      responseBody: z.string().optional(),
      responseHeaders: headers("Headers of its response").optional(),
      truncated: z.literal(true).optional().describe("Its response was cut."),
    })
    .optional()
    .describe("What became of the failure callback."),
});

/** A line of the log, as it is shown. */
export const logEventSchema = z.object({
  time: millis("When it happened"),
  damaged,
  ...identityFields,
  state: z.enum(["CREATED", "ACTIVE", "RETRY", "ERROR", "DELIVERED", "FAILED", "CANCEL_REQUESTED", "CANCELLED"]),
  body: z.string().optional().describe("The body in base64, cut to 16 KiB."),
  truncated: z.literal(true).optional().describe("The body or the response of this entry was cut."),
  error: z.string().optional().describe("What went wrong."),
  nextDeliveryTime: millis("When it is sent next").optional(),
  responseStatus: z.int().optional().describe("Status of the response: of a failed attempt, and of a delivery that succeeded."),
  responseHeaders: headers("Headers of the response").optional(),
  responseBody: z
    .string()
    .optional()
    .describe("Body of the response in base64, cut to 16 KiB. If the delivery succeeded, only with Keep-Response: true."),
  timeout: z.int().describe("In milliseconds."),
  callbackHeaders: headers("Headers of the callback").optional(),
  failureCallbackHeaders: headers("Headers of the failure callback").optional(),
  ...sendFields,
  retryDelayExpr: z.string().optional().describe("Another name of retryDelayExpression."),
});

/** What an action on many says of those that it did nothing to. */
export const notDoneSchema = z
  .array(z.object({ id: z.string(), reason: z.string() }))
  .optional()
  .describe("Those that stay as they are, and why. Absent: there are none.");

/** What every refusal looks like. */
export const refusalSchema = z.object({ error: z.string().describe("What is wrong, where, and what to do.") });
