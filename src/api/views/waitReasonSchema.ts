import { z } from "zod";
import { waitReasonNames } from "../../core/sending/whyWaiting.ts";

const millis = (about: string) => z.int().optional().describe(`${about}, in unix milliseconds.`);

const blockerSchema = z.object({
  messageId: z.string().describe("The message that has the place."),
  callbackId: z.string().optional().describe("It is finished itself, and this callback of it is not."),
  text: z.string(),
});

/** Why an unfinished message waits: see `core/sending/whyWaiting.ts`. */
export const waitReasonSchema = z.object({
  reason: z
    .enum(waitReasonNames)
    .describe(
      "not-due: its time has not come. retry: nor has that of the next attempt. due: a node takes it next. queue: its places are taken. " +
        "key-parallelism, key-rate: the limits of its flow control key are reached. queue-paused, key-paused: somebody paused it. " +
        "account, account-endpoint: the account is at its limit of deliveries in flight, in all or to this endpoint. " +
        "host: no node has a hand free for its destination. turn: it was held back, and is not any more. " +
        "sending: it is under way. lease-over: the node that sent it is gone, and it is sent again.",
    ),
  text: z.string().describe("The same in words, with the figures."),
  since: millis("Since when"),
  until: millis("Until when"),
  queue: z.string().optional(),
  key: z.string().optional(),
  endpoint: z
    .string()
    .optional()
    .describe("Scheme, host, port and path of the destination. A fingerprint replaces the path if they are longer than 512 characters."),
  host: z.string().optional(),
  node: z.string().optional().describe("The node that sends it."),
  used: z.int().optional().describe("How much of the limit is used: places, deliveries, or retries."),
  limit: z.int().optional(),
  position: z.int().optional().describe("How many stand before it in line, counted up to 1000."),
  more: z.literal(true).optional().describe("There are more than were counted."),
  status: z.int().optional().describe("The answer to the last attempt."),
  error: z.string().optional().describe("Why the last attempt had no answer."),
  behind: z.array(blockerSchema).optional().describe("Who has the places of the queue; three of them at most."),
});
