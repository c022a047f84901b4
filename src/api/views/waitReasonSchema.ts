import { z } from "zod";
import { waitReasonNames } from "../../engine/core/explain/whyWaiting.ts";

const millis = (about: string) => z.int().optional().describe(`${about}, in Unix milliseconds.`);

const blockerSchema = z.object({
  messageId: z.string().describe("The id of the message that holds the slot."),
  callbackId: z
    .string()
    .optional()
    .describe("The id of its callback that is not finished. Present if the message itself is finished."),
  text: z.string().describe("The state of the message as a sentence."),
});

/** Why an unfinished message waits, as shown by `waitReasons.ts`. */
export const waitReasonSchema = z.object({
  reason: z
    .enum(waitReasonNames)
    .describe(
      "Why the message is not finished. server-held: all deliveries are paused by the operator. " +
        "not-due: its time has not come. retry: the next attempt is " +
        "not due yet. due: a node will take it next. queue: all slots of its queue are taken. " +
        "key-parallelism, key-rate: its flow-control key is at its limit of deliveries in flight or per " +
        "period. queue-paused, key-paused: its queue or flow-control key is paused. account, " +
        "account-endpoint: the account is at its limit of deliveries in flight, in all or to this " +
        "endpoint. host: there is no free delivery capacity for its host. puller: no client has pulled it " +
        "yet. turn: it was held, and nothing holds it any more. " +
        "sending: it is in flight. acknowledging: its receiver has taken the attempt over, or a client " +
        "has pulled it, and the outcome is not reported yet. lease-over: the node that was sending it has " +
        "stopped; it is sent again.",
    ),
  text: z.string().describe("The reason as a sentence, with its numbers."),
  since: millis("When the reason began to apply"),
  until: millis(
    "When the reason ends, if that is known. For sending, when the attempt times out. For acknowledging, " +
      "when the outcome must have been reported",
  ),
  attempt: z
    .int()
    .min(0)
    .optional()
    .describe("For sending, acknowledging and lease-over, the number of the attempt. The first one is 0."),
  ending: z
    .literal(true)
    .optional()
    .describe(
      "Present for sending if an operator has ended the attempt, and its connection is being closed.",
    ),
  pulled: z
    .literal(true)
    .optional()
    .describe("Present for acknowledging if a client has pulled the message, and holds the attempt."),
  queue: z.string().optional().describe("The name of the queue."),
  key: z.string().optional().describe("The flow-control key."),
  endpoint: z
    .string()
    .optional()
    .describe(
      "Scheme, host, port and path of the destination. A fingerprint replaces the path if they are longer " +
        "than 512 characters.",
    ),
  host: z.string().optional().describe("The host of the destination."),
  origin: z.string().optional().describe("For puller, the pulled origin."),
  node: z
    .string()
    .optional()
    .describe("For sending and lease-over, the id of the node that sends or sent the message."),
  used: z
    .int()
    .min(0)
    .optional()
    .describe(
      "For queue, key-parallelism, key-rate, account, account-endpoint and retry: how many slots, " +
        "deliveries or retries of the limit are used.",
    ),
  limit: z
    .int()
    .min(0)
    .optional()
    .describe("The limit that used counts towards: slots, deliveries or retries."),
  position: z
    .int()
    .optional()
    .describe("The number of messages ahead of it in the waitlist, counted up to 1000."),
  more: z.literal(true).optional().describe("Present if more messages are ahead of it than position says."),
  status: z
    .int()
    .min(200)
    .max(999)
    .optional()
    .describe("For retry, the HTTP status of the response to the last attempt."),
  error: z.string().optional().describe("For retry, why the last attempt had no response."),
  behind: z
    .array(blockerSchema)
    .optional()
    .describe("At most three of the messages that hold the slots of the queue."),
});
