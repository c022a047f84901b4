import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import type { Account, AccountId, Brand, Bytes, MessageInput } from "../../../core/model/message.ts";
import type { CommandInput } from "../../../core/commands/index.ts";
import type { PublishResult } from "../../../core/commands/publish.ts";
import { splitInputs } from "../../../core/fairness/weight.ts";
import { parseBrandedHeader } from "../../http/brand.ts";
import type { Store } from "../../../store/store.ts";
import { listHeaderSettings, listQuerySettings } from "../../settings/grammar.ts";
import { ignoredSettings } from "../../settings/table.ts";
import { readMemberTexts, readJsonList } from "../../http/json.ts";
import { listContentHeaders } from "../../settings/message.ts";
import type { GroupTarget, Purpose } from "../../publishing/read.ts";
import {
  pickFirstBrand,
  defaultBrand,
  listTokenBrands,
  checkFanOut,
  listKeptSettings,
  findGroup,
  makePublishRequest,
} from "../../publishing/read.ts";
import { makeResultHeaders } from "../../http/rateLimitHeaders.ts";
import { parseObject } from "../../route/readObject.ts";
import { makePublishWarnings } from "../../publishing/refusedHosts.ts";
import type { IncomingRequest, RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { mayRead, readScope } from "../../route/scope.ts";
import { isStepRequest, readStep } from "../../publishing/stepRefusal.ts";
import { checkName, checkUrl, isUrl } from "../../http/target.ts";
import { publishedSchema, publishedJson, publishedToEachSchema } from "./publish.ts";

/** Most messages in one request. */
const maxItems = 10_000;

const itemSchema = z.strictObject({
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
  about: `A list of at most ${maxItems} messages.`,
  contentType: "application/json",
  schema: z.array(itemSchema).max(maxItems),
  required: true,
  maxBytes: 100 * 1024 * 1024,
};

const refusedSchema = z.object({ error: z.string().describe("Why this one was not taken.") });

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
      schema: z.array(z.union([publishedSchema, publishedToEachSchema, refusedSchema])),
    },
  },
  refusals: ["not-found", "limit-exceeded", "day-limit-exceeded", "storage-quota-exceeded", "step-refused", "forbidden"],
  handle: async ({ account, incoming, context }) => {
    const { store, maxQueues } = context;
    const { read, ignored } = await readItems(incoming, { account, context, purpose: "messages" });
    const inputs = read.flatMap((one) => (one instanceof Refusal ? [] : [one]));
    const results = await publishInParts(store, inputs, { account: account.id, maxQueues, ...readScope(incoming) });
    const warnings = makePublishWarnings({ incoming, context }, inputs, results);
    return {
      status: 200,
      body: toResponses(read, results, { mayRead: mayRead(incoming) }),
      ignored,
      headers: makeResultHeaders(results, warnings),
    };
  },
});

/**
 * Publishes a list part by part, so that other callers do not wait for all of it. If a later part cannot be stored, the refusal names the first
 * message that was not stored. A caller that sends the whole list again without deduplication ids publishes the earlier messages twice.
 */
async function publishInParts(
  store: Store,
  letters: readonly MessageInput[],
  publishInput: Omit<CommandInput<"publish">, "inputs">,
): Promise<readonly PublishResult[]> {
  const results: PublishResult[] = [];
  for (const part of letters.length === 0 ? [] : splitInputs(letters)) {
    try {
      results.push(...(await store.execute("publish", { ...publishInput, inputs: part })));
    } catch (error) {
      if (!(error instanceof Refusal) || results.length === 0) throw error;
      const first = results.length + 1;
      const last = letters.length;
      throw new Refusal(error.code, `messages ${first} to ${last} of the list: ${error.message}; those before them were processed`, error);
    }
  }
  return results;
}

