import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import type { Account, AccountId, Brand, Bytes, Letter } from "../../../core/model/message.ts";
import type { InputOf } from "../../../core/commands/index.ts";
import type { PublishResult } from "../../../core/commands/publish.ts";
import { partsOf } from "../../../core/fairness/weight.ts";
import { brandedHeader } from "../../http/brand.ts";
import type { Store } from "../../../store/store.ts";
import { givenByHeaders, givenByQuery } from "../../settings/grammar.ts";
import { swallowed } from "../../settings/table.ts";
import { memberTexts, readJsonList } from "../../http/json.ts";
import { contentOf } from "../../settings/message.ts";
import type { GroupAimed, Purpose } from "../../publishing/read.ts";
import { brandFor, brandOtherwise, brandsOfToken, checkFanOut, givenBy, groupAt, postingFrom } from "../../publishing/read.ts";
import { headersOfResults } from "../../http/allowanceHeaders.ts";
import { checkedObject } from "../../route/readObject.ts";
import { refusedHostWarnings } from "../../publishing/refusedHosts.ts";
import type { Incoming, Parts } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { mayRead, scopeIn } from "../../route/scope.ts";
import { areOfStep, readingStep } from "../../publishing/stepRefusal.ts";
import { checkName, checkUrl, isUrl } from "../../http/target.ts";
import { published, publishedJson, publishedToEach } from "./publish.ts";

/** Most messages in one request. */
const mostItems = 10_000;

const item = z.strictObject({
  destination: z.string("is missing, or not a text").describe("A URL, not encoded, or the name of a URL group."),
  headers: z
    .record(z.string(), z.union([z.string(), z.array(z.string())], "is neither a text nor a list of texts"))
    .nullish()
    .describe("Settings of the message, and its content type. Names in any case, each with a value or a list of values."),
  body: z
    .union([z.string(), z.record(z.string(), z.unknown()), z.array(z.unknown())], "is neither a text, nor a JSON object or list")
    .nullish()
    .describe("The body to deliver, in UTF-8. A JSON object or list is delivered as its JSON text, as it is written here."),
  queue: z
    .string("is not a text")
    .nullish()
    .describe('The queue that it goes through. As for all members, null and "" mean that it is not given.'),
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
  onFastPath: true,
  unaudited: "it publishes, which the log of messages tells",
  tag: "Publish",
  summary: "Publish many messages",
  about:
    "Takes in a list of messages. A message that is refused does not stop the others. A long list is stored in parts; if the server ends or refuses in the middle, the parts before that are stored. When all are refused, the answer is the refusal of the first. When one of a workflow run is refused, so is the whole list. A member that is null or an empty text is not given. An unknown member is refused; for a message of the other brand it is passed over, and named in Waypost-Ignored.",
  needs: "publish",
  looksAtScope: true,
  body: batchBody,
  answers: {
    200: {
      about: "What became of each, in the order of the list; of one to a URL group, a list.",
      schema: z.array(z.union([published, publishedToEach, refused])),
    },
  },
  refusals: ["not-found", "limit-exceeded", "day-limit-exceeded", "storage-quota-exceeded", "step-refused", "forbidden"],
  handle: async ({ account, incoming, parts }) => {
    const { store, mostQueues } = parts;
    const { read, ignored } = await readItems(incoming, { account, parts, purpose: "messages" });
    const letters = read.flatMap((one) => (one instanceof Refusal ? [] : [one]));
    const results = await publishInParts(store, letters, { account: account.id, mostQueues, ...scopeIn(incoming) });
    const warnings = refusedHostWarnings({ incoming, parts }, letters, results);
    return {
      status: 200,
      body: answersTo(read, results, { mayRead: mayRead(incoming) }),
      ignored,
      headers: headersOfResults(results, warnings),
    };
  },
});

/**
 * Publishes a list part by part, so that other callers do not wait for all of it. If a later part cannot be stored, the refusal names the first
 * message that was not stored. A caller that sends the whole list again without deduplication ids publishes the earlier messages twice.
 */
async function publishInParts(
  store: Store,
  letters: readonly Letter[],
  of: Omit<InputOf<"publish">, "letters">,
): Promise<readonly PublishResult[]> {
  const results: PublishResult[] = [];
  for (const part of letters.length === 0 ? [] : partsOf(letters)) {
    try {
      results.push(...(await store.execute("publish", { ...of, letters: part })));
    } catch (error) {
      if (!(error instanceof Refusal) || results.length === 0) throw error;
      const [first, last] = [results.length + 1, letters.length];
      throw new Refusal(error.code, `messages ${first} to ${last} of the list: ${error.message}; those before them were processed`, error);
    }
  }
  return results;
}

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
  const items = await itemsOf(incoming, of);
  const isStep = items.some(isOfRun) && items.some(({ headers }) => areOfStep(headers));
  return readingStep(isStep, () => readEach(items, incoming, of));
}

