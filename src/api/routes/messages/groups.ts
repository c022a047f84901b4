import { z } from "zod";
import { headerMap } from "../../../core/sending/callback.ts";
import { Refusal } from "../../../core/values/errors.ts";
import { limits, memory } from "../../../core/values/limits.ts";
import type { Account, AccountId, Endpoint, UrlGroup, HeaderList } from "../../../core/model/message.ts";
import { noBytes } from "../../../core/model/message.ts";
import { findSendingRefusal } from "../../../core/commands/publish.ts";
import { countFittingPage } from "../../../store/queries/storageReads.ts";
import type { Store } from "../../../store/store.ts";
import { listHeaderSettings, readSettings, refuseScheduleSettings } from "../../settings/grammar.ts";
import { listCallbackUrls, toSettingHeaders, redactSettings } from "../../publishing/keptSettings.ts";
import type { KeptSettings } from "../../publishing/keptSettings.ts";
import { toMessageInput } from "../../settings/message.ts";
import { PagedList } from "../../http/pagedList.ts";
import { readObject } from "../../route/readObject.ts";
import { makeHostWarnings } from "../../publishing/refusedHosts.ts";
import { warningHeader } from "../../http/warnings.ts";
import { route } from "../../route/route.ts";
import { mayRead, checkMayReadToSend } from "../../route/scope.ts";
import { damaged } from "../../views/schemas.ts";
import { isValidKey } from "../../settings/table.ts";
import { checkName, checkUrl, shorten } from "../../http/target.ts";

const endpointSchema = z.object({ name: z.string().optional(), url: z.string() });

const groupSchema = z.object({
  name: z.string(),
  createdAt: z.int().describe("In unix milliseconds."),
  updatedAt: z.int().describe("When its endpoints or headers were changed last, in unix milliseconds."),
  endpoints: z.array(endpointSchema).describe("Empty in an answer to a token without the verb read."),
  headers: z
    .record(z.string(), z.array(z.string()))
    .optional()
    .describe("Settings of every request to it that does not say otherwise: names to lists of values. Absent when there are none."),
  damaged,
});

const tag = "URL groups";
const byName = z.object({ name: z.string() });
const maxBytes = 4 * 1024 * 1024;

const list = route({
  method: "GET",
  path: "/v2/topics",
  tag,
  summary: "List the URL groups",
  about: "Those that were changed last come first.",
  answers: { 200: { about: "All URL groups.", schema: z.array(groupSchema) } },
  refusals: [],
  handle: async ({ account, context: { store } }) => {
    return { status: 200, body: new PagedList(listGroupPages(store, account.id)) };
  },
});

/** When several are made at the same moment, there may be a few more than the limit. */
const maxListed = 2 * limits.groups;

/** The place of a group in the list, and the characters of its JSON. */
type GroupPosition = Pick<UrlGroup, "name" | "updatedAt"> & { length: number };

/**
 * All groups, those that were changed last first. That order is not the one they are kept in: all are read once to find it, and then again, a few
 * at a time. No row is kept while a page is on its way.
 */
async function* listGroupPages(store: Store, account: AccountId): AsyncGenerator<readonly unknown[], void> {
  const { page, positions } = await readPositions(store, account);
  if (page) yield page;
  else for (const names of splitPages(positions)) yield await readShownGroups(store, account, names);
}

/** `page`: all groups, if they are on one page. */
async function readPositions(store: Store, account: AccountId): Promise<{ page: unknown[] | null; positions: GroupPosition[] }> {
  const positions: GroupPosition[] = [];
  let found: UrlGroup[] | null = [];
  for (let more = true; more && positions.length < maxListed;) {
    const last = positions.at(-1);
    const rows = await store.read.listResources("urlGroups", {
      account,
      limit: maxListed - positions.length,
      ...(last && { after: last.name }),
    });
    found = positions.length === 0 ? [...rows] : rows.length === 0 ? found : null;
    for (const row of rows) positions.push({ name: row.name, updatedAt: row.updatedAt, length: JSON.stringify(groupJson(row)).length });
    more = rows.length > 0;
  }
  return { page: found && found.toSorted(byChange).map(groupJson), positions: positions.toSorted(byChange) };
}