/** Read in one turn; then others have theirs. Some items take milliseconds, and leases are to be renewed meanwhile. */
const itemsPerTurn = 16;
const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Of one item: more than any request could have, whose headers the server bounds. To look at each of a million takes seconds. */
const maxHeaders = 10_000;

/** Of all items together, 30 for each of the most that there may be. To read a million different ones takes the time of others. */
const maxNames = 30 * maxItems;

/** How the items of a batch are read: whose they are, and what for. */
type BatchContext = { account: Account; context: RouteContext; purpose: Purpose };
type ReadItems = { read: (MessageInput | Refusal)[]; ignored: string[] };

/** Reads the items of a batch, each for itself. Throws `Refusal` where one that belongs to a workflow run is refused: a run is told of all or nothing. */
export async function readItems(incoming: IncomingRequest, batchContext: BatchContext): Promise<ReadItems> {
  const items = await parseItems(incoming, batchContext);
  const isStep = items.some(isRunItem) && items.some(({ headers }) => isStepRequest(headers));
  return readStep(isStep, () => readEach(items, incoming, batchContext));
}

/**
 * An item of the list. `given`: with the members that say something. `strangers`: those that are unknown. `headers`: names and values in turn, as
 * far as they can be read.
 */
type Item = { given: unknown; unknownMembers: Readonly<Record<string, unknown>>; headers: readonly string[] };

async function readEach(items: readonly Item[], incoming: IncomingRequest, batchContext: BatchContext): Promise<ReadItems> {
  const { account, context, purpose } = batchContext;
  const ignored = new Set(listIgnoredHeaders(incoming));
  const requestBrands = listRequestBrands(incoming);
  const fallbackBrand = defaultBrand(purpose, context.brand);
  const itemContext: ItemContext = {
    incoming,
    requestBrands,
    fallbackBrand,
    purpose,
    ignored,
    findCachedGroup: createGroupFinder(context.store, account.id),
  };
  const read: (MessageInput | Refusal)[] = [];
  for (const one of items) {
    if (read.length % itemsPerTurn === itemsPerTurn - 1) await nextTurn();
    read.push(await catchRefusal(() => readItem(one, itemContext)));
  }
  const first = read.findIndex((one, at) => one instanceof Refusal && (purpose === "triggers" || items.slice(at, at + 1).some(isRunItem)));
  if (first >= 0) throw makeItemRefusal(read, first);
  return { read, ignored: [...itemContext.ignored] };
}

/** A setting among the headers of the request itself would hold for none of its messages. Those of the other brand are passed over, and answered. */
function listIgnoredHeaders({ rawHeaders }: IncomingRequest): string[] {
  const given = listHeaderSettings(rawHeaders).filter(({ name }) => !ignoredSettings.test(name));
  const unsupported = given.find(({ brand }) => brand === "svc");
  if (unsupported)
    throw new Refusal(
      "invalid",
      `${unsupported.written.slice(0, 200)}: this request takes no settings of messages; give them in the headers of each`,
    );
  return given.map(({ written }) => written.toLowerCase());
}

/** Whether an item is meant for a workflow run, also if it cannot be read. */
const isRunItem = ({ headers }: Item): boolean =>
  headers.some((name, at) => at % 2 === 0 && parseBrandedHeader(name)?.name === "workflow-runid");

/** Unknown members of an item that are read: the first one is refused, or some are named as ignored. */
const maxUnknownMembers = 100;

/** Takes an item apart. Some clients send every member that there is, and `null` or `""` for those that they have nothing for. */
function toItem(given: unknown): Item {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return { given, unknownMembers: {}, headers: [] };
  const members: Record<string, unknown> = {};
  const unknownMembers: [name: string, value: unknown][] = [];
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === "") continue;
    if (Object.hasOwn(itemSchema.shape, name)) members[name] = value;
    else if (unknownMembers.length < maxUnknownMembers) unknownMembers.push([name, value]);
  }
  return { given: members, unknownMembers: Object.fromEntries(unknownMembers), headers: listHeaders(members["headers"]) };
}

