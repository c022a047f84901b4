import { z } from "zod";
import { Refusal } from "../../core/errors.ts";
import type { AccountId, Brand, Bytes, Group, HeaderList, Letter } from "../../core/message.ts";
import type { PublishResult } from "../../core/publish.ts";
import { brandOfToken, brandShown } from "../brand.ts";
import { forwardedHeader } from "../forward.ts";
import type { Store } from "../../store/store.ts";
import { givenByHeaders, readSettings, refuseOfSchedules } from "../given.ts";
import { readJson } from "../json.ts";
import { letterOf } from "../letter.ts";
import { checkFanOut, givenBy, groupAt } from "../posting.ts";
import { checkedObject } from "../readObject.ts";
import type { Incoming } from "../route.ts";
import { takeQueue } from "../room.ts";
import { route } from "../route.ts";
import { checkName, checkUrl, isUrl } from "../target.ts";
import { published, publishedJson, publishedToEach } from "./publish.ts";

/** At most so many messages in one request, all in one transaction. */
const mostItems = 10_000;

const item = z.strictObject({
  destination: z.string("is missing, or not a text").describe("A URL, not encoded, or the name of a URL group."),
  headers: z
    .record(z.string(), z.string("is not a text"))
    .optional()
    .describe("Settings of the message, and its content type. Names in any case."),
  body: z.string("is not a text").optional().describe("What is delivered, in UTF-8."),
  queue: z.string("is not a text").optional().describe("The queue that it goes through."),
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
  answers: {
    200: {
      about: "What became of each, in the order of the list; of one to a URL group, a list.",
      schema: z.array(z.union([published, publishedToEach, refused])),
    },
  },
  refusals: ["not-found", "limit-exceeded"],
  handle: async ({ account, incoming, parts }) => {
    const { store } = parts;
    const items = itemsOf(incoming);
    const takes = (queue: string): Promise<void> => takeQueue(parts, account.id, queue);
    const around = { incoming, brand: brandOf(incoming), ignored: new Set<string>(), groupAt: groupsOf(store, account.id), takes };
    const read: (Letter | Refusal)[] = [];
    for (const one of items) read.push(await attempt(() => letterOfItem(one, around)));
    const letters = read.flatMap((one) => (one instanceof Refusal ? [] : [one]));
    const results = letters.length === 0 ? [] : await store.execute("publish", { account: account.id, letters });
    return { status: 200, body: answersTo(read, results), ignored: [...around.ignored] };
  },
});

/** The URL groups of an account, each asked for once. Throws `Refusal` when all together would make too much of one request. */
function groupsOf(store: Store, account: AccountId): GroupAt {
  const known = new Map<string, Promise<Group>>();
  const made = { messages: 0, bytes: 0 };
  return async (destination, body) => {
    const asked = known.get(destination) ?? groupAt(store, account, destination);
    known.set(destination, asked);
    const group = await asked;
    checkFanOut(group, made, body);
    return group;
  };
}

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

type GroupAt = (destination: string, body: Bytes) => Promise<Group>;
type Around = { incoming: Incoming; brand: Brand; ignored: Set<string>; groupAt: GroupAt; takes(queue: string): Promise<void> };

async function letterOfItem(given: unknown, { incoming, brand, ignored, groupAt, takes }: Around): Promise<Letter> {
  const { destination, headers = {}, body: text = "", queue } = checkedObject(item, given, "message");
  const body = Buffer.from(text);
  const group = isUrl(destination) ? null : await groupAt(destination, body);
  if (group === null) checkUrl("destination", destination);
  const own = givenByHeaders(Object.entries(headers).flat());
  const { settings, ignored: unknown } = readSettings(own, givenBy(group?.headers));
  refuseOfSchedules(settings);
  for (const name of unknown) if (ignored.size < 100) ignored.add(name);
  if (queue !== undefined) await takes(checkName("queue", queue));
  return letterOf({
    brand: brandShown(
      own.map((one) => one.brand),
      brand,
    ),
    destination: group?.name ?? destination,
    queue: queue ?? null,
    body,
    content: contentOf(headers),
    // There is no request of its own whose headers could go along.
    senders: () => [],
    callerIp: incoming.callerIp,
    settings,
  });
}

function contentOf(headers: Readonly<Record<string, string>>): HeaderList {
  return Object.entries(headers).flatMap(([name, value]) => {
    const header = /^content-(type|encoding)$/i.test(name) ? forwardedHeader(name, name.toLowerCase(), value.trim()) : null;
    return header ? [header] : [];
  });
}

async function attempt(make: () => Promise<Letter>): Promise<Letter | Refusal> {
  try {
    return await make();
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
    return result && "refused" in result ? new Refusal(result.refused, result.message) : publishedJson(result, one);
  });
  const [first] = answers;
  if (first instanceof Refusal && answers.every((answer) => answer instanceof Refusal)) {
    throw new Refusal(first.code, `message 1 of ${answers.length}: ${first.message}`);
  }
  return answers.map((answer) => (answer instanceof Refusal ? { error: answer.message } : answer));
}
