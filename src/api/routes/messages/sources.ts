import { z } from "zod";
import { isId } from "../../../core/values/ids.ts";
import { Refusal } from "../../../core/values/errors.ts";
import { limits } from "../../../core/values/limits.ts";
import type { AccountId, Source } from "../../../core/model/message.ts";
import type { SourceSetUp } from "../../../core/commands/source.ts";
import { places, rejectionsOf } from "../../../core/commands/source.ts";
import { hashOfSecret, intakeUrl, newSecret } from "../../publishing/intakeUrl.ts";
import { callbacksIn, headersOf } from "../../publishing/keptSettings.ts";
import { count, one } from "../../http/parameters.ts";
import { rejectionJson, sourceJson } from "../../views/sources.ts";
import { readObject } from "../../route/readObject.ts";
import type { Incoming, Parts } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { mayRead, mustReadToSend } from "../../route/scope.ts";
import { rejection, source } from "../../views/sourceShapes.ts";
import { checkAim } from "../../publishing/sourceSettings.ts";
import { isUrl } from "../../http/target.ts";
import { verificationSchema } from "../../webhooks/verification.ts";

const byId = z.object({ sourceId: z.string() });

/** Of one header that is forwarded repeatedly. */
const mostValues = 32;

const settings = z
  .record(z.string(), z.union([z.string(), z.array(z.string()).max(mostValues)], "is neither a text nor a list of texts"))
  .describe("Settings of its messages, as headers: Svc-Retries, Svc-Forward-Authorization. Svc-Header-Forward is true unless it is here.");

const fields = {
  name: z.string("is not a text").max(limits.nameLength, `is longer than ${limits.nameLength} characters`).describe("For people."),
  destination: z.string("is missing, or not a text").describe("Where its messages go: a URL, or the name of a URL group."),
  settings,
  verification: verificationSchema.nullable().describe("How its calls are verified. null: not at all; its URL is all that a sender needs."),
  deduplicate: z
    .boolean("is neither true nor false")
    .describe(
      "Whether calls for the same event are accepted once: with the same event id of the sender within 10 minutes, or with the same signature and topic within a day; Svc-Deduplication-Window in the settings changes both times. Default: true.",
    ),
  paused: z.boolean("is neither true nor false").describe("While it is, calls are answered with 503, so that senders come again."),
};

const change = z.strictObject(fields).partial();
const creation = change.extend({ destination: fields.destination });

const withUrl = source.extend({ url: z.string().describe("The URL for the sender. It holds the secret, and is shown only now.") });

const bodyOf = (about: string, schema: z.ZodType) => ({
  ...{ about, contentType: "application/json", schema, required: true, mostBytes: 1024 * 1024 },
});

const create = route({
  method: "POST",
  path: "/v2/sources",
  tag: "Sources",
  summary: "Create a source",
  about:
    "Makes a URL for one sender of webhooks, which can publish to one destination and do nothing else. What is called there is verified, and published with the settings of the source; the sender can change none of them.",
  body: bodyOf("What the source is to be.", creation),
  answers: { 201: { about: "The source, with its URL.", schema: withUrl } },
  refusals: ["limit-exceeded", "forbidden"],
  handle: async ({ account, incoming, parts }) => {
    const setUp = setUpOf(readObject(creation, incoming));
    const ignored = await checkAim(incoming, parts, { owner: account, ...setUp });
    // Callbacks contain the URLs of the endpoints of a URL group. Everything else in them is new.
    if (!isUrl(setUp.destination)) mustReadToSend(incoming, whatItSends, callbacksIn(setUp.headers));
    const secret = newSecret();
    const made = await parts.store.execute("createSource", { account: account.id, secretHash: hashOfSecret(secret), ...setUp });
    return { status: 201, body: { ...sourceJson(made, parts), url: intakeUrl(incoming.origin, secret) }, ignored };
  },
});

const whatItSends = "what the source publishes";

/** A token that may not read learns what it has done, and not what else the source is. */
const shownTo = (incoming: Incoming, shown: Record<string, unknown>): Record<string, unknown> =>
  mayRead(incoming) ? shown : { ...shown, name: "", destination: "", settings: {}, verification: null };

const setUpOf = ({ destination, name, settings: given, verification, deduplicate, paused }: z.output<typeof creation>): SourceSetUp => ({
  ...{ destination, name: name ?? "", headers: headersOf("settings", given ?? {}), verification: verification ?? null },
  ...{ deduplicate: deduplicate ?? true, paused: paused ?? false },
});

const list = route({
  method: "GET",
  path: "/v2/sources",
  tag: "Sources",
  summary: "List sources",
  about: "Oldest first.",
  query: z.object({
    count: count({ most: 100, normally: 100 }),
    cursor: one().optional().describe("Where the page before ended."),
  }),
  answers: {
    200: {
      about: "A page of sources.",
      schema: z.object({ sources: z.array(source), cursor: z.string().optional().describe("Where to go on. Absent at the end.") }),
    },
  },
  refusals: [],
  handle: async ({ account, query, parts }) => {
    if (query.cursor !== undefined && !isId(query.cursor)) throw new Refusal("invalid", "cursor: not one that a page ended with");
    const range = { account: account.id, limit: query.count + 1, ...(query.cursor === undefined ? {} : { after: query.cursor }) };
    const found = await parts.store.read.allSetUp("sources", range);
    const page = found.slice(0, query.count);
    const last = found.length > page.length ? page.at(-1) : undefined;
    return { status: 200, body: { sources: page.map((source) => sourceJson(source, parts)), ...(last ? { cursor: last.id } : {}) } };
  },
});

