import type { QueueLimit } from "../../../engine/core/limits/rowLimits.ts";
import { z } from "zod";
import type { Published, PublishResult } from "../../../engine/core/commands/publish.ts";
import type { MessageInput } from "../../../engine/core/model/message.ts";
import type { PublishOptions } from "../../publishing/read.ts";
import { readPublishRequest } from "../../publishing/read.ts";
import { makeResultHeaders } from "../../http/rateLimitHeaders.ts";
import type { MessageWarnings } from "../../publishing/refusedHosts.ts";
import { createMessageWarnings, makePublishWarnings, warningsAbout } from "../../publishing/refusedHosts.ts";
import type { RouteResponse, IncomingRequest, RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { mayRead, readScope } from "../../route/scope.ts";
import { noteUnstored } from "../../route/unpublished.ts";
import { isStepRequest, withStepRefusal } from "../../publishing/stepRefusal.ts";
import { postSettings } from "../../publishing/workflowPost.ts";
import { toRefusal } from "../../../engine/core/values/errors.ts";

/** The response to a publish request for one message. */
export const publishedSchema = z.object({
  messageId: z.string().describe("Id of the message."),
  url: z
    .string()
    .optional()
    .describe("Destination URL of the message. Absent for a message of a workflow run."),
  deduplicated: z
    .literal(true)
    .optional()
    .describe(
      "Present if the message is a duplicate of an earlier one. The id and the URL are those of the " +
        "earlier message. A token without the verb `read` receives the URL only if it equals the URL of " +
        "this request, and never the URLs of a URL group.",
    ),
  runOn: z
    .literal(true)
    .optional()
    .describe(
      "Present if the step is stored, and the endpoint may continue with the next step in this call.",
    ),
  warnings: z.array(z.string()).optional().describe(warningsAbout),
});

/** The response to a publish request to a URL group. */
export const publishedToEachSchema = z
  .array(publishedSchema)
  .describe("For a URL group, one entry for each of its endpoints.");

/** The common parts of the routes that publish one request. */
export const publishing = {
  settings: "all",
  needs: "publish",
  looksAtScope: true,
  body: {
    about: "Body to deliver: any bytes.",
    contentType: "*/*",
    schema: z.string(),
    required: false,
    maxBytes: { messages: 1 },
  },
  answers: {
    200: {
      about: "The message is stored and will be delivered.",
      schema: z.union([publishedSchema, publishedToEachSchema]),
    },
    202: {
      about:
        "The message is a duplicate, so nothing new was stored. " +
        "For a URL group, it is a duplicate for every endpoint.",
      schema: z.union([publishedSchema, publishedToEachSchema]),
    },
  },
  refusals: [
    "not-found",
    "limit-exceeded",
    "day-limit-exceeded",
    "storage-quota-exceeded",
    "disk-low",
    "step-refused",
    "forbidden",
  ],
} as const;

/** The route that publishes one message. */
export const publish = route({
  method: "POST",
  path: "/v2/publish/{destination}",
  operation: "step",
  refusesSession: true,
  onFastPath: true,
  unaudited: "publishes messages, which the message log records",
  tag: "Publish",
  summary: "Publish a message",
  about:
    "Stores one message and delivers it to the destination. " +
    "For a URL group, stores one message for each of its endpoints, or none. " +
    "The destination is the rest of the path with the query, byte for byte. Query parameters of this API " +
    "are removed from it. The body and its content type are delivered unchanged. " +
    "With Svc-Cron, the request creates a schedule instead and has the response of POST " +
    "/v2/schedules/{destination}.",
  ...publishing,
  runSettings: postSettings,
  handle: ({ account, incoming, context }) => {
    const { store, brand } = context;
    const destination = incoming.target.path.slice("/v2/publish/".length);
    return publishOne(incoming, context, { destination, account: account.id, store, brand });
  },
});

/** Publishes the message of a request and returns the response. */
export async function publishOne(
  incoming: IncomingRequest,
  context: RouteContext,
  options: PublishOptions & QueueLimit,
): Promise<RouteResponse> {
  const { input, ignored } = isStepRequest(incoming.rawHeaders)
    ? await withStepRefusal(true, () => readPublishRequest(incoming, options))
    : await readPublishRequest(incoming, options);
  const { account, maxQueues } = options;
  const [result] = await options.store.execute("publish", {
    account,
    inputs: [input],
    maxQueues,
    ...readScope(incoming),
  });
  const results = result ? [result] : [];
  const warnings = makePublishWarnings({ incoming, context }, [input], results);
  const warn = createMessageWarnings({ incoming, context }, warnings);
  const body = publishedJson(result, input, { mayRead: mayRead(incoming), warn });
  noteUnstored(context, incoming, results);
  return {
    status: toStatus(result),
    body,
    ignored,
    headers: makeResultHeaders(results, warnings),
  };
}

/**
 * Returns the response for one message. For a message to a URL group it is a list with an entry for each
 * endpoint, with URLs only if the token may read. Throws `Refusal` if the message was refused.
 */
export function publishedJson(
  result: PublishResult | undefined,
  input: MessageInput,
  { mayRead, warn }: { mayRead: boolean; warn: MessageWarnings },
): unknown {
  if (!result) throw new Error("publish: a message has no result");
  if ("refused" in result) throw toRefusal(result);
  const { url } = input;
  return "each" in result
    ? result.each.map((one) => ({
        ...oneJson(one, mayRead ? one.url : undefined),
        ...(one.url !== undefined && warn(input, one.url)),
      }))
    : { ...oneJson(result, result.deduplicated ? result.url : url), ...warn(input, url) };
}

const oneJson = (
  { messageId, deduplicated, run, runsOn }: Published,
  url: string | undefined,
): z.output<typeof publishedSchema> => ({
  messageId,
  ...(run || url === undefined ? {} : { url }),
  ...(deduplicated ? { deduplicated: true as const } : {}),
  ...(runsOn ? { runOn: true as const } : {}),
});

/**
 * Returns the status of the response. It is 202 if all messages are duplicates, so that nothing was stored.
 */
export const toStatus = (result: PublishResult | undefined): 200 | 202 => {
  const all = !result || "refused" in result ? [] : "each" in result ? result.each : [result];
  return all.length > 0 && all.every(({ deduplicated }) => deduplicated) ? 202 : 200;
};