function listHeaders(given: unknown): readonly string[] {
  const headers: string[] = [];
  if (typeof given !== "object" || given === null) return headers;
  for (const [name, value] of Object.entries(given)) {
    if (headers.length > 2 * maxHeaders) break;
    const values: unknown[] = Array.isArray(value) ? value : [value];
    // A message with more than there may be is refused, however many there are.
    for (const one of values.slice(0, maxHeaders + 1))
      headers.push(name, typeof one === "string" ? one : isNumberOrBoolean(one) ? String(one) : "");
  }
  return headers;
}

const isNumberOrBoolean = (value: unknown): value is number | boolean => typeof value === "number" || typeof value === "boolean";

/** Whether it is what the schema takes, as nearly all are. The schema takes five times as long to find out, and says what is wrong with others. */
function isItem(given: unknown): given is z.output<typeof itemSchema> {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return false;
  const { destination, headers, body, queue }: { [N in keyof typeof itemSchema.shape]?: unknown } = given;
  const isTextOrNone = (value: unknown): boolean => value === undefined || typeof value === "string";
  return typeof destination === "string" && isTextOrNone(body) && isTextOrNone(queue) && (headers === undefined || areHeaderTexts(headers));
}

const isText = (value: unknown): boolean => typeof value === "string";

const areHeaderTexts = (headers: unknown): boolean =>
  typeof headers === "object" &&
  headers !== null &&
  !Array.isArray(headers) &&
  Object.values(headers).every((value) => isText(value) || (Array.isArray(value) && value.every(isText)));

function makeItemRefusal(results: readonly unknown[], at: number): Refusal {
  const refusal = results[at];
  if (!(refusal instanceof Refusal)) throw new Error("batch: nothing was refused");
  return new Refusal(refusal.code, `message ${at + 1} of ${results.length}: ${refusal.message}`, refusal);
}

/** The URL groups of an account, each asked for once. Throws `Refusal` when all together would make too much of one request. */
function createGroupFinder(store: Store, account: AccountId): GroupFinder {
  const known = new Map<string, Promise<GroupTarget>>();
  const total = { messages: 0, bytes: 0 };
  return async (destination, body) => {
    const pendingGroup = known.get(destination) ?? findGroup(store, account, destination);
    known.set(destination, pendingGroup);
    const groupTarget = await pendingGroup;
    checkFanOut(groupTarget.group, total, body);
    return groupTarget;
  };
}

async function parseItems({ body }: IncomingRequest, { account, context: { longWork } }: BatchContext): Promise<Item[]> {
  if (body.length === 0) throw new Refusal("invalid", "body: missing; give a JSON list of messages");
  let items = 0;
  let names = 0;
  const toItems = (given: unknown[], text: Bytes): Item[] => {
    items += given.length;
    if (items > maxItems) return [];
    const read = given.map(toItem);
    names += read.reduce((sum, { headers }) => sum + headers.length / 2, 0);
    if (names > maxNames) throw new Refusal("invalid", `body: more than ${maxNames} headers of messages; send them in several requests`);
    return read.some(({ given }) => isStructured(given)) ? withBodyTexts(read, readMemberTexts(text, "body")) : read;
  };
  const read = await readJsonList(body, { longWork, owner: account.id, max: { names: maxNames }, convert: toItems });
  if (read === null) throw new Refusal("invalid", "body: not a JSON list of messages");
  if (items > maxItems) throw new Refusal("invalid", `body: ${items} messages, the limit is ${maxItems}; send them in several requests`);
  return read;
}

const isStructured = (given: unknown): given is { body: object } =>
  typeof given === "object" && given !== null && "body" in given && typeof given.body === "object";

