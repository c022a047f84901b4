import type { QueueLimit } from "../../../core/sending/quotas.ts";
import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import { limits } from "../../../core/values/limits.ts";
import type { MessageInput } from "../../../core/model/message.ts";
import type { Published, PublishResult } from "../../../core/commands/publish.ts";
import type { PublishOptions } from "../../publishing/read.ts";
import { readPublishRequest } from "../../publishing/read.ts";
import { makeResultHeaders } from "../../http/rateLimitHeaders.ts";
import { makePublishWarnings } from "../../publishing/refusedHosts.ts";
import type { RouteResponse, IncomingRequest, RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { mayRead, readScope } from "../../route/scope.ts";
import { isStepRequest, readStep } from "../../publishing/stepRefusal.ts";
import { postSettings } from "../../publishing/workflowPost.ts";

/** What a publish of one message is answered with. */
export const publishedSchema = z.object({
  messageId: z.string().describe("The id of the message."),
  url: z.string().optional().describe("Where it goes. Absent for a message of a workflow run."),
  deduplicated: z
    .literal(true)
    .optional()
    .describe(
      "An older message is the same as this one; the id and the URL are those of the older one. A token without the verb read gets the URL only if it is the one that it sent, and never those of a URL group.",
    ),
});

/** What a publish to a URL group is answered with. */
export const publishedToEachSchema = z.array(publishedSchema).describe("One for each endpoint of the URL group.");

/** What routes that publish one request have in common. */
export const publishing = {
  settings: "all",
  needs: "publish",
  looksAtScope: true,
  body: { about: "What is delivered. Any bytes.", contentType: "*/*", schema: z.string(), required: false, maxBytes: limits.messageBytes },
  answers: {
    200: { about: "The message is stored, and will be delivered.", schema: z.union([publishedSchema, publishedToEachSchema]) },
    202: {
      about: "The same message was accepted before, so nothing new was stored. To a URL group: the same for all of its endpoints.",
      schema: z.union([publishedSchema, publishedToEachSchema]),
    },
  },
  refusals: ["not-found", "limit-exceeded", "day-limit-exceeded", "storage-quota-exceeded", "step-refused", "forbidden"],
} as const;

export const publish = route({
  method: "POST",
  path: "/v2/publish/{destination}",
  operation: "step",
  onFastPath: true,
  unaudited: "it publishes, which the log of messages tells",
  tag: "Publish",
  summary: "Publish a message",
  about:
    "Takes in one message, to be delivered to the destination; to a URL group, one for each of its endpoints, or none. The rest of the path, and the query without the parameters of this interface, are the destination, byte for byte. The body and its content type are delivered as they come. With Svc-Cron it makes a schedule instead, and is answered as POST /v2/schedules/{destination} is.",
  ...publishing,
  runSettings: postSettings,
  handle: ({ account, incoming, context }) => {
    const { store, brand } = context;
    const destination = incoming.target.path.slice("/v2/publish/".length);
    return publishOne(incoming, context, { destination, account: account.id, store, brand });
  },
});

/** Publishes what a request brings, and answers it. */
export async function publishOne(
  incoming: IncomingRequest,
  context: RouteContext,
  options: PublishOptions & QueueLimit,
): Promise<RouteResponse> {
  const { input, ignored } = await readStep(isStepRequest(incoming.rawHeaders), () => readPublishRequest(incoming, options));
  const { account, maxQueues } = options;
  const [result] = await options.store.execute("publish", { account, inputs: [input], maxQueues, ...readScope(incoming) });
  const results = result ? [result] : [];
  const headers = makeResultHeaders(results, makePublishWarnings({ incoming, context }, [input], results));
  return { status: toStatus(result), body: publishedJson(result, input, { mayRead: mayRead(incoming) }), ignored, headers };
}

/**
 * Returns the answer for one message. For a message to a URL group it is a list with an answer for each endpoint; the URLs are there only if the
 * token may read. Throws `Refusal` if the message was refused.
 */
export function publishedJson(
  result: PublishResult | undefined,
  { url }: Pick<MessageInput, "url">,
  rights: { mayRead: boolean },
): unknown {
  if (!result) throw new Error("publish: a letter has no answer");
  if ("refused" in result) throw new Refusal(result.refused, result.message, { remainingQuota: result.remainingQuota });
  return "each" in result
    ? result.each.map((one) => oneJson(one, rights.mayRead ? one.url : undefined))
    : oneJson(result, result.deduplicated ? result.url : url);
}

const oneJson = ({ messageId, deduplicated, run }: Published, url: string | undefined): z.output<typeof publishedSchema> => ({
  messageId,
  ...(run || url === undefined ? {} : { url }),
  ...(deduplicated ? { deduplicated: true as const } : {}),
});

/** 202 when nothing was stored, because older messages are the same. */
export const toStatus = (result: PublishResult | undefined): 200 | 202 => {
  const all = !result || "refused" in result ? [] : "each" in result ? result.each : [result];
  return all.length > 0 && all.every(({ deduplicated }) => deduplicated) ? 202 : 200;
};
