import { z } from "zod";
import { Refusal } from "../../core/errors.ts";
import type { Brand, HeaderList, Letter } from "../../core/message.ts";
import type { PublishResult } from "../../core/publish.ts";
import { brandOfToken, brandShown } from "../brand.ts";
import { forwardedHeader } from "../forward.ts";
import { givenByHeaders, readSettings } from "../given.ts";
import { readJson } from "../json.ts";
import { letterOf } from "../letter.ts";
import type { Incoming } from "../route.ts";
import { route } from "../route.ts";
import { checkDestination } from "../target.ts";
import { published, publishedJson } from "./publish.ts";

/** At most so many messages in one request, all in one transaction. */
const mostItems = 10_000;

const item = z.strictObject({
  destination: z.string("is missing, or not a text").describe("A URL, not encoded."),
  headers: z
    .record(z.string(), z.string("is not a text"))
    .optional()
    .describe("Settings of the message, and its content type. Names in any case."),
  body: z.string("is not a text").optional().describe("What is delivered, in UTF-8."),
  queue: z.string("is not a text").optional().describe("Not available in this version."),
});

const refused = z.object({ error: z.string().describe("Why this one was not taken.") });

export const batch = route({
  method: "POST",
  path: "/v2/batch",
  tag: "Publish",
  summary: "Publish many messages",
  about:
    "Takes in a list of messages. One that is refused does not stop the others. When all are refused, the answer is the refusal of the first.",
  body: {
    about: `A list of at most ${mostItems} messages.`,
    contentType: "application/json",
    schema: z.array(item).max(mostItems),
    required: true,
    mostBytes: 100 * 1024 * 1024,
  },
  answers: { 200: { about: "What became of each, in the order of the list.", schema: z.array(z.union([published, refused])) } },
  refusals: ["not-found", "limit-exceeded"],
  handle: async ({ account, incoming, parts }) => {
    const items = itemsOf(incoming);
    const ignored = new Set<string>();
    const brand = brandOf(incoming);
    const read = items.map((one) => attempt(() => letterOfItem(one, { incoming, brand, ignored })));
    const letters = read.flatMap((one) => (one instanceof Refusal ? [] : [one]));
    const results = letters.length === 0 ? [] : await parts.store.execute("publish", { account: account.id, letters });
    return { status: 200, body: answersTo(read, results), ignored: [...ignored] };
  },
});

function itemsOf({ body }: Incoming): unknown[] {
  if (body.length === 0) throw new Refusal("invalid", "body: missing; give a JSON list of messages");
  const items = readJson(body);
  if (!Array.isArray(items)) throw new Refusal("invalid", "body: not a JSON list of messages");
  if (items.length > mostItems)
    throw new Refusal("invalid", `body: ${items.length} messages, the limit is ${mostItems}; send them in several requests`);
  return items;
}

/** The brand of the request holds for messages that show none themselves. */
function brandOf({ rawHeaders, query }: Incoming): Brand {
  const token = query.tokenName === null ? null : brandOfToken(query.tokenName);
  const shown = givenByHeaders(rawHeaders).map(({ brand }) => brand);
  return brandShown(token ? [...shown, token] : shown);
}

type Around = { incoming: Incoming; brand: Brand; ignored: Set<string> };

function letterOfItem(given: unknown, { incoming, brand, ignored }: Around): Letter {
  const { destination, headers = {}, body = "", queue } = checked(given);
  if (queue !== undefined) throw new Refusal("invalid", "queue: queues are not available in this version");
  const url = checkDestination(destination);
  const list = Object.entries(headers).flat();
  const read = readSettings(givenByHeaders(list), []);
  for (const name of read.ignored) if (ignored.size < 100) ignored.add(name);
  return letterOf({
    brand: brandShown(read.brands, brand),
    destination: url,
    body: Buffer.from(body),
    content: contentOf(headers),
    // There is no request of its own whose headers could go along.
    senders: () => [],
    callerIp: incoming.callerIp,
    settings: read.settings,
  });
}

function checked(given: unknown): z.output<typeof item> {
  const result = item.safeParse(given);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const where = issue?.code === "unrecognized_keys" ? issue.keys[0] : issue?.path.join(".");
  const problem =
    issue?.code === "unrecognized_keys" ? "there is no such field; there are destination, headers, body, queue" : issue?.message;
  throw new Refusal("invalid", `${(where || "message").slice(0, 200)}: ${problem ?? "is not valid"}`);
}

function contentOf(headers: Readonly<Record<string, string>>): HeaderList {
  return Object.entries(headers).flatMap(([name, value]) => {
    const header = /^content-(type|encoding)$/i.test(name) ? forwardedHeader(name, name.toLowerCase(), value.trim()) : null;
    return header ? [header] : [];
  });
}

function attempt(make: () => Letter): Letter | Refusal {
  try {
    return make();
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}

function answersTo(read: readonly (Letter | Refusal)[], results: readonly PublishResult[]): unknown[] {
  let next = 0;
  const answers = read.map((one) => {
    if (one instanceof Refusal) return one;
    const result = results[next++];
    return result && "refused" in result ? new Refusal(result.refused, result.message) : publishedJson(result);
  });
  const [first] = answers;
  if (first instanceof Refusal && answers.every((answer) => answer instanceof Refusal)) {
    throw new Refusal(first.code, `message 1 of ${answers.length}: ${first.message}`);
  }
  return answers.map((answer) => (answer instanceof Refusal ? { error: answer.message } : answer));
}