/** Bodies that are JSON themselves are delivered as they were written. */
const withBodyTexts = (items: readonly Item[], texts: ReadonlyMap<number, string>): Item[] =>
  items.map((one, at) => (isStructured(one.given) ? { ...one, given: { ...one.given, body: texts.get(at) } } : one));

/** The brands that the request itself shows hold for messages that show none. */
const listRequestBrands = ({ rawHeaders, query }: IncomingRequest): readonly Brand[] => [
  ...listHeaderSettings(rawHeaders).map(({ brand }) => brand),
  ...listTokenBrands(query.tokenName),
];

type GroupFinder = (destination: string, body: Bytes) => Promise<GroupTarget>;
type ItemContext = {
  incoming: IncomingRequest;
  requestBrands: readonly Brand[];
  fallbackBrand: Brand;
  purpose: Purpose;
  ignored: Set<string>;
  findCachedGroup: GroupFinder;
};

async function readItem({ given, unknownMembers, headers }: Item, itemContext: ItemContext): Promise<MessageInput> {
  const { incoming, purpose, ignored, findCachedGroup } = itemContext;
  const count = headers.length / 2;
  if (count > maxHeaders) throw new Refusal("invalid", `headers: there are more than ${maxHeaders}, the limit`);
  const { destination, body: text = "", queue } = isItem(given) ? given : parseObject(itemSchema, given, "message");
  const body = Buffer.from(typeof text === "string" ? text : "");
  const groupTarget = isUrl(destination) || purpose === "triggers" ? null : await findCachedGroup(destination, body);
  if (groupTarget === null) checkUrl("destination", destination);
  const own = [listHeaderSettings(headers), listQuerySettings(groupTarget?.settings ?? [])];
  const groupLayer = listKeptSettings(groupTarget?.group.headers);
  const ownBrands = [...own.flat().map(({ brand }) => brand), ...listTokenBrands(groupTarget?.tokenName ?? null)];
  const brand = pickFirstBrand([ownBrands, itemContext.requestBrands, groupLayer.map((one) => one.brand)], itemContext.fallbackBrand);
  const ignoredMembers = listIgnoredMembers({ given, unknownMembers }, brand);
  if (queue) checkName("queue", queue);
  const request = makePublishRequest(purpose, [...own, groupLayer], {
    brand,
    destination: groupTarget?.group.name ?? destination,
    query: groupTarget?.query ?? null,
    queue: queue ?? null,
    body,
    content: listContentHeaders(headers),
    // There is no request of its own whose headers could go along.
    senderHeaders: () => [],
    callerIp: incoming.callerIp,
  });
  for (const name of [...ignoredMembers, ...request.ignored]) if (ignored.size < 100) ignored.add(name);
  return request.input;
}

/** Members that are unknown are like settings that are: the other brand passes over them. Throws `Refusal` for the neutral one. */
function listIgnoredMembers({ given, unknownMembers }: Pick<Item, "given" | "unknownMembers">, brand: Brand): string[] {
  const names = Object.keys(unknownMembers);
  if (names.length > 0 && brand === "svc") parseObject(itemSchema, Object.assign(Object.create(null), unknownMembers, given), "message");
  return names;
}

async function catchRefusal(make: () => Promise<MessageInput>): Promise<MessageInput | Refusal> {
  try {
    return await make();
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}

function toResponses(
  read: readonly (MessageInput | Refusal)[],
  results: readonly PublishResult[],
  rights: { mayRead: boolean },
): unknown[] {
  let next = 0;
  const answers = read.map((one) => {
    if (one instanceof Refusal) return one;
    const result = results[next++];
    return result && "refused" in result
      ? new Refusal(result.refused, result.message, { remainingQuota: result.remainingQuota })
      : publishedJson(result, one, rights);
  });
  const [first] = answers;
  if (first instanceof Refusal && answers.every((answer) => answer instanceof Refusal)) throw makeItemRefusal(answers, 0);
  return answers.map((answer) => (answer instanceof Refusal ? { error: answer.message } : answer));
}
