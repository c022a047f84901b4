import { z } from "zod";

const headers = z.record(z.string(), z.array(z.string()));

/** The body of a callback, as `engine/core/sending/callback.ts` writes it. */
export const callbackSchema = z.object({
  status: z.int().describe("The status of the response; -1 if there was no response."),
  header: headers.describe("The headers of the response: names to lists of values."),
  body: z
    .string()
    .describe("The body of the response, in base64. Without a response, the reason, in base64."),
  retried: z.int().describe("The number of retries before this attempt: 0 for the first attempt."),
  maxRetries: z.int().min(0).describe("The maximum number of retries of the message."),
  sourceMessageId: z.string().describe("The id of the message that the callback reports on."),
  topicName: z.string().optional().describe("The URL group that the message was published to."),
  endpointName: z.string().optional().describe("The name of the endpoint in the URL group."),
  url: z.string().describe("The destination of the message."),
  method: z.string().describe("The HTTP method of the message."),
  sourceHeader: headers.describe("The headers of the message: names to lists of values."),
  sourceBody: z.string().describe("The body of the message, in base64."),
  notBefore: z.int().describe("The earliest time of the first attempt of the message, in Unix milliseconds."),
  createdAt: z.int().describe("When the message was published, in Unix milliseconds."),
  scheduleId: z.string().optional().describe("The id of the schedule that published the message."),
  callerIP: z
    .string()
    .optional()
    .describe("The IP address of the client that published the message, if it is known."),
  workflowRunId: z.string().optional().describe("The id of the workflow run that the message belongs to."),
  truncated: z
    .literal(true)
    .optional()
    .describe("The response or the body of the message was too large and is cut."),
  workflowCreatedAt: z.int().optional().describe("When the run was created, in Unix milliseconds."),
});

/** The body of a failure callback. */
export const failureCallbackSchema = callbackSchema.extend({
  dlqId: z.string().describe("The id of the message in the dead letter queue."),
});
