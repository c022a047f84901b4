import { z } from "zod";
import { Refusal, toRefusal } from "../../../engine/core/values/errors.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import type { AccountId, Brand, Bytes } from "../../../engine/core/values/basics.ts";
import type { MessageInput } from "../../../engine/core/model/message.ts";
import type { CommandInput } from "../../../engine/store/catalog/commands.ts";
import type { PublishResult } from "../../../engine/core/commands/publish.ts";
import { splitInputs } from "../../../engine/core/node/weight.ts";
import { parseBrandedHeader } from "../../http/brand.ts";
import type { Store } from "../../../engine/store/store.ts";
import { listHeaderSettings, listQuerySettings } from "../../settings/grammar.ts";
import { ignoredSettings } from "../../settings/table.ts";

import { listContentHeaders } from "../../settings/message.ts";
import type { TraceContext } from "../../../engine/core/values/traceContext.ts";
import type { GroupTarget, Purpose } from "../../publishing/read.ts";
import {
  pickFirstBrand,
  defaultBrand,
  listTokenBrands,
  assertFanOut,
  listKeptSettings,
  findGroup,
  makePublishRequest,
  readTrace,
} from "../../publishing/read.ts";
import { makeResultHeaders } from "../../http/rateLimitHeaders.ts";
import type { MessageWarnings } from "../../publishing/refusedHosts.ts";
import { createMessageWarnings, makePublishWarnings } from "../../publishing/refusedHosts.ts";
import type { IncomingRequest, RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { mayRead, readScope } from "../../route/scope.ts";
import { noteUnstored } from "../../route/unpublished.ts";
import { isStepRequest, withStepRefusal } from "../../publishing/stepRefusal.ts";
import { parseName, assertUrl, isUrl } from "../../http/target.ts";
import { batchBody, parseItems, readMembers, assertNoUnknownMembers } from "./batchItems.ts";
import type { Item } from "./batchItems.ts";
import { publishedSchema, publishedJson, publishedToEachSchema, publishing } from "./publish.ts";
import { formatRefusal } from "../../http/remedies.ts";

const refusedSchema = z.object({
  error: z.string().describe("Why the message was refused, as `field: what is wrong; what to do`."),
  code: z.string().describe("The code of the error."),
});

/** The route that publishes a list of messages. */
export const batch = route({
  method: "POST",
  path: "/v2/batch",
  operation: "step",
  onFastPath: true,
  unaudited: "publishes messages, which the message log records",
  tag: "Publish",
  summary: "Publish many messages",
  about:
    "Publishes a list of messages. A refused message does not affect the others. " +
    "A long list is stored in parts. If the server stops or refuses a later part, the earlier parts stay " +
    "stored. If all messages are refused, the response is the error of the first. " +
    "If a message of a workflow run is refused, the whole list is refused. " +
    "A member that is null or an empty string counts as absent. " +
    "An unknown member is refused; in a message with the Upstash prefix it is ignored and named in the " +
    "response header Waypost-Ignored.",
  needs: "publish",
  looksAtScope: true,
  body: batchBody,
  answers: {
    200: {
      about:
        "The result of each message, in the order of the list. " +
        "A message to a URL group has a list with a result for each endpoint.",
      schema: z.array(z.union([publishedSchema, publishedToEachSchema, refusedSchema])),
    },
  },
  refusals: publishing.refusals,
  handle: async ({ account, incoming, context }) => {
    const { store, maxQueues } = context;
    const { read, ignored } = await readItems(incoming, { account, context, purpose: "messages" });
    const inputs = read.flatMap((one) => (one instanceof Refusal ? [] : [one]));
    const results = await publishInParts(store, inputs, {
      account: account.id,
      maxQueues,
      ...readScope(incoming),
    });
    const warnings = makePublishWarnings({ incoming, context }, inputs, results);
    const warn = createMessageWarnings({ incoming, context }, warnings);
    const body = toResponses(read, results, { mayRead: mayRead(incoming), warn });
    noteUnstored(context, incoming, [...read.filter((one) => one instanceof Refusal), ...results]);
    return {
      status: 200,
      body,
      ignored,
      headers: makeResultHeaders(results, warnings),
    };
  },
});

/**
 * Publishes a list part by part, so that other callers do not wait for the whole list. If a later part cannot
 * be stored, the refusal names the first message that was not stored. A caller that then sends the whole list
 * again without deduplication ids publishes the earlier messages twice.
 */
async function publishInParts(
  store: Store,
  inputs: readonly MessageInput[],
  publishInput: Omit<CommandInput<"publish">, "inputs">,
): Promise<readonly PublishResult[]> {
  const results: PublishResult[] = [];
  for (const part of inputs.length === 0 ? [] : splitInputs(inputs)) {
    try {
      results.push(...(await store.execute("publish", { ...publishInput, inputs: part })));
    } catch (error) {
      if (!(error instanceof Refusal) || results.length === 0) throw error;
      const first = results.length + 1;
      const last = inputs.length;
      const problem = formatRefusal(error);
      throw new Refusal(
        error.code,
        `messages ${first} to ${last} of the list: ${problem}; the earlier messages were processed`,
        { remainingQuota: error.remainingQuota, retryAfter: error.retryAfter },
      );
    }
  }
  return results;
}

/**
 * The number of items that are read before other work gets a turn. Reading an item can take milliseconds, and
 * leases must be renewed in the meantime.
 */
const itemsPerTurn = 16;
const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** The account of a batch, and the purpose of its items. */
type BatchContext = { account: Account; context: RouteContext; purpose: Purpose };
type ReadItems = { read: (MessageInput | Refusal)[]; ignored: string[] };

/**
 * Reads the items of a batch. A refused item does not affect the others, unless it belongs to a workflow run.
 * In that case, throws `Refusal` for the whole batch, because a run posts all of its steps or none. The store
 * decides the same for the items that it refuses: `engine/core/commands/publish.ts`.
 */
export async function readItems(incoming: IncomingRequest, batchContext: BatchContext): Promise<ReadItems> {
  const items = await parseItems(incoming, batchContext);
  const isStep = items.some(isRunItem) && items.some(({ headers }) => isStepRequest(headers));
  return withStepRefusal(isStep, () => readEach(items, incoming, batchContext));
}

async function readEach(
  items: readonly Item[],
  incoming: IncomingRequest,
  batchContext: BatchContext,
): Promise<ReadItems> {
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
    trace: readTrace(incoming.rawHeaders, incoming.proof?.token),
  };
  const read: (MessageInput | Refusal)[] = [];
  for (const one of items) {
    if (read.length % itemsPerTurn === itemsPerTurn - 1) await nextTurn();
    read.push(await catchRefusal(() => readItem(one, itemContext)));
  }
  const first = read.findIndex(
    (one, at) =>
      one instanceof Refusal && (purpose === "triggers" || items.slice(at, at + 1).some(isRunItem)),
  );
  if (first >= 0) throw makeItemRefusal(read, first);
  return { read, ignored: [...itemContext.ignored] };
}