const get = route({
  method: "GET",
  path: "/v2/sources/{sourceId}",
  tag: "Sources",
  summary: "Read a source",
  params: byId,
  answers: { 200: { about: "The source.", schema: source } },
  refusals: ["not-found"],
  handle: async ({ account, params, parts }) => ({
    status: 200,
    body: sourceJson(await present(parts, account.id, params.sourceId), parts),
  }),
});

const patch = route({
  method: "PATCH",
  path: "/v2/sources/{sourceId}",
  tag: "Sources",
  summary: "Change a source",
  about: "What is not given stays as it is. Settings are replaced as a whole, and so is the verification.",
  params: byId,
  body: bodyOf("What is to be different.", change),
  answers: { 200: { about: "The source as it is now.", schema: source } },
  refusals: ["not-found", "limit-exceeded", "forbidden"],
  handle: async ({ account, params, incoming, parts }) => {
    const before = await present(parts, account.id, params.sourceId);
    const changed = changeOf(readObject(change, incoming));
    const isAimed = changed.destination !== undefined || changed.headers !== undefined;
    const ignored = isAimed ? await checkAim(incoming, parts, { owner: account, ...before, ...changed }) : [];
    const destinations = [changed.destination ?? ""].filter(isUrl);
    mustReadToSend(incoming, whatItSends, [...destinations, ...callbacksIn(changed.headers ?? [])]);
    return { status: 200, body: shownTo(incoming, sourceJson(await changedSource(parts, before, changed), parts)), ignored };
  },
});

function changeOf({ settings: given, ...rest }: z.output<typeof change>): Partial<SourceSetUp> {
  const changed = { ...rest, ...(given === undefined ? {} : { headers: headersOf("settings", given) }) };
  return Object.fromEntries(Object.entries(changed).filter(([, value]) => value !== undefined));
}

async function changedSource(
  { store }: Parts,
  { account, id }: Source,
  changed: Partial<SourceSetUp & { secretHash: string }>,
): Promise<Source> {
  const source = await store.execute("changeSource", { account, id, change: changed });
  if (!source) throw missing(id);
  return source;
}

const rotate = route({
  method: "POST",
  path: "/v2/sources/{sourceId}/rotate",
  tag: "Sources",
  summary: "Give a source a new URL",
  about:
    "The old URL ends at once: this is for one that others have come to know. To change a URL without missing a call, make a second source with the same destination, let the sender call that, and delete this one.",
  params: byId,
  answers: { 200: { about: "The source, with its new URL.", schema: withUrl } },
  refusals: ["not-found"],
  handle: async ({ account, params, incoming, parts }) => {
    const secret = newSecret();
    const before = await present(parts, account.id, params.sourceId);
    const changed = await changedSource(parts, before, { secretHash: hashOfSecret(secret) });
    return { status: 200, body: { ...shownTo(incoming, sourceJson(changed, parts)), url: intakeUrl(incoming.origin, secret) } };
  },
});

const remove = route({
  method: "DELETE",
  path: "/v2/sources/{sourceId}",
  tag: "Sources",
  summary: "Delete a source",
  about: "Its URL ends at once. Messages that it published are delivered all the same; the calls it rejected are forgotten.",
  params: byId,
  answers: { 200: { about: "It is gone.", schema: z.object({ deleted: z.literal(1) }) } },
  refusals: ["not-found"],
  handle: async ({ account, params, parts }) => {
    const { sourceId: id } = params;
    const { deleted } = isId(id) ? await parts.store.execute("deleteSource", { account: account.id, id }) : { deleted: false };
    if (!deleted) throw missing(id);
    return { status: 200, body: { deleted: 1 } };
  },
});

const rejections = route({
  method: "GET",
  path: "/v2/sources/{sourceId}/rejections",
  tag: "Sources",
  summary: "List the calls that a source rejected",
  about: `The last ${places} that were kept, newest first. Of many in a short time only some are kept; the others are counted.`,
  params: byId,
  answers: { 200: { about: "The calls, with the reasons.", schema: z.object({ rejections: z.array(rejection) }) } },
  refusals: ["not-found"],
  handle: async ({ account, params, parts }) => {
    const { id, headers } = await present(parts, account.id, params.sourceId);
    const found = await parts.store.read.allSetUp("rejections", { account: account.id, ...rejectionsOf(id), limit: places });
    const newest = found.toSorted((a, b) => b.number - a.number);
    return { status: 200, body: { rejections: newest.map((one) => rejectionJson(one, headers)) } };
  },
});

async function present({ store }: Parts, account: AccountId, id: string): Promise<Source> {
  const found = isId(id) ? await store.read.setUp("sources", account, id) : null;
  if (!found) throw missing(id);
  return found;
}

const missing = (id: string): Refusal => new Refusal("not-found", `source: there is no source ${JSON.stringify(id.slice(0, 200))}`);

export const sources = [create, list, get, patch, rotate, remove, rejections];