/**
 * An item of the list. `given`: with the members that say something. `strangers`: those that are unknown. `headers`: names and values in turn, as
 * far as they can be read.
 */
type Item = { given: unknown; strangers: Readonly<Record<string, unknown>>; headers: readonly string[] };

async function readEach(items: readonly Item[], incoming: Incoming, of: ReadingOf): Promise<ReadItems> {
  const { account, parts, purpose } = of;
  const ignored = new Set(ignoredHeadersOf(incoming));
  const shown = brandsShownBy(incoming);
  const otherwise = brandOtherwise(purpose, parts.brand);
  const around: Around = { incoming, shown, otherwise, purpose, ignored, groupAt: groupsOf(parts.store, account.id) };
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

/** Unknown members of an item that are read: the first one is refused, or some are named as ignored. */
const mostStrangers = 100;

/** Takes an item apart. Some clients send every member that there is, and `null` or `""` for those that they have nothing for. */
function itemOf(given: unknown): Item {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return { given, strangers: {}, headers: [] };
  const members: Record<string, unknown> = {};
  const strangers: [name: string, value: unknown][] = [];
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === "") continue;
    if (Object.hasOwn(item.shape, name)) members[name] = value;
    else if (strangers.length < mostStrangers) strangers.push([name, value]);
  }
  return { given: members, strangers: Object.fromEntries(strangers), headers: headersIn(members["headers"]) };
}

function headersIn(given: unknown): readonly string[] {
  const headers: string[] = [];
  if (typeof given !== "object" || given === null) return headers;
  for (const [name, value] of Object.entries(given)) {
    if (headers.length > 2 * mostHeaders) break;
    const values: unknown[] = Array.isArray(value) ? value : [value];
    // A message with more than there may be is refused, however many there are.
    for (const one of values.slice(0, mostHeaders + 1)) headers.push(name, typeof one === "string" ? one : isPlain(one) ? String(one) : "");
  }
  return headers;
}

const isPlain = (value: unknown): value is number | boolean => typeof value === "number" || typeof value === "boolean";

/** Whether it is what the schema takes, as nearly all are. The schema takes five times as long to find out, and says what is wrong with others. */
function isItem(given: unknown): given is z.output<typeof item> {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return false;
  const { destination, headers, body, queue }: { [N in keyof typeof item.shape]?: unknown } = given;
  const isTextOrNone = (value: unknown): boolean => value === undefined || typeof value === "string";
  return typeof destination === "string" && isTextOrNone(body) && isTextOrNone(queue) && (headers === undefined || areTexts(headers));
}

const isText = (value: unknown): boolean => typeof value === "string";

const areTexts = (headers: unknown): boolean =>
  typeof headers === "object" &&
  headers !== null &&
  !Array.isArray(headers) &&
  Object.values(headers).every((value) => isText(value) || (Array.isArray(value) && value.every(isText)));

function refusalOf(answers: readonly unknown[], at: number): Refusal {
  const refusal = answers[at];
  if (!(refusal instanceof Refusal)) throw new Error("batch: nothing was refused");
  return new Refusal(refusal.code, `message ${at + 1} of ${answers.length}: ${refusal.message}`, refusal);
}

/** The URL groups of an account, each asked for once. Throws `Refusal` when all together would make too much of one request. */
function groupsOf(store: Store, account: AccountId): GroupAt {
  const known = new Map<string, Promise<GroupAimed>>();
  const made = { messages: 0, bytes: 0 };
  return async (destination, body) => {
    const asked = known.get(destination) ?? groupAt(store, account, destination);
    known.set(destination, asked);
    const aimed = await asked;
    checkFanOut(aimed.group, made, body);
    return aimed;
  };
}

