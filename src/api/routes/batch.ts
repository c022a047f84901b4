import { z } from "zod";
import { Refusal } from "../../core/errors.ts";
import type { Account, AccountId, Brand, Bytes, Group, Letter } from "../../core/message.ts";
import type { PublishResult } from "../../core/publish.ts";
import { brandedHeader, brandOfToken, brandShown } from "../brand.ts";
import type { Store } from "../../store/store.ts";
import { givenByHeaders } from "../given.ts";
import { swallowed } from "../settings.ts";
import { readJson } from "../json.ts";
import { contentOf } from "../letter.ts";
import type { Purpose } from "../posting.ts";
import { brandOtherwise, checkFanOut, givenBy, groupAt, postingFrom } from "../posting.ts";
import { headersOfResults } from "../allowanceHeaders.ts";
import { checkedObject } from "../readObject.ts";
import { refusedHostWarnings } from "../refusedHosts.ts";
import type { Incoming, Parts } from "../route.ts";
import { route } from "../route.ts";
import { scopeIn } from "../scope.ts";
import { areOfStep, readingStep } from "../stepRefusal.ts";
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
  body: z.string("is not a text; give JSON as a string").optional().describe("What is delivered, in UTF-8."),
  queue: z.string("is not a text").optional().describe("The queue that it goes through."),
});

/** What routes that take a list have for a body. */
export const batchBody = {
  about: `A list of at most ${mostItems} messages.`,
  contentType: "application/json",
  schema: z.array(item).max(mostItems),
  required: true,
  mostBytes: 100 * 1024 * 1024,
};

const refused = z.object({ error: z.string().describe("Why this one was not taken.") });

export const batch = route({
  method: "POST",
  path: "/v2/batch",
  operation: "step",
  unaudited: "it publishes, which the log of messages tells",
  tag: "Publish",
  summary: "Publish many messages",
  about:
    "Takes in a list of messages. One that is refused does not stop the others. When all are refused, the answer is the refusal of the first. When one of a workflow run is refused, so is the whole list.",
  needs: "publish",
  looksAtScope: true,
  body: batchBody,
  answers: {
    200: {
      about: "What became of each, in the order of the list; of one to a URL group, a list.",
      schema: z.array(z.union([published, publishedToEach, refused])),
    },
  },
  refusals: ["not-found", "limit-exceeded", "day-limit-exceeded", "step-refused", "forbidden"],
  handle: async ({ account, incoming, parts }) => {
    const { store, mostQueues } = parts;
    const { read, ignored } = await readItems(incoming, { account, parts, purpose: "messages" });
    const letters = read.flatMap((one) => (one instanceof Refusal ? [] : [one]));
    const results =
      letters.length === 0 ? [] : await store.execute("publish", { account: account.id, letters, mostQueues, ...scopeIn(incoming) });
    const warnings = refusedHostWarnings({ incoming, parts }, letters, results);
    return { status: 200, body: answersTo(read, results), ignored, headers: headersOfResults(results, warnings) };
  },
});

/** Read in one turn; then others have theirs. Some items take milliseconds, and leases are to be renewed meanwhile. */
const itemsInATurn = 16;
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Of one item: more than any request could have, whose headers the server bounds. To look at each of a million takes seconds. */
const mostHeaders = 10_000;

/** Of all items together, 30 for each of the most that there may be. To read a million different ones takes the time of others. */
const mostNames = 30 * mostItems;

/** How the items of a batch are read: whose they are, and what for. */
type ReadingOf = { account: Account; parts: Parts; purpose: Purpose };
type ReadItems = { read: (Letter | Refusal)[]; ignored: string[] };

/** Reads the items of a batch, each for itself. Throws `Refusal` where one that belongs to a workflow run is refused: a run is told of all or nothing. */
export async function readItems(incoming: Incoming, of: ReadingOf): Promise<ReadItems> {
  const items = itemsOf(incoming).map((given): Item => ({ given, headers: headersIn(given) }));
  const isStep = items.some(isOfRun) && items.some(({ headers }) => areOfStep(headers));
  return readingStep(isStep, () => readEach(items, incoming, of));
}

/** As it was given, and its headers, names and values in turn, as far as it can be seen. */
type Item = { given: unknown; headers: readonly string[] };

async function readEach(items: readonly Item[], incoming: Incoming, of: ReadingOf): Promise<ReadItems> {
  const { account, parts, purpose } = of;
  const ignored = new Set(ignoredHeadersOf(incoming));
  const brand = brandOf(incoming, brandOtherwise(purpose, parts.brand));
  const around: Around = { incoming, brand, purpose, ignored, groupAt: groupsOf(parts.store, account.id) };
  const read: (Letter | Refusal)[] = [];
  for (const one of items) {
    if (read.length % itemsInATurn === itemsInATurn - 1) await turn();
    read.push(await attempt(() => letterOfItem(one, around)));
  }
  const first = read.findIndex((one, at) => one instanceof Refusal && (purpose === "triggers" || items.slice(at, at + 1).some(isOfRun)));
  if (first >= 0) throw refusalOf(read, first);
  return { read, ignored: [...around.ignored] };
}

