import { z } from "zod";
import type { ReplayChange } from "../../../engine/core/commands/replayDeadLetter.ts";
import type { HeaderList } from "../../../engine/core/values/basics.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { isId } from "../../../engine/core/values/ids.ts";
import { readJson } from "../../http/json.ts";
import { assertUrl } from "../../http/target.ts";
import { parseObject } from "../../route/readObject.ts";
import { route } from "../../route/route.ts";
import { readScope } from "../../route/scope.ts";
import { readForwardedHeader } from "../../settings/forward.ts";
import { headersSchema } from "../../settings/forwardedHeaders.ts";
import { readRetryChanges } from "./deadLetterRetry.ts";
import { byId, makeNotFound } from "./deadLetterSelection.ts";

const changeSchema = z
  .strictObject({
    url: z.string("is not a string").describe("The new destination URL."),
    headers: headersSchema.describe(
      "The headers of the delivery, with a value or a list of values for each name. They replace all " +
        "headers of the message. Use Svc-Forward-… to replace only one.",
    ),
    body: z.string("is not a string").describe("The new body, as text."),
    bodyBase64: z
      .base64("is not base64")
      .describe("The new body in base64, for a body that is not text. Not valid together with body."),
  })
  .partial();

/** The maximum number of names in the body of the request. */
const maxNames = 10_000;

/** Sends a dead letter again with changes. */
export const replayDeadLetter = route({
  method: "POST",
  path: "/v2/dlq/{dlqId}/replay",
  tag: "Dead letter queue",
  summary: "Replay a dead letter with changes",
  about:
    "Publishes the message again as a new message, with another URL, other headers or another body. " +
    "Settings of this request, such as Svc-Method and Svc-Retries, replace those of the message, as in a " +
    "retry. Everything else is as in the old message. The dead letter stays, and its field replays names " +
    "the new message. The field replayOf of the new message names the dead letter. A token needs the verb " +
    "read in addition to manage. A redacted body or header is not sent to another URL, so a replay to " +
    "another URL must replace it.",
  settings: "retry",
  params: byId,
  body: {
    about: "The parts of the message that change. Empty if only settings change.",
    contentType: "application/json",
    schema: changeSchema,
    required: false,
    maxBytes: { messages: 2 },
  },
  answers: {
    201: {
      about: "The new message.",
      schema: z.object({
        messageId: z.string().describe("Id of the new message."),
        dlqId: z.string().describe("Id of the dead letter, which still exists."),
      }),
    },
  },
  refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded", "disk-low", "forbidden"],
  handle: async ({ account, params: { dlqId }, incoming, context }) => {
    const { overrides, ignored } = readRetryChanges(incoming, account, context.now());
    const change =
      incoming.body.length === 0
        ? {}
        : toChange(parseObject(changeSchema, readJson(incoming.body, { names: maxNames }), "body"));
    if (!isId(dlqId)) throw makeNotFound(dlqId);
    const body = await context.store.execute("replayDeadLetter", {
      account: account.id,
      dlqId,
      change,
      overrides,
      ...readScope(incoming),
    });
    return { status: 201, body, ignored };
  },
});

function toChange({ url, headers, body, bodyBase64 }: z.output<typeof changeSchema>): ReplayChange {
  if (url !== undefined) assertUrl("url", url);
  if (body !== undefined && bodyBase64 !== undefined)
    throw new Refusal("invalid", "bodyBase64: not valid together with body; remove one");
  return {
    ...(url === undefined ? {} : { url }),
    ...(headers === undefined ? {} : { headers: readDeliveryHeaders(headers) }),
    ...(body === undefined ? {} : { body: Buffer.from(body) }),
    ...(bodyBase64 === undefined ? {} : { body: Buffer.from(bodyBase64, "base64") }),
  };
}

/** Returns the headers of a delivery. Headers that are never forwarded are left out. */
export const readDeliveryHeaders = (members: z.output<typeof headersSchema>): HeaderList =>
  Object.entries(members).flatMap(([name, values]) =>
    [values].flat().flatMap((value) => {
      const header = readForwardedHeader(`headers.${name}`, name.toLowerCase(), value.trim());
      return header === null ? [] : [header];
    }),
  );
