import { z } from "zod";
import { choice } from "../http/parameters.ts";

const millis = (about: string) => z.int().describe(`${about}, in Unix milliseconds.`);
const headers = (about: string) =>
  z.record(z.string(), z.array(z.string())).describe(`${about}: names to lists of values.`);

/** The fields that identify a message and its destination. */
export const identityFields = {
  messageId: z.string().describe("The id of the message."),
  url: z.string().describe("The destination URL."),
  topicName: z.string().optional().describe("The URL group that the message was published to."),
  endpointName: z.string().optional().describe("The name of the endpoint in the URL group."),
  queueName: z.string().optional().describe("The name of the queue that the message goes through."),
  scheduleId: z.string().optional().describe("The id of the schedule that published the message."),
  method: z.string().describe("The HTTP method of the delivery."),
  header: headers("Headers of the delivery"),
};

/** The settings of a message that lists show. */
export const sendFields = {
  maxRetries: z.int().min(0).describe("The maximum number of retries of the message."),
  retryDelayExpression: z
    .string()
    .optional()
    .describe("The expression for the time between two attempts, in milliseconds, if one was set."),
  hideHeaders: z
    .literal(true)
    .optional()
    .describe("The message is delivered without the headers of this server. Absent if it has them."),
  callback: z.string().optional().describe("The URL of the callback."),
  failureCallback: z.string().optional().describe("The URL of the failure callback."),
  callerIP: z
    .string()
    .optional()
    .describe("The IP address of the client that published the message, if it is known."),
  label: z.string().optional().describe("The first label of the message."),
  labels: z.array(z.string()).optional().describe("All labels of the message."),
};

/** The field that marks a row whose stored content is damaged. */
export const damaged = z
  .literal(true)
  .optional()
  .describe("The stored content is damaged, so it is omitted. Absent if it is intact.");

/** The times of an attempt, and its node. */
const attemptSchema = z
  .object({
    startedAt: millis("When the attempt began"),
    connect: z
      .int()
      .optional()
      .describe(
        "The time until a connection was ready, in milliseconds. Near 0 if an open connection was used. " +
          "Absent if no connection was ready.",
      ),
    firstByte: z
      .int()
      .optional()
      .describe(
        "The time from the request until the response began, in milliseconds. Absent if it did not begin.",
      ),
    duration: z.int().describe("The time of the whole attempt, in milliseconds."),
    node: z.string().describe("The id of the node that made the attempt."),
  })
  .optional()
  .describe("The times of the attempt. Absent if the request was never attempted.");

/** The meaning of a failure, as computed by `explainFailure.ts`. */
export const explanation = z
  .string()
  .optional()
  .describe("The meaning of the failure, and how to fix its cause. Present for known failures.");

/** The reason why a delivery was settled before it had a response. */
export const settledBy = z
  .literal("step")
  .optional()
  .describe(
    "Present for DELIVERED if the endpoint posted the next step of its run, or the end of the run, before " +
      "it responded. The response is then not recorded.",
  );

/** The outcome of an attempt, in the view of its message. */
export const outcomeSchema = z.object({
  time: millis("When the outcome was recorded"),
  responseStatus: z
    .int()
    .min(200)
    .max(999)
    .optional()
    .describe("The HTTP status of the response. Absent if there was none."),
  settledBy,
  responseHeader: headers("Headers of the response").optional(),
  responseBody: z.string().optional().describe("The body of the response, cut to 16 KiB, if it is UTF-8."),
  responseBodyBase64: z
    .string()
    .optional()
    .describe("The body of the response in base64, cut to 16 KiB, if it is not UTF-8."),
  truncated: z.literal(true).optional().describe("The response is cut."),
  error: z.string().optional().describe("Why there was no response."),
  explanation,
  attempt: attemptSchema,
});

/** A message, as the API shows it. */
export const messageSchema = z.object({
  damaged,
  ...identityFields,
  body: z.string().optional().describe("The body, if it is UTF-8. Absent if it is empty."),
  bodyBase64: z.string().optional().describe("The body in base64, if it is not UTF-8."),
  notBefore: millis("The earliest time of the first attempt"),
  createdAt: millis("When the message was accepted"),
  ...sendFields,
  flowControlKey: z.string().optional().describe("The flow-control key of the message."),
  parallelism: z
    .int()
    .min(1)
    .optional()
    .describe("The maximum number of deliveries of the key in flight at once, as the message set it."),
  rate: z
    .int()
    .min(1)
    .optional()
    .describe("The maximum number of deliveries of the key that start in one period, as the message set it."),
  period: z.number().optional().describe("The period of the rate, in seconds."),
  replayOf: z
    .object({
      messageId: z.string().describe("The id of the message that failed."),
      dlqId: z.string().describe("The id of its dead letter."),
    })
    .optional()
    .describe("The failed message that this message sends again with changes. Absent if it is not a replay."),
});