/**
 * Throws `Refusal` for a `Svc-` setting in the headers of the request itself, because it would apply to no
 * message. `Upstash-` settings there are ignored, and their names are returned.
 */
function listIgnoredHeaders({ rawHeaders }: IncomingRequest): string[] {
  const headerSettings = listHeaderSettings(rawHeaders).filter(({ name }) => !ignoredSettings.test(name));
  const unsupported = headerSettings.find(({ brand }) => brand === "svc");
  if (unsupported)
    throw new Refusal(
      "invalid",
      `${unsupported.writtenName.slice(0, 200)}: not valid for the request itself; ` +
        "put it in the headers of each message",
    );
  return headerSettings.map(({ writtenName }) => writtenName.toLowerCase());
}

/** Reports whether an item has the id of a workflow run, even if the item cannot be read. */
const isRunItem = ({ headers }: Item): boolean =>
  headers.some((name, at) => at % 2 === 0 && parseBrandedHeader(name)?.name === "workflow-runid");

function makeItemRefusal(results: readonly unknown[], at: number): Refusal {
  const refusal = results[at];
  if (!(refusal instanceof Refusal)) throw new Error("batch: nothing was refused");
  return new Refusal(refusal.code, `message ${at + 1} of ${results.length}: ${refusal.message}`, refusal);
}

