import type { MostQueues } from "../../../core/sending/quotas.ts";
import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import { limits } from "../../../core/values/limits.ts";
import type { Letter } from "../../../core/model/message.ts";
import type { Published, PublishResult } from "../../../core/commands/publish.ts";
import type { PostingOf } from "../../publishing/read.ts";
import { readPosting } from "../../publishing/read.ts";
import { headersOfResults } from "../../http/allowanceHeaders.ts";
import { refusedHostWarnings } from "../../publishing/refusedHosts.ts";
import type { Answer, Incoming, Parts } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { mayRead, scopeIn } from "../../route/scope.ts";
import { areOfStep, readingStep } from "../../publishing/stepRefusal.ts";
import { settingsOfPosts } from "../../publishing/workflowPost.ts";

/** What a publish of one message is answered with. */
export const published = z.object({
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
export const publishedToEach = z.array(published).describe("One for each endpoint of the URL group.");

/** What routes that publish one request have in common. */
export const publishing = {
  settings: "all",
  needs: "publish",
  looksAtScope: true,
  body: { about: "What is delivered. Any bytes.", contentType: "*/*", schema: z.string(), required: false, mostBytes: limits.messageBytes },
  answers: {
    200: { about: "The message is stored, and will be delivered.", schema: z.union([published, publishedToEach]) },
    202: {
      about: "The same message was accepted before, so nothing new was stored. To a URL group: the same for all of its endpoints.",
      schema: z.union([published, publishedToEach]),
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
  runSettings: settingsOfPosts,
  handle: ({ account, incoming, parts }) => {
    const { store, brand } = parts;
    const destination = incoming.target.path.slice("/v2/publish/".length);
    return publishOne(incoming, parts, { destination, account: account.id, store, brand });
  },
});

/** Publishes what a request brings, and answers it. */
export async function publishOne(incoming: Incoming, parts: Parts, of: PostingOf & MostQueues): Promise<Answer> {
  const { letter, ignored } = await readingStep(areOfStep(incoming.rawHeaders), () => readPosting(incoming, of));
  const { account, mostQueues } = of;
  const [result] = await of.store.execute("publish", { account, letters: [letter], mostQueues, ...scopeIn(incoming) });
  const results = result ? [result] : [];
  const headers = headersOfResults(results, refusedHostWarnings({ incoming, parts }, [letter], results));
  return { status: statusOf(result), body: publishedJson(result, letter, { mayRead: mayRead(incoming) }), ignored, headers };
}

/**
 * Returns the answer for one message. For a message to a URL group it is a list with an answer for each endpoint; the URLs are there only if the
 * token may read. Throws `Refusal` if the message was refused.
 */
export function publishedJson(result: PublishResult | undefined, { url }: Pick<Letter, "url">, of: { mayRead: boolean }): unknown {
  if (!result) throw new Error("publish: a letter has no answer");
  if ("refused" in result) throw new Refusal(result.refused, result.message, { allowance: result.allowance });
  return "each" in result
    ? result.each.map((one) => oneJson(one, of.mayRead ? one.url : undefined))
    : oneJson(result, result.deduplicated ? result.url : url);
}

const oneJson = ({ messageId, deduplicated, run }: Published, url: string | undefined): z.output<typeof published> => ({
  messageId,
  ...(run || url === undefined ? {} : { url }),
  ...(deduplicated ? { deduplicated: true as const } : {}),
});

/** 202 when nothing was stored, because older messages are the same. */
export const statusOf = (result: PublishResult | undefined): 200 | 202 => {
  const all = !result || "refused" in result ? [] : "each" in result ? result.each : [result];
  return all.length > 0 && all.every(({ deduplicated }) => deduplicated) ? 202 : 200;
};
