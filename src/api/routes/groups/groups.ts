import { z } from "zod";
import { Refusal, throwIfRefused } from "../../../engine/core/values/errors.ts";
import { limits } from "../../../engine/core/values/limits.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import type { Endpoint } from "../../../engine/core/model/urlGroup.ts";
import type { HeaderList } from "../../../engine/core/values/basics.ts";
import { noBytes } from "../../../engine/core/values/basics.ts";
import { findSendingRefusal } from "../../../engine/core/limits/sendingLimits.ts";
import { listHeaderSettings, readSettings, assertNoScheduleSettings } from "../../settings/grammar.ts";
import { listCallbackUrls, toSettingHeaders } from "../../publishing/keptSettings.ts";
import type { KeptSettings } from "../../publishing/keptSettings.ts";
import { toMessageInput } from "../../settings/message.ts";
import { PagedList } from "../../http/pagedList.ts";
import { readObject } from "../../route/readObject.ts";
import { makeHostWarnings, showWarnings, warningsField } from "../../publishing/refusedHosts.ts";
import { route } from "../../route/route.ts";
import { mayRead, assertMayReadToSend } from "../../route/scope.ts";
import { groupJson, groupSchema } from "../../views/urlGroups.ts";
import { isValidKey } from "../../settings/settingTexts.ts";
import { parseName, assertUrl, shorten } from "../../http/target.ts";
import { listGroupPages } from "./groupPages.ts";

const tag = "URL groups";
const byName = z.object({ name: z.string() });
const maxBytes = 4 * 1024 * 1024;

const changedSchema = groupSchema.extend(warningsField);

const list = route({
  method: "GET",
  path: "/v2/topics",
  tag,
  summary: "List the URL groups",
  about: "Returns all URL groups, the most recently changed first.",
  answers: { 200: { about: "All URL groups.", schema: z.array(groupSchema) } },
  refusals: [],
  handle: async ({ account, context: { store } }) => {
    return { status: 200, body: new PagedList(listGroupPages(store, account.id)) };
  },
});