const byChange = (one: Pick<UrlGroup, "updatedAt">, other: Pick<UrlGroup, "updatedAt">): number => other.updatedAt - one.updatedAt;

/** Names of groups that are read together, in order. */
function* splitPages(positions: readonly GroupPosition[]): Generator<string[]> {
  for (let at = 0; at < positions.length;) {
    const count = countFittingPage(
      positions.slice(at).map(({ length }) => length),
      memory.settings,
    );
    yield positions.slice(at, at + count).map(({ name }) => name);
    at += count;
  }
}

/** Returns groups as they are shown, in this order, without groups that were deleted in between. */
async function readShownGroups(store: Store, account: AccountId, names: readonly string[]): Promise<unknown[]> {
  const rows = await Promise.all(names.map((name) => store.read.findResource("urlGroups", account, name)));
  return rows.flatMap((row) => (row ? [groupJson(row)] : []));
}

const get = route({
  method: "GET",
  path: "/v2/topics/{name}",
  tag,
  summary: "Read a URL group",
  params: byName,
  answers: { 200: { about: "The URL group.", schema: groupSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context: { store } }) => {
    const name = checkName("name", params.name);
    const found = await store.read.findResource("urlGroups", account.id, name);
    if (!found) throw new Refusal("not-found", `name: there is no URL group ${name}`);
    return { status: 200, body: groupJson(found) };
  },
});

const remove = route({
  method: "DELETE",
  path: "/v2/topics/{name}",
  tag,
  summary: "Delete a URL group",
  about: "Messages that were published to it are still delivered.",
  params: byName,
  answers: { 200: { about: "1 when there was one, 0 when there was none.", schema: z.object({ deleted: z.int() }) } },
  refusals: [],
  handle: async ({ account, params, context }) => {
    const body = await context.store.execute("deleteGroup", { account: account.id, name: checkName("name", params.name) });
    return { status: 200, body };
  },
});

const addedSchema = z.strictObject({
  endpoints: z
    .array(
      z.strictObject({
        url: z.string("is missing, or not a text").describe("Where its messages go."),
        name: z
          .string("is not a text")
          .optional()
          .describe("Its name in the group: any text without control characters, at most 512 characters."),
      }),
      "is missing, or not a list",
    )
    .min(1, "is empty"),
});

const add = route({
  method: "POST",
  path: "/v2/topics/{name}/endpoints",
  tag,
  summary: "Add endpoints to a URL group",
  about: `Makes the group if there is none. An endpoint with the name of one that is there, or else with its URL, takes its place. A group has at most ${limits.endpoints}.`,
  params: byName,
  body: { about: "The endpoints.", contentType: "application/json", schema: addedSchema, required: true, maxBytes },
  answers: { 200: { about: "The URL group as it is now.", schema: groupSchema } },
  refusals: ["limit-exceeded", "storage-quota-exceeded", "forbidden"],
  handle: async ({ account, params, incoming, context }) => {
    const name = checkName("name", params.name);
    const given = { account: account.id, name, endpoints: readObject(addedSchema, incoming).endpoints.map(readEndpoint) };
    checkMayReadToSend(
      incoming,
      `a message to the URL group ${name}`,
      given.endpoints.map(({ url }) => url),
    );
    const headers = warningHeader(
      makeHostWarnings(
        { incoming, context },
        given.endpoints.map(({ url }) => ({ url, group: null })),
      ),
    );
    return { status: 200, body: groupJson(await context.store.execute("addEndpoints", given)), headers };
  },
});

function readEndpoint({ name = "", url }: { name?: string | undefined; url: string }, at: number): Endpoint {
  checkUrl(`endpoints.${at}.url`, url);
  return { name: name === "" ? null : checkEndpointName(`endpoints.${at}.name`, name), url };
}

/** The name of an endpoint is never part of a path, so it may be any text that every database keeps as it is. Throws `Refusal`. */
function checkEndpointName(field: string, name: string): string {
  if (isValidKey(name)) return name;
  const allowed = `1 to ${limits.nameLength} characters, none of them a control character`;
  throw new Refusal("invalid", `${field}: ${JSON.stringify(shorten(name))} is not possible; ${allowed}`);
}

