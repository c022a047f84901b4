import { z } from "zod";
import { isId } from "../../engine/core/values/ids.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import type { WebhookSource } from "../../engine/core/model/webhookSource.ts";
import type { SourceSettings } from "./commands.ts";
import { maxRejections, rejectionRange } from "./commands.ts";
import { hashSourceSecret, makeSourceUrl, makeSourceSecret } from "../../api/publishing/sourceUrl.ts";
import { listCallbackUrls, toSettingHeaders } from "../../api/publishing/keptSettings.ts";
import { count, singleText } from "../../api/http/parameters.ts";
import { readSourceJson, readSourcesJson } from "./view.ts";
import { readObject } from "../../api/route/readObject.ts";
import type { IncomingRequest, RouteContext } from "../../api/route/route.ts";
import { route } from "../../api/route/route.ts";
import { mayRead, assertMayReadToSend } from "../../api/route/scope.ts";
import { readRedaction } from "../../api/publishing/keptSettings.ts";
import { makeHostWarnings, showWarnings, warningsField } from "../../api/publishing/refusedHosts.ts";
import { toJson } from "../../api/fields/field.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import { rejectionFields, sourceFields } from "./fields.ts";
import { maxKeptBytes, maxKeptCalls } from "./keptCall.ts";
import { checkSourceTarget } from "../../api/publishing/sourceSettings.ts";
import { isUrl } from "../../api/http/target.ts";
import { verificationSchema } from "./schemes/verification.ts";

const byId = z.object({ sourceId: z.string() });

/** The maximum number of values of one setting, such as a header that is forwarded repeatedly. */
const maxValues = 32;

const settingsSchema = z
  .record(
    z.string(),
    z.union([z.string(), z.array(z.string()).max(maxValues)], "is neither a string nor a list of strings"),
  )
  .describe(
    "Settings of the source's messages, as headers such as Svc-Retries or Svc-Forward-Authorization. " +
      `Each has a value or a list of at most ${maxValues} values. ` +
      "Svc-Header-Forward is true unless it is given here.",
  );

const fields = {
  name: z
    .string("is not a string")
    .max(limits.nameLength, `is longer than ${limits.nameLength} characters`)
    .describe(
      `Name of the source, for display only: at most ${limits.nameLength} characters. Default: empty.`,
    ),
  destination: z
    .string("is missing or not a string")
    .describe("Destination of the source's messages: a URL, or the name of a URL group."),
  settings: settingsSchema,
  verification: verificationSchema
    .nullable()
    .describe(
      "Verification of calls by their signatures. null: none, so a sender needs only the URL. Default: null.",
    ),
  deduplicate: z
    .boolean("is neither true nor false")
    .describe(
      "Whether repeated calls for the same event are ignored. An event is the same if a call has the same " +
        "event id of the sender within 10 minutes, or the same signature and topic within a day. " +
        "Svc-Deduplication-Window in the settings changes both times. With keepsRejected, both are a day " +
        "or longer. Default: true.",
    ),
  paused: z
    .boolean("is neither true nor false")
    .describe(
      "Whether the source is paused. Calls then receive status 503, so that senders retry. Default: false.",
    ),
  keepsRejected: z
    .boolean("is neither true nor false")
    .describe(
      `Whether rejected calls are kept whole for a day, at most ${maxKeptCalls} calls and ` +
        `${maxKeptBytes} bytes, so that they can be sent later. Default: false.`,
    ),
};

const changeSchema = z.strictObject(fields).partial();
const creationSchema = changeSchema.extend({ destination: fields.destination });

const sourceSchema = toSchema(sourceFields);
const changedSchema = sourceSchema.extend(warningsField);
const sourceWithUrlSchema = sourceSchema.extend({
  url: z.string().describe("URL for the sender. It contains the secret and is shown only in this response."),
});

const describeBody = (about: string, schema: z.ZodType) => ({
  about,
  contentType: "application/json",
  schema,
  required: true,
  maxBytes: 1024 * 1024,
});

