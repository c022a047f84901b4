import { z } from "zod";
import { headerMap } from "../../../core/sending/callback.ts";
import { Refusal } from "../../../core/values/errors.ts";
import { limits, memory } from "../../../core/values/limits.ts";
import type { Account, AccountId, Endpoint, Group, HeaderList } from "../../../core/model/message.ts";
import { noBytes } from "../../../core/model/message.ts";
import { sendingLimitBrokenBy } from "../../../core/commands/publish.ts";
import { fittingPage } from "../../../store/queries/storageReads.ts";
import type { Store } from "../../../store/store.ts";
import { givenByHeaders, readSettings, refuseOfSchedules } from "../../settings/grammar.ts";
import { callbacksIn, headersOf, shownSettings } from "../../publishing/keptSettings.ts";
import type { SettingsGiven } from "../../publishing/keptSettings.ts";
import { letterOf } from "../../settings/message.ts";
import { Listed } from "../../http/listed.ts";
import { readObject } from "../../route/readObject.ts";
import { warningsOf } from "../../publishing/refusedHosts.ts";
import { warningHeader } from "../../http/warnings.ts";
import { route } from "../../route/route.ts";
import { mayRead, mustReadToSend } from "../../route/scope.ts";
import { damaged } from "../../views/shapes.ts";
import { isKey } from "../../settings/table.ts";
import { checkName, checkUrl, shortened } from "../../http/target.ts";

const endpoint = z.object({ name: z.string().optional(), url: z.string() });

const group = z.object({
  name: z.string(),
  createdAt: z.int().describe("In unix milliseconds."),
  updatedAt: z.int().describe("When its endpoints or headers were changed last, in unix milliseconds."),
  endpoints: z.array(endpoint).describe("Empty in an answer to a token without the verb read."),
  headers: z
    .record(z.string(), z.array(z.string()))
    .optional()
    .describe("Settings of every request to it that does not say otherwise: names to lists of values. Absent when there are none."),
  damaged,
});

const tag = "URL groups";
const byName = z.object({ name: z.string() });
const mostBytes = 4 * 1024 * 1024;

const list = route({
  method: "GET",
  path: "/v2/topics",
  tag,
  summary: "List the URL groups",
  about: "Those that were changed last come first.",
  answers: { 200: { about: "All URL groups.", schema: z.array(group) } },
  refusals: [],
  handle: async ({ account, parts: { store } }) => {
    return { status: 200, body: new Listed(pagesOf(store, account.id)) };
  },
});

/** When several are made at the same moment, there may be a few more than the limit. */
const mostListed = 2 * limits.groups;

/** The place of a group in the list, and the characters of its JSON. */
type Place = Pick<Group, "name" | "updatedAt"> & { length: number };

/**
 * All groups, those that were changed last first. That order is not the one they are kept in: all are read once to find it, and then again, a few
 * at a time. No row is kept while a page is on its way.
 */
async function* pagesOf(store: Store, account: AccountId): AsyncGenerator<readonly unknown[], void> {
  const { page, places } = await placesOf(store, account);
  if (page) yield page;
  else for (const names of portions(places)) yield await shownOf(store, account, names);
}

/** `page`: all groups, if they are on one page. */
async function placesOf(store: Store, account: AccountId): Promise<{ page: unknown[] | null; places: Place[] }> {
  const places: Place[] = [];
  let found: Group[] | null = [];
  for (let more = true; more && places.length < mostListed;) {
    const last = places.at(-1);
    const rows = await store.read.allSetUp("groups", {
      ...{ account, limit: mostListed - places.length },
      ...(last && { after: last.name }),
    });
    found = places.length === 0 ? [...rows] : rows.length === 0 ? found : null;
    for (const row of rows) places.push({ name: row.name, updatedAt: row.updatedAt, length: JSON.stringify(groupJson(row)).length });
    more = rows.length > 0;
  }
  return { page: found && found.toSorted(byChange).map(groupJson), places: places.toSorted(byChange) };
}

const byChange = (one: Pick<Group, "updatedAt">, other: Pick<Group, "updatedAt">): number => other.updatedAt - one.updatedAt;

/** Names of groups that are read together, in order. */
function* portions(places: readonly Place[]): Generator<string[]> {
  for (let at = 0; at < places.length;) {
    const count = fittingPage(
      places.slice(at).map(({ length }) => length),
      memory.settings,
    );
    yield places.slice(at, at + count).map(({ name }) => name);
    at += count;
  }
}

/** Returns groups as they are shown, in this order, without groups that were deleted in between. */
async function shownOf(store: Store, account: AccountId, names: readonly string[]): Promise<unknown[]> {
  const rows = await Promise.all(names.map((name) => store.read.setUp("groups", account, name)));
  return rows.flatMap((row) => (row ? [groupJson(row)] : []));
}