const removedSchema = z.strictObject({
  endpoints: z
    .array(
      z.strictObject({
        name: z.string("is not a text").optional().describe("Its name."),
        url: z.string("is not a text").optional().describe("Its URL."),
      }),
      "is missing, or not a list",
    )
    .min(1, "is empty"),
});

const removeSome = route({
  method: "DELETE",
  path: "/v2/topics/{name}/endpoints",
  tag,
  summary: "Remove endpoints from a URL group",
  about: "By name or by URL. The group goes with its last endpoint. What is not in it is passed over.",
  params: byName,
  body: { about: "The endpoints.", contentType: "application/json", schema: removedSchema, required: true, maxBytes },
  answers: { 200: { about: "How many were removed.", schema: z.object({ removed: z.int() }) } },
  refusals: ["not-found", "limit-exceeded"],
  handle: async ({ account, params, incoming, context: { store } }) => {
    const endpoints = readObject(removedSchema, incoming).endpoints.map(({ name = "", url = "" }, at) => {
      if (name === "" && url === "") throw new Refusal("invalid", `endpoints.${at}: has neither name nor url; give one of them`);
      return { name: name === "" ? null : name, url: url === "" ? null : url };
    });
    return {
      status: 200,
      body: await store.execute("removeEndpoints", { account: account.id, name: checkName("name", params.name), endpoints }),
    };
  },
});

const text = z.string("is neither a text nor a list of texts");
const defaultHeaders = z.strictObject({
  headers: z.record(z.string(), z.union([text, z.array(text)], "is neither a text nor a list of texts"), "is missing, or not an object"),
});

const setHeaders = route({
  method: "PATCH",
  path: "/v2/topics/{name}",
  tag,
  summary: "Set the default headers of a URL group",
  about:
    "Settings of messages, as headers, that apply to every request to the group which does not say otherwise; header by header. They replace those that were set before. A schedule takes those of the moment at which it is made.",
  params: byName,
  body: {
    about: "Names of headers, each with a value or a list of values.",
    contentType: "application/json",
    schema: defaultHeaders,
    required: true,
    maxBytes,
  },
  answers: { 200: { about: "The URL group as it is now.", schema: groupSchema } },
  refusals: ["not-found", "limit-exceeded", "forbidden"],
  handle: async ({ account, params, incoming, context: { store, now } }) => {
    const name = checkName("name", params.name);
    const { headers, ignored } = readDefaultHeaders(account, readObject(defaultHeaders, incoming).headers, now());
    checkMayReadToSend(incoming, `a message to the URL group ${name}`, listCallbackUrls(headers));
    const changed = await store.execute("setGroupHeaders", { account: account.id, name, headers });
    return { status: 200, body: groupJson(mayRead(incoming) ? changed : { ...changed, endpoints: [] }), ignored };
  },
});

/** Reads them as every request to the group will, so that what is kept can be used. Those that are unknown and may be are left out. */
function readDefaultHeaders(account: Account, given: KeptSettings, now: number): { headers: HeaderList; ignored: string[] } {
  const headers = toSettingHeaders("headers", given);
  const { settings, ignored } = readSettings(listHeaderSettings(headers.flat()));
  refuseScheduleSettings(settings);
  const post = {
    brand: "svc",
    destination: "group",
    body: noBytes,
    content: [],
    senderHeaders: () => [],
    callerIp: null,
    settings,
  } as const;
  const broken = findSendingRefusal(account, toMessageInput(post), now);
  if (broken) throw new Refusal(broken.refused, broken.message);
  return { headers: headers.filter(([name]) => !ignored.includes(name.toLowerCase())), ignored };
}

function groupJson({ name, createdAt, updatedAt, endpoints, headers, damaged }: UrlGroup): z.output<typeof groupSchema> {
  return {
    name,
    createdAt,
    updatedAt,
    endpoints: endpoints.map((one) => (one.name === null ? { url: one.url } : { name: one.name, url: one.url })),
    ...(headers.length === 0 ? {} : { headers: headerMap(redactSettings(headers)) }),
    ...(damaged && { damaged }),
  };
}

export const groups = [list, get, remove, add, removeSome, setHeaders];