/** A setting among the headers of the request itself would hold for none of its messages. Those of the other brand are passed over, and answered. */
function ignoredHeadersOf({ rawHeaders }: Incoming): string[] {
  const given = givenByHeaders(rawHeaders).filter(({ name }) => !swallowed.test(name));
  const stranger = given.find(({ brand }) => brand === "svc");
  if (stranger)
    throw new Refusal(
      "invalid",
      `${stranger.written.slice(0, 200)}: this request takes no settings of messages; give them in the headers of each`,
    );
  return given.map(({ written }) => written.toLowerCase());
}

/** Whether an item is meant for a workflow run, also if it cannot be read. */
const isOfRun = ({ headers }: Item): boolean => headers.some((name, at) => at % 2 === 0 && brandedHeader(name)?.name === "workflow-runid");

function headersIn(item: unknown): readonly string[] {
  const given = typeof item === "object" && item !== null && "headers" in item ? item.headers : null;
  const headers: string[] = [];
  if (typeof given === "object" && given !== null)
    for (const [name, value] of Object.entries(given)) headers.push(name, typeof value === "object" ? "" : String(value));
  return headers;
}

/** Whether it is what the schema takes, as nearly all are. The schema takes five times as long to find out, and says what is wrong with others. */
function isItem(given: unknown): given is z.output<typeof item> {
  if (typeof given !== "object" || given === null) return false;
  for (const name of Object.keys(given)) if (!Object.hasOwn(item.shape, name)) return false;
  const { destination, headers, body, queue }: { [N in keyof typeof item.shape]?: unknown } = given;
  const isTextOrNone = (value: unknown): boolean => value === undefined || typeof value === "string";
  return typeof destination === "string" && isTextOrNone(body) && isTextOrNone(queue) && (headers === undefined || areTexts(headers));
}

const areTexts = (headers: unknown): boolean =>
  typeof headers === "object" &&
  headers !== null &&
  !Array.isArray(headers) &&
  Object.values(headers).every((value) => typeof value === "string");

function refusalOf(answers: readonly unknown[], at: number): Refusal {
  const refusal = answers[at];
  if (!(refusal instanceof Refusal)) throw new Error("batch: nothing was refused");
  return new Refusal(refusal.code, `message ${at + 1} of ${answers.length}: ${refusal.message}`, refusal);
}

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
  const items = readJson(body, mostNames);
  if (!Array.isArray(items)) throw new Refusal("invalid", "body: not a JSON list of messages");
  if (items.length > mostItems)
    throw new Refusal("invalid", `body: ${items.length} messages, the limit is ${mostItems}; send them in several requests`);
  return items;
}

/** The brand of the request holds for messages that show none themselves. */
function brandOf({ rawHeaders, query }: Incoming, otherwise: Brand): Brand {
  const token = query.tokenName === null ? null : brandOfToken(query.tokenName);
  const shown = givenByHeaders(rawHeaders).map(({ brand }) => brand);
  return brandShown(token ? [...shown, token] : shown, otherwise);
}

type GroupAt = (destination: string, body: Bytes) => Promise<Group>;
type Around = {
  incoming: Incoming;
  brand: Brand;
  purpose: Purpose;
  ignored: Set<string>;
  groupAt: GroupAt;
};

async function letterOfItem({ given, headers }: Item, { incoming, brand, purpose, ignored, groupAt }: Around): Promise<Letter> {
  const count = headers.length / 2;
  if (count > mostHeaders) throw new Refusal("invalid", `headers: there are ${count}, the limit is ${mostHeaders}`);
  const { destination, body: text = "", queue } = isItem(given) ? given : checkedObject(item, given, "message");
  const body = Buffer.from(text);
  const group = isUrl(destination) || purpose === "triggers" ? null : await groupAt(destination, body);
  if (group === null) checkUrl("destination", destination);
  const own = givenByHeaders(headers);
  const brands = own.map((one) => one.brand);
  if (queue !== undefined) checkName("queue", queue);
  const posting = postingFrom(purpose, [own, givenBy(group?.headers)], {
    brand: brandShown(brands, brand),
    destination: group?.name ?? destination,
    queue: queue ?? null,
    body,
    content: contentOf(headers),
    // There is no request of its own whose headers could go along.
    senders: () => [],
    callerIp: incoming.callerIp,
  });
  for (const name of posting.ignored) if (ignored.size < 100) ignored.add(name);
  return posting.letter;
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
    return result && "refused" in result
      ? new Refusal(result.refused, result.message, { allowance: result.allowance })
      : publishedJson(result, one);
  });
  const [first] = answers;
  if (first instanceof Refusal && answers.every((answer) => answer instanceof Refusal)) throw refusalOf(answers, 0);
  return answers.map((answer) => (answer instanceof Refusal ? { error: answer.message } : answer));
}
