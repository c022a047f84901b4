import { z } from "zod";
import { deadLetterFields } from "../fields/deadLetter.ts";
import { eventFields } from "../fields/logEvent.ts";
import { messageFields } from "../fields/message.ts";
import { notDoneFields } from "../fields/notDone.ts";
import { choice } from "../http/parameters.ts";
import { toSchema } from "./fieldSchema.ts";

/** A message, as the API shows it. */
export const messageSchema = toSchema(messageFields);
/** A dead letter, as the API shows it. */
export const deadLetterSchema = toSchema(deadLetterFields);
/** An event in the log of a message, as the API shows it. */
export const logEventSchema = toSchema(eventFields);

/** The field in which a bulk action reports the objects that it did not change. */
export const notDoneSchema = z
  .array(toSchema(notDoneFields))
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

const errorCode = z
  .string()
  .describe(
    "The kind of error, for programs. It does not change, and the text may. After `outcome-unknown` " +
      "and `internal`, the request may have been stored; after any other code, nothing was stored. Only an " +
      "action on many entries may have been done in part.",
  );

const docs = z
  .string()
  .optional()
  .describe(
    "The path of the page on this server that explains the code, such as `/docs/errors#too-large`. Absent " +
      "for requests with the prefix `Upstash-`, with a path below `/v2/qstash`, or, on a server with " +
      "`--brand upstash`, without a prefix.",
  );

/** The body of every error response, except those of the account endpoints. */
export const refusalSchema = z.object({
  error: z.string().describe("The field, the problem, and how to fix it."),
  code: errorCode,
  docs,
});

/** The body of an error response of the account endpoints. */
export const accountErrorSchema = z.object({
  code: z.string().describe("The name of the status, such as `bad-request`."),
  message: z.string().describe("The field, the problem, and how to fix it."),
  errorCode,
  docs,
});