const get = route({
  method: "GET",
  path: "/v2/topics/{name}",
  tag,
  summary: "Read a URL group",
  params: byName,
  answers: { 200: { about: "The URL group.", schema: group } },
  refusals: ["not-found"],
  handle: async ({ account, params, parts: { store } }) => {
    const name = checkName("name", params.name);
    const found = await store.read.setUp("groups", account.id, name);
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
  handle: async ({ account, params, parts }) => {
    const body = await parts.store.execute("deleteGroup", { account: account.id, name: checkName("name", params.name) });
    return { status: 200, body };
  },
});

const added = z.strictObject({
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
  body: { about: "The endpoints.", contentType: "application/json", schema: added, required: true, mostBytes },
  answers: { 200: { about: "The URL group as it is now.", schema: group } },
  refusals: ["limit-exceeded", "storage-quota-exceeded", "forbidden"],
  handle: async ({ account, params, incoming, parts }) => {
    const name = checkName("name", params.name);
    const given = { account: account.id, name, endpoints: readObject(added, incoming).endpoints.map(checkedEndpoint) };
    mustReadToSend(
      incoming,
      `a message to the URL group ${name}`,
      given.endpoints.map(({ url }) => url),
    );
    const headers = warningHeader(
      warningsOf(
        { incoming, parts },
        given.endpoints.map(({ url }) => ({ url, group: null })),
      ),
    );
    return { status: 200, body: groupJson(await parts.store.execute("addEndpoints", given)), headers };
  },
});

function checkedEndpoint({ name = "", url }: { name?: string | undefined; url: string }, at: number): Endpoint {
  checkUrl(`endpoints.${at}.url`, url);
  return { name: name === "" ? null : checkEndpointName(`endpoints.${at}.name`, name), url };
}

/** The name of an endpoint is never part of a path, so it may be any text that every database keeps as it is. Throws `Refusal`. */
function checkEndpointName(field: string, name: string): string {
  if (isKey(name)) return name;
  const allowed = `1 to ${limits.nameLength} characters, none of them a control character`;
  throw new Refusal("invalid", `${field}: ${JSON.stringify(shortened(name))} is not possible; ${allowed}`);
}

const removed = z.strictObject({
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
  body: { about: "The endpoints.", contentType: "application/json", schema: removed, required: true, mostBytes },
  answers: { 200: { about: "How many were removed.", schema: z.object({ removed: z.int() }) } },
  refusals: ["not-found", "limit-exceeded"],
  handle: async ({ account, params, incoming, parts: { store } }) => {
    const endpoints = readObject(removed, incoming).endpoints.map(({ name = "", url = "" }, at) => {
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
    mostBytes,
  },
  answers: { 200: { about: "The URL group as it is now.", schema: group } },
  refusals: ["not-found", "limit-exceeded", "forbidden"],
  handle: async ({ account, params, incoming, parts: { store, now } }) => {
    const name = checkName("name", params.name);
    const { headers, ignored } = checkedHeaders(account, readObject(defaultHeaders, incoming).headers, now());
    mustReadToSend(incoming, `a message to the URL group ${name}`, callbacksIn(headers));
    const changed = await store.execute("setGroupHeaders", { account: account.id, name, headers });
    return { status: 200, body: groupJson(mayRead(incoming) ? changed : { ...changed, endpoints: [] }), ignored };
  },
});

/** Reads them as every request to the group will, so that what is kept can be used. Those that are unknown and may be are left out. */
function checkedHeaders(account: Account, given: SettingsGiven, now: number): { headers: HeaderList; ignored: string[] } {
  const headers = headersOf("headers", given);
  const { settings, ignored } = readSettings(givenByHeaders(headers.flat()));
  refuseOfSchedules(settings);
  const post = { brand: "svc", destination: "group", body: noBytes, content: [], senders: () => [], callerIp: null, settings } as const;
  const broken = sendingLimitBrokenBy(account, letterOf(post), now);
  if (broken) throw new Refusal(broken.refused, broken.message);
  return { headers: headers.filter(([name]) => !ignored.includes(name.toLowerCase())), ignored };
}

function groupJson({ name, createdAt, updatedAt, endpoints, headers, damaged }: Group): z.output<typeof group> {
  return {
    ...{ name, createdAt, updatedAt },
    endpoints: endpoints.map((one) => (one.name === null ? { url: one.url } : { name: one.name, url: one.url })),
    ...(headers.length === 0 ? {} : { headers: headerMap(shownSettings(headers)) }),
    ...(damaged && { damaged }),
  };
}

export const groups = [list, get, remove, add, removeSome, setHeaders];