/**
 * Returns a function that finds URL groups and reads each of them once. The function throws `Refusal` if the
 * messages to all groups exceed the limit of one request.
 */
function createGroupFinder(store: Store, account: AccountId): GroupFinder {
  const known = new Map<string, Promise<GroupTarget>>();
  const total = { messages: 0, bytes: 0 };
  return async (destination, body) => {
    const pendingGroup = known.get(destination) ?? findGroup(store, account, destination);
    known.set(destination, pendingGroup);
    const groupTarget = await pendingGroup;
    assertFanOut(groupTarget.group, total, body);
    return groupTarget;
  };
}

/** Returns the brands that the request itself shows. They apply to messages that do not show a brand. */
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
  /** The trace of the request, for messages without their own. */
  trace: TraceContext | undefined;
};

async function readItem(item: Item, itemContext: ItemContext): Promise<MessageInput> {
  const { headers, unknownMembers } = item;
  const { incoming, purpose, ignored, findCachedGroup } = itemContext;
  const { destination, body: text = "", queue } = readMembers(item);
  const body = Buffer.from(typeof text === "string" ? text : "");
  const groupTarget =
    isUrl(destination) || purpose === "triggers" ? null : await findCachedGroup(destination, body);
  if (groupTarget === null) assertUrl("destination", destination);
  const own = [listHeaderSettings(headers), listQuerySettings(groupTarget?.settings ?? [])];
  const groupLayer = listKeptSettings(groupTarget?.group.headers);
  const ownBrands = [
    ...own.flat().map(({ brand }) => brand),
    ...listTokenBrands(groupTarget?.tokenName ?? null),
  ];
  const brand = pickFirstBrand(
    [ownBrands, itemContext.requestBrands, groupLayer.map((one) => one.brand)],
    itemContext.fallbackBrand,
  );
  // Unknown members are treated like unknown settings: the brand `upstash` ignores them.
  if (brand === "svc") assertNoUnknownMembers(item);
  if (queue) parseName("queue", queue);
  const request = makePublishRequest(purpose, [...own, groupLayer], {
    brand,
    destination: groupTarget?.group.name ?? destination,
    query: groupTarget?.query ?? null,
    queue: queue ?? null,
    body,
    content: listContentHeaders(headers),
    // An item has no request headers that `header-forward` could deliver.
    senderHeaders: () => [],
    callerIp: incoming.callerIp,
  });
  for (const name of [...Object.keys(unknownMembers), ...request.ignored])
    if (ignored.size < 100) ignored.add(name);
  const trace = readTrace(headers, incoming.proof?.token) ?? itemContext.trace;
  return trace === undefined ? request.input : { ...request.input, trace };
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
  rights: { mayRead: boolean; warn: MessageWarnings },
): unknown[] {
  let next = 0;
  const responses = read.map((one) => {
    if (one instanceof Refusal) return one;
    const result = results[next++];
    return result && "refused" in result ? toRefusal(result) : publishedJson(result, one, rights);
  });
  const [first] = responses;
  if (first instanceof Refusal && responses.every((response) => response instanceof Refusal))
    throw makeItemRefusal(responses, 0);
  return responses.map((one) =>
    one instanceof Refusal ? { error: formatRefusal(one), code: one.code } : one,
  );
}
