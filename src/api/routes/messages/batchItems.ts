import { z } from "zod";
import { Refusal } from "../../../engine/core/values/errors.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import type { Bytes } from "../../../engine/core/values/basics.ts";
import { readMemberTexts, readJsonList } from "../../http/json.ts";
import { parseObject } from "../../route/readObject.ts";
import type { IncomingRequest, RouteContext } from "../../route/route.ts";

/** The maximum number of messages in one request. */
const maxItems = 10_000;

const itemSchema = z.strictObject({
  destination: z
    .string("is missing or not a string")
    .describe("Destination of the message: a URL, not percent-encoded, or the name of a URL group."),
  headers: z
    .record(
      z.string(),
      z.union([z.string(), z.array(z.string())], "is neither a string nor a list of strings"),
    )
    .nullish()
    .describe(
      "Settings of the message as headers, such as Svc-Retries, and its Content-Type: " +
        "names in any case, each with a value or a list of values.",
    ),
  body: z
    .union(
      [z.string(), z.record(z.string(), z.unknown()), z.array(z.unknown())],
      "is neither a string nor a JSON object or list",
    )
    .nullish()
    .describe(
      "Body to deliver, as a string in UTF-8. " +
        "A JSON object or list is delivered as JSON, exactly as it is written in this request.",
    ),
  queue: z
    .string("is not a string")
    .nullish()
    .describe(
      "Name of the queue through which the message is sent. " +
        'As for all members of a message, null and "" mean that it is not given.',
    ),
});

/** The request body of the routes that take a list of messages. */
export const batchBody = {
  about: `List of at most ${maxItems} messages.`,
  contentType: "application/json",
  schema: z.array(itemSchema).max(maxItems),
  required: true,
  maxBytes: 100 * 1024 * 1024,
};

/**
 * The maximum number of headers of one item. Reading a million headers would take seconds. A message that is
 * published alone always has fewer, because the HTTP server limits the size of a request's headers.
 */
const maxHeaders = 10_000;

/**
 * The maximum number of headers of all items together: 30 for each of `maxItems` items. Reading a million
 * different headers would delay other requests.
 */
const maxNames = 30 * maxItems;

/**
 * An item of the list. `members` has the known members that are not empty, and `unknownMembers` has the other
 * members. `headers` alternates between names and values; a value that cannot be read is empty.
 */
export type Item = {
  members: unknown;
  unknownMembers: Readonly<Record<string, unknown>>;
  headers: readonly string[];
};

/**
 * Parses the list in a request body. Throws `Refusal` if it is not a list, or has too many items or headers.
 */
export async function parseItems(
  { body }: IncomingRequest,
  { account, context: { longWork } }: { account: Account; context: Pick<RouteContext, "longWork"> },
): Promise<Item[]> {
  if (body.length === 0) throw new Refusal("invalid", "body: missing; give a JSON list of messages");
  let items = 0;
  let names = 0;
  const toItems = (values: unknown[], text: Bytes): Item[] => {
    items += values.length;
    if (items > maxItems) return [];
    const read = values.map(toItem);
    names += read.reduce((sum, { headers }) => sum + headers.length / 2, 0);
    if (names > maxNames)
      throw new Refusal(
        "invalid",
        `body: more than ${maxNames} message headers; send the messages in several requests`,
      );
    return read.some(({ members }) => isStructured(members))
      ? withBodyTexts(read, readMemberTexts(text, "body"))
      : read;
  };
  const read = await readJsonList(body, {
    longWork,
    owner: account.id,
    max: { names: maxNames },
    convert: toItems,
  });
  if (read === null) throw new Refusal("invalid", "body: not a JSON list of messages");
  if (items > maxItems)
    throw new Refusal(
      "invalid",
      `body: ${items} messages, the limit is ${maxItems}; send them in several requests`,
    );
  return read;
}

const isStructured = (members: unknown): members is { body: object } =>
  typeof members === "object" && members !== null && "body" in members && typeof members.body === "object";

