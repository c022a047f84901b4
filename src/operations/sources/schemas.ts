import { z } from "zod";

const millis = (about: string) => z.int().describe(`${about}, in Unix milliseconds.`);

/** A source as the API shows it. */
export const sourceSchema = z.object({
  sourceId: z.string().describe("The id of the source."),
  name: z.string().describe("The name of the source."),
  destination: z
    .string()
    .describe(
      "The URL or the name of the URL group that calls are published to. In the response to a change by a " +
        "token without the verb read, this field, the name, the settings and the verification are empty.",
    ),
  settings: z
    .record(z.string(), z.union([z.string(), z.array(z.string())]))
    .describe("The settings of the messages that the source publishes: names to values."),
  verification: z
    .object({
      scheme: z.string().describe("The signature scheme of the sender, such as github."),
      secrets: z.int().min(1).describe("The number of secrets. The secrets themselves are never shown."),
    })
    .nullable()
    .describe("How calls are verified. null means that they are not verified."),
  deduplicate: z.boolean().describe("Whether a repeated call is published only once."),
  paused: z.boolean().describe("Whether the source is paused. A paused source refuses all calls."),
  createdAt: millis("When the source was created"),
  acceptedAt: z
    .int()
    .optional()
    .describe("When a call was last accepted, in Unix milliseconds, to the minute. Absent if none was."),
  lastCallAt: z
    .int()
    .optional()
    .describe(
      "When a call was last accepted or rejected, in Unix milliseconds, to the minute. Absent if none was. " +
        "Calls to a paused source do not count.",
    ),
  accepted: z
    .int()
    .min(0)
    .describe(
      "The number of calls accepted since the source was created. Repeated calls, which publish nothing, " +
        "are included.",
    ),
  rejected: z
    .int()
    .min(0)
    .describe(
      "The number of calls rejected since the source was created. Rejected calls that are not kept are " +
        "counted when the next one is kept.",
    ),
});

/** A call that a source rejected, as the API shows it. */
export const rejectionSchema = z.object({
  time: millis("When the call arrived"),
  reason: z.string().describe("Why the call was rejected."),
  method: z.string().describe("The HTTP method of the call."),
  header: z
    .record(z.string(), z.array(z.string()))
    .describe("The headers of the call: names to lists of values. Credentials are not shown."),
  body: z.string().optional().describe("The body, if it is UTF-8, cut to 16 KiB."),
  bodyBase64: z.string().optional().describe("The body in base64, if it is not UTF-8, cut to 16 KiB."),
  bodySize: z.int().describe("The size of the whole body in bytes."),
  truncated: z.literal(true).optional().describe("The body or the headers are cut."),
  callerIP: z.string().optional().describe("The IP address of the caller, if it is known."),
  notKept: z
    .int()
    .min(0)
    .optional()
    .describe("The number of calls that were rejected shortly before this one and not kept."),
});
