import { z } from "zod";
import { Refusal } from "../../core/errors.ts";
import { limits } from "../../core/limits.ts";
import type { HeaderList } from "../../core/message.ts";
import type { PublishResult } from "../../core/publish.ts";
import { brandOfToken, brandShown } from "../brand.ts";
import { sendersHeaders } from "../forward.ts";
import { givenByHeaders, givenByQuery, readSettings } from "../given.ts";
import { letterOf } from "../letter.ts";
import type { Incoming } from "../route.ts";
import { route } from "../route.ts";
import { checkDestination, destinationOf } from "../target.ts";

/** What a publish of one message is answered with. */
export const published = z.object({
  messageId: z.string().describe("The id of the message."),
  deduplicated: z.literal(true).optional().describe("An older message is the same as this one; the id is that of the older one."),
});

export const publish = route({
  method: "POST",
  path: "/v2/publish/{destination}",
  tag: "Publish",
  summary: "Publish a message",
  about:
    "Takes in one message, to be delivered to the destination. The rest of the path, and the query without the parameters of this interface, are the destination, byte for byte. The body and its content type are delivered as they come.",
  settings: "all",
  body: { about: "What is delivered. Any bytes.", contentType: "*/*", schema: z.string(), required: false, mostBytes: limits.messageBytes },
  answers: {
    200: { about: "The message is stored, and will be delivered.", schema: published },
    202: { about: "The same message was accepted before, so nothing new was stored.", schema: published },
  },
  refusals: ["not-found", "limit-exceeded"],
  handle: async ({ account, incoming, parts }) => {
    const { letter, ignored } = read(incoming);
    const [result] = await parts.store.execute("publish", { account: account.id, letters: [letter] });
    const body = publishedJson(result);
    return { status: body.deduplicated ? 202 : 200, body, ignored };
  },
});

function read(incoming: Incoming) {
  const { target, query, rawHeaders, body, callerIp, proof } = incoming;
  const { settings, brands, ignored } = readSettings(givenByHeaders(rawHeaders), givenByQuery(query.settings));
  const tokenBrand = query.tokenName === null ? null : brandOfToken(query.tokenName);
  const destination = checkDestination(destinationOf(target.path.slice("/v2/publish/".length), query.rest));
  const letter = letterOf({
    brand: brandShown(tokenBrand ? [...brands, tokenBrand] : brands),
    destination,
    body,
    content: contentHeaders(rawHeaders),
    senders: () => sendersHeaders(rawHeaders, proof),
    callerIp,
    settings,
  });
  return { letter, ignored };
}

/** What describes the bytes of the body goes where they go. */
function contentHeaders(rawHeaders: readonly string[]): HeaderList {
  const found: [string, string][] = [];
  for (const name of ["Content-Type", "Content-Encoding"]) {
    const at = rawHeaders.findIndex(
      (header, index) => index % 2 === 0 && header.length === name.length && header.toLowerCase() === name.toLowerCase(),
    );
    if (at >= 0) found.push([name, rawHeaders[at + 1] ?? ""]);
  }
  return found;
}

/** The answer for one letter. Throws `Refusal` when it was refused. */
export function publishedJson(result: PublishResult | undefined): z.output<typeof published> {
  if (!result) throw new Error("publish: a letter has no answer");
  if ("refused" in result) throw new Refusal(result.refused, result.message);
  return result.deduplicated ? { messageId: result.messageId, deduplicated: true } : { messageId: result.messageId };
}