/** A dead letter, as the API shows it. */
export const deadLetterSchema = messageSchema.extend({
  dlqId: z.string().describe("The id of the dead letter."),
  responseStatus: z
    .int()
    .min(200)
    .max(999)
    .optional()
    .describe("The HTTP status of the last response. Absent if there was none; error gives the reason."),
  responseHeader: headers("Headers of the last response").optional(),
  responseBody: z.string().optional().describe("The body of the last response, if it is UTF-8."),
  responseBodyBase64: z
    .string()
    .optional()
    .describe("The body of the last response in base64, if it is not UTF-8."),
  truncated: z
    .literal(true)
    .optional()
    .describe("The last response was too long, so only its beginning is kept."),
  error: z.string().nullable().describe("Why the last attempt had no response, or null if it had one."),
  explanation,
  failureCallbackInfo: z
    .object({
      state: z
        .enum(["CALLBACK_INPROGRESS", "CALLBACK_SUCCESS", "CALLBACK_FAIL", "CALLBACK_CANCELED"])
        .describe(
          "CALLBACK_INPROGRESS: being delivered. CALLBACK_SUCCESS: delivered. CALLBACK_FAIL: failed for " +
            "good. CALLBACK_CANCELED: cancelled.",
        ),
      responseStatus: z
        .int()
        .min(200)
        .max(999)
        .optional()
        .describe("The HTTP status of the last response. Absent if there was none."),
      responseBody: z.string().optional().describe("The body of the last response."),
      responseHeaders: headers("Headers of the last response").optional(),
      truncated: z.literal(true).optional().describe("The response is cut."),
    })
    .optional()
    .describe("The state of the failure callback. Absent if the message has none."),
  replays: z
    .array(z.string())
    .optional()
    .describe("The ids of the latest messages that replay this dead letter, the newest last."),
});

/** A log entry, as the API shows it. */
export const logEventSchema = z.object({
  time: millis("When the message reached the state"),
  damaged,
  ...identityFields,
  state: z
    .enum(["CREATED", "ACTIVE", "RETRY", "ERROR", "DELIVERED", "FAILED", "CANCEL_REQUESTED", "CANCELLED"])
    .describe(
      "CREATED: accepted. ACTIVE: an attempt started. ERROR: an attempt failed. RETRY: another attempt is " +
        "planned. DELIVERED: delivered. FAILED: failed for good. CANCEL_REQUESTED: cancellation requested " +
        "while in flight. CANCELLED: cancelled.",
    ),
  body: z.string().optional().describe("The body in base64, cut to 16 KiB."),
  truncated: z.literal(true).optional().describe("The body or the response of this entry is cut."),
  error: z.string().optional().describe("Why the attempt or the message failed."),
  explanation,
  nextDeliveryTime: millis("When the next attempt is due").optional(),
  responseStatus: z
    .int()
    .min(200)
    .max(999)
    .optional()
    .describe(
      "The HTTP status of the response. Present for ERROR, DELIVERED and CANCELLED if there was a response.",
    ),
  settledBy,
  responseHeaders: headers("Headers of the response").optional(),
  responseBody: z
    .string()
    .optional()
    .describe(
      "The body of the response in base64, cut to 16 KiB. For DELIVERED, present only with Keep-Response: " +
        "true.",
    ),
  attempt: attemptSchema,
  timeout: z.int().describe("The timeout of the message, in milliseconds."),
  callbackHeaders: headers("Headers of the callback").optional(),
  failureCallbackHeaders: headers("Headers of the failure callback").optional(),
  ...sendFields,
  retryDelayExpr: z.string().optional().describe("Alias of retryDelayExpression."),
});

/** The field in which a bulk action reports the objects that it did not change. */
export const notDoneSchema = z
  .array(
    z.object({
      id: z.string().describe("The id, as the request gave it or as it was found."),
      reason: z.string().describe("Why the action was not possible."),
    }),
  )
  .optional()
  .describe("The objects that were not changed, with the reasons. Absent if there are none.");

/**
 * The parameter that adds `failed` to the response of a bulk cancellation. The response has `cancelled` alone
 * without it, because tests of clients compare it exactly.
 */
export const detailsParameter = {
  details: choice(["true", "false"])
    .optional()
    .describe(
      "`true`: with ids, the response has `failed`, the objects that were not cancelled. Default: `false`.",
    ),
};

/** The body of every error response. */
export const refusalSchema = z.object({
  error: z.string().describe("The field, the problem, and how to fix it."),
  code: z
    .string()
    .optional()
    .describe(
      "For status 503, why the server cannot take the request now. After `outcome-unknown`, the request " +
        "may have been stored; after `too-slow`, a bulk action may have been done in part; after any other " +
        "code, nothing was stored.",
    ),
});