async function itemsOf({ body }: Incoming, { account, parts: { longWork } }: ReadingOf): Promise<Item[]> {
  if (body.length === 0) throw new Refusal("invalid", "body: missing; give a JSON list of messages");
  let [items, names] = [0, 0];
  const make = (given: unknown[], text: Bytes): Item[] => {
    items += given.length;
    if (items > mostItems) return [];
    const read = given.map(itemOf);
    names += read.reduce((sum, { headers }) => sum + headers.length / 2, 0);
    if (names > mostNames) throw new Refusal("invalid", `body: more than ${mostNames} headers of messages; send them in several requests`);
    return read.some(({ given }) => isStructured(given)) ? withTexts(read, memberTexts(text, "body")) : read;
  };
  const read = await readJsonList(body, { longWork, owner: account.id, most: { names: mostNames }, make });
  if (read === null) throw new Refusal("invalid", "body: not a JSON list of messages");
  if (items > mostItems) throw new Refusal("invalid", `body: ${items} messages, the limit is ${mostItems}; send them in several requests`);
  return read;
}

const isStructured = (given: unknown): given is { body: object } =>
  typeof given === "object" && given !== null && "body" in given && typeof given.body === "object";

/** Bodies that are JSON themselves are delivered as they were written. */
const withTexts = (items: readonly Item[], texts: ReadonlyMap<number, string>): Item[] =>
  items.map((one, at) => (isStructured(one.given) ? { ...one, given: { ...one.given, body: texts.get(at) } } : one));

/** The brands that the request itself shows hold for messages that show none. */
const brandsShownBy = ({ rawHeaders, query }: Incoming): readonly Brand[] => [
  ...givenByHeaders(rawHeaders).map(({ brand }) => brand),
  ...brandsOfToken(query.tokenName),
];

type GroupAt = (destination: string, body: Bytes) => Promise<GroupAimed>;
type Around = {
  incoming: Incoming;
  shown: readonly Brand[];
  otherwise: Brand;
  purpose: Purpose;
  ignored: Set<string>;
  groupAt: GroupAt;
};

async function letterOfItem({ given, strangers, headers }: Item, around: Around): Promise<Letter> {
  const { incoming, purpose, ignored, groupAt } = around;
  const count = headers.length / 2;
  if (count > mostHeaders) throw new Refusal("invalid", `headers: there are more than ${mostHeaders}, the limit`);
  const { destination, body: text = "", queue } = isItem(given) ? given : checkedObject(item, given, "message");
  const body = Buffer.from(typeof text === "string" ? text : "");
  const aimed = isUrl(destination) || purpose === "triggers" ? null : await groupAt(destination, body);
  if (aimed === null) checkUrl("destination", destination);
  const own = [givenByHeaders(headers), givenByQuery(aimed?.settings ?? [])];
  const ofGroup = givenBy(aimed?.group.headers);
  const shown = [...own.flat().map(({ brand }) => brand), ...brandsOfToken(aimed?.tokenName ?? null)];
  const brand = brandFor([shown, around.shown, ofGroup.map((one) => one.brand)], around.otherwise);
  const passedOver = strangersPassedOver({ given, strangers }, brand);
  if (queue) checkName("queue", queue);
  const posting = postingFrom(purpose, [...own, ofGroup], {
    brand,
    destination: aimed?.group.name ?? destination,
    query: aimed?.query ?? null,
    queue: queue ?? null,
    body,
    content: contentOf(headers),
    // There is no request of its own whose headers could go along.
    senders: () => [],
    callerIp: incoming.callerIp,
  });
  for (const name of [...passedOver, ...posting.ignored]) if (ignored.size < 100) ignored.add(name);
  return posting.letter;
}

/** Members that are unknown are like settings that are: the other brand passes over them. Throws `Refusal` for the neutral one. */
function strangersPassedOver({ given, strangers }: Pick<Item, "given" | "strangers">, brand: Brand): string[] {
  const names = Object.keys(strangers);
  if (names.length > 0 && brand === "svc") checkedObject(item, Object.assign(Object.create(null), strangers, given), "message");
  return names;
}

async function attempt(make: () => Promise<Letter>): Promise<Letter | Refusal> {
  try {
    return await make();
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}

function answersTo(read: readonly (Letter | Refusal)[], results: readonly PublishResult[], of: { mayRead: boolean }): unknown[] {
  let next = 0;
  const answers = read.map((one) => {
    if (one instanceof Refusal) return one;
    const result = results[next++];
    return result && "refused" in result
      ? new Refusal(result.refused, result.message, { allowance: result.allowance })
      : publishedJson(result, one, of);
  });
  const [first] = answers;
  if (first instanceof Refusal && answers.every((answer) => answer instanceof Refusal)) throw refusalOf(answers, 0);
  return answers.map((answer) => (answer instanceof Refusal ? { error: answer.message } : answer));
}