const get = route({
  method: "GET",
  path: "/v2/topics/{name}",
  tag,
  summary: "Read a URL group",
  params: byName,
  answers: { 200: { about: "The URL group.", schema: groupSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context: { store } }) => {
    const name = parseName("name", params.name);
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
  answers: {
    200: {
      about: "The group no longer exists.",
      schema: z.object({
        deleted: z.int().describe("1 if the group was deleted, 0 if it did not exist."),
      }),
    },
  },
  refusals: [],
  handle: async ({ account, params, context }) => {
    const body = await context.store.execute("deleteGroup", {
      account: account.id,
      name: parseName("name", params.name),
    });
    return { status: 200, body };
  },
});

const addedSchema = z.strictObject({
  endpoints: z
    .array(
      z.strictObject({
        url: z
          .string("is missing or not a string")
          .describe("URL that receives the messages: http:// or https://."),
        name: z
          .string("is not a string")
          .optional()
          .describe(
            "Name of the endpoint in the group: " +
              `a string of at most ${limits.nameLength} characters, without control characters.`,
          ),
      }),
      "is missing or not a list",
    )
    .min(1, "is empty")
    .describe(`Endpoints to add, from 1 to ${limits.endpoints}.`),
});

const add = route({
  method: "POST",
  path: "/v2/topics/{name}/endpoints",
  tag,
  summary: "Add endpoints to a URL group",
  about:
    "Creates the group if it does not exist. " +
    "An endpoint replaces the existing one with the same name, or else the one with the same URL. " +
    `A group has at most ${limits.endpoints} endpoints.`,
  params: byName,
  body: {
    about: "Endpoints to add.",
    contentType: "application/json",
    schema: addedSchema,
    required: true,
    maxBytes,
  },
  answers: { 200: { about: "The URL group as it is now.", schema: changedSchema } },
  refusals: ["limit-exceeded", "storage-quota-exceeded", "disk-low", "forbidden"],
  handle: async ({ account, params, incoming, context }) => {
    const name = parseName("name", params.name);
    const addition = {
      account: account.id,
      name,
      endpoints: readObject(addedSchema, incoming).endpoints.map(readEndpoint),
    };
    assertMayReadToSend(
      incoming,
      `a message to the URL group ${name}`,
      addition.endpoints.map(({ url }) => url),
    );
    const changed = await context.store.execute("addEndpoints", addition);
    const destinations = addition.endpoints.map(({ url }) => ({ url, group: null }));
    const { field, headers } = showWarnings(makeHostWarnings({ incoming, context }, destinations));
    return { status: 200, body: { ...groupJson(changed), ...field }, headers };
  },
});

function readEndpoint({ name = "", url }: { name?: string | undefined; url: string }, at: number): Endpoint {
  assertUrl(`endpoints.${at}.url`, url);
  return { name: name === "" ? null : parseEndpointName(`endpoints.${at}.name`, name), url };
}

/**
 * Returns the valid name of an endpoint. The name is never part of a path, so it may be any text that every
 * database stores unchanged. Throws `Refusal` for any other text.
 */
function parseEndpointName(field: string, name: string): string {
  if (isValidKey(name)) return name;
  const allowed = `use 1 to ${limits.nameLength} characters without control characters`;
  throw new Refusal("invalid", `${field}: ${JSON.stringify(shorten(name))} is not a valid name; ${allowed}`);
}

const removedSchema = z.strictObject({
  endpoints: z
    .array(
      z.strictObject({
        name: z
          .string("is not a string")
          .optional()
          .describe("Name of the endpoint. Give the name or the URL."),
        url: z
          .string("is not a string")
          .optional()
          .describe("URL of the endpoint. Give the name or the URL."),
      }),
      "is missing or not a list",
    )
    .min(1, "is empty")
    .describe("Endpoints to remove, at least 1."),
});

const removeSome = route({
  method: "DELETE",
  path: "/v2/topics/{name}/endpoints",
  tag,
  summary: "Remove endpoints from a URL group",
  about:
    "Removes endpoints by name or by URL. Endpoints that are not in the group are ignored. " +
    "The group is deleted together with its last endpoint.",
  params: byName,
  body: {
    about: "Endpoints to remove.",
    contentType: "application/json",
    schema: removedSchema,
    required: true,
    maxBytes,
  },
  answers: {
    200: {
      about: "The endpoints were removed.",
      schema: z.object({ removed: z.int().min(0).describe("Number of endpoints that were removed.") }),
    },
  },
  refusals: ["not-found", "limit-exceeded"],
  handle: async ({ account, params, incoming, context: { store } }) => {
    const endpoints = readObject(removedSchema, incoming).endpoints.map(({ name = "", url = "" }, at) => {
      if (name === "" && url === "")
        throw new Refusal("invalid", `endpoints.${at}: requires name or url; give one of them`);
      return { name: name === "" ? null : name, url: url === "" ? null : url };
    });
    return {
      status: 200,
      body: await store.execute("removeEndpoints", {
        account: account.id,
        name: parseName("name", params.name),
        endpoints,
      }),
    };
  },
});

const text = z.string("is neither a string nor a list of strings");
const defaultHeaders = z.strictObject({
  headers: z
    .record(
      z.string(),
      z.union([text, z.array(text)], "is neither a string nor a list of strings"),
      "is missing or not an object",
    )
    .describe(
      "Settings as headers, such as Svc-Retries: names, each with a value or a list of values. " +
        "An empty object removes all default headers.",
    ),
});

const setHeaders = route({
  method: "PATCH",
  path: "/v2/topics/{name}",
  tag,
  summary: "Set the default headers of a URL group",
  about:
    "Sets settings that apply to every request to the group. If a request has one of these headers itself, " +
    "that header applies. The new default headers replace all previous ones. A schedule keeps " +
    "the default headers that the group had when the schedule was created.",
  params: byName,
  body: {
    about: "Default headers: names, each with a value or a list of values.",
    contentType: "application/json",
    schema: defaultHeaders,
    required: true,
    maxBytes,
  },
  answers: { 200: { about: "The URL group as it is now.", schema: changedSchema } },
  refusals: ["not-found", "limit-exceeded", "forbidden"],
  handle: async ({ account, params, incoming, context }) => {
    const name = parseName("name", params.name);
    const { headers, ignored } = readDefaultHeaders(
      account,
      readObject(defaultHeaders, incoming).headers,
      context.now(),
    );
    const callbacks = listCallbackUrls(headers);
    assertMayReadToSend(incoming, `a message to the URL group ${name}`, callbacks);
    const changed = await context.store.execute("setGroupHeaders", { account: account.id, name, headers });
    const destinations = callbacks.map((url) => ({ url, group: null }));
    const { field, headers: warned } = showWarnings(makeHostWarnings({ incoming, context }, destinations));
    return {
      status: 200,
      body: { ...groupJson(mayRead(incoming) ? changed : { ...changed, endpoints: [] }), ...field },
      ignored,
      headers: warned,
    };
  },
});

/**
 * Reads default headers as every request to the group will, so that invalid headers are refused now. Unknown
 * settings of the other brand are left out and returned in `ignored`. Throws `Refusal`.
 */
function readDefaultHeaders(
  account: Account,
  keptSettings: KeptSettings,
  now: number,
): { headers: HeaderList; ignored: string[] } {
  const headers = toSettingHeaders("headers", keptSettings);
  const { settings, ignored } = readSettings(listHeaderSettings(headers.flat()));
  assertNoScheduleSettings(settings);
  const post = {
    brand: "svc",
    destination: "group",
    body: noBytes,
    content: [],
    senderHeaders: () => [],
    callerIp: null,
    settings,
  } as const;
  throwIfRefused(findSendingRefusal(account, toMessageInput(post), now));
  return { headers: headers.filter(([name]) => !ignored.includes(name.toLowerCase())), ignored };
}

/** The routes of URL groups. */
export const groups = [list, get, remove, add, removeSome, setHeaders];