const create = route({
  method: "POST",
  path: "/v2/sources",
  tag: "Sources",
  summary: "Create a source",
  about:
    "Creates a URL for one sender of webhooks, which can publish to one destination and do nothing else. " +
    "A call to the URL is verified and published with the settings of the source. " +
    "The sender cannot change these settings.",
  body: describeBody("Properties of the source.", creationSchema),
  answers: {
    201: { about: "The source, with its URL.", schema: sourceWithUrlSchema.extend(warningsField) },
  },
  refusals: ["limit-exceeded", "forbidden"],
  handle: async ({ account, incoming, context }) => {
    const setUp = toSourceSetUp(readObject(creationSchema, incoming));
    const target = { owner: account, ...setUp };
    const { ignored, destinations } = await checkSourceTarget(incoming, context, target);
    // A token that may not read must not learn the URLs of a group's endpoints, which callbacks contain.
    // Everything else in a callback is new.
    if (!isUrl(setUp.destination))
      assertMayReadToSend(incoming, publishedContent, listCallbackUrls(setUp.headers));
    const secret = makeSourceSecret();
    const created = await context.store.execute("createSource", {
      account: account.id,
      secretHash: hashSourceSecret(secret),
      ...setUp,
    });
    const { field, headers } = showWarnings(makeHostWarnings({ incoming, context }, destinations));
    const shown = await readSourceJson(created, context);
    return {
      status: 201,
      body: { ...shown, url: makeSourceUrl(incoming.origin, secret), ...field },
      ignored,
      headers,
    };
  },
});

const publishedContent = "what the source publishes";

/**
 * Returns a source as a token may see it. For a token that may not read, the result shows only whether the
 * change succeeded, not the stored properties.
 */
const redactForToken = (incoming: IncomingRequest, shown: Record<string, unknown>): Record<string, unknown> =>
  mayRead(incoming) ? shown : { ...shown, name: "", destination: "", settings: {}, verification: null };

const toSourceSetUp = ({
  destination,
  name,
  settings,
  verification,
  deduplicate,
  paused,
  keepsRejected,
}: z.output<typeof creationSchema>): SourceSettings => ({
  destination,
  name: name ?? "",
  headers: toSettingHeaders("settings", settings ?? {}),
  verification: verification ?? null,
  deduplicate: deduplicate ?? true,
  paused: paused ?? false,
  ...(keepsRejected && { keepsRejected }),
});

