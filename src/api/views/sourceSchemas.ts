import { z } from "zod";

const millis = (about: string) => z.int().describe(`${about}, in unix milliseconds.`);

/** A source, as it is shown. */
export const sourceSchema = z.object({
  sourceId: z.string(),
  name: z.string(),
  destination: z
    .string()
    .describe(
      "A URL, or the name of a URL group. A token without the verb read that changes a source gets this, the name, the settings and the verification empty.",
    ),
  settings: z.record(z.string(), z.union([z.string(), z.array(z.string())])).describe("Settings of its messages."),
  verification: z
    .object({ scheme: z.string(), secrets: z.int().describe("How many. They are never shown.") })
    .nullable()
    .describe("How its calls are verified. null: not at all."),
  deduplicate: z.boolean(),
  paused: z.boolean(),
  createdAt: millis("Created"),
  acceptedAt: millis("When a call was accepted last, to the minute").optional(),
  rejected: z.int().describe("Calls that were rejected since the beginning. Those that were not kept are added with the next that is."),
});

/** A call that a source rejected, as it is shown. */
export const rejectionSchema = z.object({
  time: millis("When it came"),
  reason: z.string(),
  method: z.string(),
  header: z.record(z.string(), z.array(z.string())).describe("Its headers. Credentials are not shown."),
  body: z.string().optional().describe("The body, when it is UTF-8, cut to 16 KiB."),
  bodyBase64: z.string().optional().describe("The body in base64, when it is not UTF-8, cut to 16 KiB."),
  bodySize: z.int().describe("Bytes of the whole body."),
  truncated: z.literal(true).optional().describe("The body or the headers were cut."),
  callerIP: z.string().optional(),
  notKept: z.int().optional().describe("Calls that were rejected shortly before this one, and were not kept."),
});