/**
 * Returns the items, with each JSON body replaced by its text in the request, so that it is delivered exactly
 * as it was written.
 */
const withBodyTexts = (items: readonly Item[], texts: ReadonlyMap<number, string>): Item[] =>
  items.map((one, at) =>
    isStructured(one.members) ? { ...one, members: { ...one.members, body: texts.get(at) } } : one,
  );

/**
 * The maximum number of unknown members that are kept of an item. The first one is named in a refusal, or all
 * are named in the header `Waypost-Ignored`.
 */
const maxUnknownMembers = 100;

/** Reads one item. A member with `null` or `""` is skipped, because some clients send every member. */
function toItem(item: unknown): Item {
  if (typeof item !== "object" || item === null || Array.isArray(item))
    return { members: item, unknownMembers: {}, headers: [] };
  const members: Record<string, unknown> = {};
  const unknownMembers: [name: string, value: unknown][] = [];
  for (const [name, value] of Object.entries(item)) {
    if (value === null || value === "") continue;
    if (Object.hasOwn(itemSchema.shape, name)) members[name] = value;
    else if (unknownMembers.length < maxUnknownMembers) unknownMembers.push([name, value]);
  }
  return {
    members,
    unknownMembers: Object.fromEntries(unknownMembers),
    headers: listHeaders(members["headers"]),
  };
}

function listHeaders(headerMap: unknown): readonly string[] {
  const headers: string[] = [];
  if (typeof headerMap !== "object" || headerMap === null) return headers;
  for (const [name, value] of Object.entries(headerMap)) {
    if (headers.length > 2 * maxHeaders) break;
    const values: unknown[] = Array.isArray(value) ? value : [value];
    // One more than `maxHeaders` is enough to refuse the message.
    for (const one of values.slice(0, maxHeaders + 1))
      headers.push(name, typeof one === "string" ? one : isNumberOrBoolean(one) ? String(one) : "");
  }
  return headers;
}

const isNumberOrBoolean = (value: unknown): value is number | boolean =>
  typeof value === "number" || typeof value === "boolean";

/**
 * Returns the members of an item. Throws `Refusal` if it has too many headers, or if a member is missing or
 * has a wrong type.
 */
export function readMembers({
  members,
  headers,
}: Pick<Item, "members" | "headers">): z.output<typeof itemSchema> {
  if (headers.length / 2 > maxHeaders)
    throw new Refusal("invalid", `headers: more than ${maxHeaders}; send fewer headers`);
  return isItem(members) ? members : parseObject(itemSchema, members, "message");
}

/** Throws `Refusal` for the first unknown member of an item, if it has any. */
export function assertNoUnknownMembers({
  members,
  unknownMembers,
}: Pick<Item, "members" | "unknownMembers">): void {
  if (Object.keys(unknownMembers).length > 0)
    parseObject(itemSchema, Object.assign(Object.create(null), unknownMembers, members), "message");
}

/**
 * Reports whether a value matches `itemSchema`. This check is five times as fast as the schema. The schema
 * then only describes what is wrong with a value that does not match.
 */
function isItem(members: unknown): members is z.output<typeof itemSchema> {
  if (typeof members !== "object" || members === null || Array.isArray(members)) return false;
  const { destination, headers, body, queue }: { [N in keyof typeof itemSchema.shape]?: unknown } = members;
  const isTextOrNone = (value: unknown): boolean => value === undefined || typeof value === "string";
  return (
    typeof destination === "string" &&
    isTextOrNone(body) &&
    isTextOrNone(queue) &&
    (headers === undefined || areHeaderTexts(headers))
  );
}

const isText = (value: unknown): boolean => typeof value === "string";

const areHeaderTexts = (headers: unknown): boolean =>
  typeof headers === "object" &&
  headers !== null &&
  !Array.isArray(headers) &&
  Object.values(headers).every((value) => isText(value) || (Array.isArray(value) && value.every(isText)));