const list = route({
  method: "GET",
  path: "/v2/sources",
  tag: "Sources",
  summary: "List sources",
  about: "Returns a page of sources, oldest first.",
  query: z.object({
    count: count({ max: 100, defaultCount: 100 }),
    cursor: singleText()
      .optional()
      .describe("Cursor of the previous page. Without it, the list starts from the oldest."),
  }),
  answers: {
    200: {
      about: "A page of sources.",
      schema: z.object({
        sources: z.array(sourceSchema).describe("Sources, oldest first."),
        cursor: z
          .string()
          .optional()
          .describe("Cursor of the next page, for the parameter `cursor`. Absent on the last page."),
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    if (query.cursor !== undefined && !isId(query.cursor))
      throw new Refusal("invalid", "cursor: not valid; use the cursor of the previous page");
    const range = {
      account: account.id,
      limit: query.count + 1,
      ...(query.cursor === undefined ? {} : { after: query.cursor }),
    };
    const found = await context.store.read.listResources("sources", range);
    const page = found.slice(0, query.count);
    const last = found.length > page.length ? page.at(-1) : undefined;
    return {
      status: 200,
      body: {
        sources: await readSourcesJson(page, context),
        ...(last ? { cursor: last.id } : {}),
      },
    };
  },
});

const get = route({
  method: "GET",
  path: "/v2/sources/{sourceId}",
  tag: "Sources",
  summary: "Read a source",
  params: byId,
  answers: { 200: { about: "The source.", schema: sourceSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => ({
    status: 200,
    body: await readSourceJson(await requireSource(context, account.id, params.sourceId), context),
  }),
});

const patch = route({
  method: "PATCH",
  path: "/v2/sources/{sourceId}",
  tag: "Sources",
  summary: "Change a source",
  about: "Omitted properties keep their values. Settings and verification are each replaced as a whole.",
  params: byId,
  body: describeBody("Properties to change.", changeSchema),
  answers: { 200: { about: "The source after the change.", schema: changedSchema } },
  refusals: ["not-found", "limit-exceeded", "forbidden"],
  handle: async ({ account, params, incoming, context }) => {
    const before = await requireSource(context, account.id, params.sourceId);
    const changed = toSourceChange(readObject(changeSchema, incoming));
    const changesDestination = changed.destination !== undefined || changed.headers !== undefined;
    const { ignored, destinations } = changesDestination
      ? await checkSourceTarget(incoming, context, { owner: account, ...before, ...changed })
      : { ignored: [], destinations: [] };
    assertMayReadToSend(incoming, publishedContent, [
      ...[changed.destination ?? ""].filter(isUrl),
      ...listCallbackUrls(changed.headers ?? []),
    ]);
    const shown = await readSourceJson(await changeSource(context, before, changed), context);
    const warnings = makeHostWarnings({ incoming, context }, mayRead(incoming) ? destinations : []);
    const { field, headers } = showWarnings(warnings);
    return { status: 200, body: { ...redactForToken(incoming, shown), ...field }, ignored, headers };
  },
});

function toSourceChange({ settings, ...rest }: z.output<typeof changeSchema>): Partial<SourceSettings> {
  const changed = {
    ...rest,
    ...(settings === undefined ? {} : { headers: toSettingHeaders("settings", settings) }),
  };
  return Object.fromEntries(Object.entries(changed).filter(([, value]) => value !== undefined));
}

async function changeSource(
  { store }: RouteContext,
  { account, id }: WebhookSource,
  changed: Partial<SourceSettings & { secretHash: string }>,
): Promise<WebhookSource> {
  const source = await store.execute("changeSource", { account, id, change: changed });
  if (!source) throw makeNotFound(id);
  return source;
}

const rotate = route({
  method: "POST",
  path: "/v2/sources/{sourceId}/rotate",
  tag: "Sources",
  summary: "Give a source a new URL",
  about:
    "Creates a new URL; the old URL is invalid immediately. Use it if others may know the URL. " +
    "To change a URL without missing a call, create a second source with the same destination, " +
    "configure the sender to use it, and delete this source.",
  params: byId,
  answers: { 200: { about: "The source, with its new URL.", schema: sourceWithUrlSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, incoming, context }) => {
    const secret = makeSourceSecret();
    const before = await requireSource(context, account.id, params.sourceId);
    const changed = await changeSource(context, before, { secretHash: hashSourceSecret(secret) });
    return {
      status: 200,
      body: {
        ...redactForToken(incoming, await readSourceJson(changed, context)),
        url: makeSourceUrl(incoming.origin, secret),
      },
    };
  },
});

const remove = route({
  method: "DELETE",
  path: "/v2/sources/{sourceId}",
  tag: "Sources",
  summary: "Delete a source",
  about:
    "Its URL is invalid immediately. Messages that it published are still delivered. " +
    "The calls that it rejected are deleted.",
  params: byId,
  answers: {
    200: {
      about: "The source was deleted.",
      schema: z.object({ deleted: z.literal(1).describe("Number of sources that were deleted.") }),
    },
  },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => {
    const { sourceId: id } = params;
    const { deleted } = isId(id)
      ? await context.store.execute("deleteSource", { account: account.id, id })
      : { deleted: false };
    if (!deleted) throw makeNotFound(id);
    return { status: 200, body: { deleted: 1 } };
  },
});

const rejections = route({
  method: "GET",
  path: "/v2/sources/{sourceId}/rejections",
  tag: "Sources",
  summary: "List the calls that a source rejected",
  about:
    `Returns at most the last ${maxRejections} kept calls, newest first. ` +
    "If many calls are rejected in a short time, only some are kept; the others are only counted.",
  params: byId,
  answers: {
    200: {
      about: "The rejected calls, with the reasons.",
      schema: z.object({
        rejections: z.array(toSchema(rejectionFields)).describe("Rejected calls, newest first."),
      }),
    },
  },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => {
    const { id, headers, keptCalls = [] } = await requireSource(context, account.id, params.sourceId);
    const now = context.now();
    const ends = new Map(keptCalls.map(({ number, until }) => [number, until > now ? until : undefined]));
    const found = await context.store.read.listResources("rejections", {
      account: account.id,
      ...rejectionRange(id),
      limit: maxRejections,
    });
    const newest = found.toSorted((a, b) => b.number - a.number);
    const redaction = readRedaction(headers);
    const shown = newest.map((one) =>
      toJson(rejectionFields, { ...one, redaction, keptUntil: ends.get(one.number) }),
    );
    return { status: 200, body: { rejections: shown } };
  },
});

export async function requireSource(
  { store }: RouteContext,
  account: AccountId,
  id: string,
): Promise<WebhookSource> {
  const found = isId(id) ? await store.read.findResource("sources", account, id) : null;
  if (!found) throw makeNotFound(id);
  return found;
}

const makeNotFound = (id: string): Refusal =>
  new Refusal("not-found", `source: there is no source ${JSON.stringify(id.slice(0, 200))}`);

/** The routes of sources. */
export const sources = [create, list, get, patch, rotate, remove, rejections];
