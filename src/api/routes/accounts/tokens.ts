import { z } from "zod";
import { isId } from "../../../engine/core/values/ids.ts";
import { longestDuration, parseDuration } from "../../../engine/core/values/duration.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { limits } from "../../../engine/core/values/limits.ts";
import type { Millis } from "../../../engine/core/values/basics.ts";
import { maxPatterns } from "../../../engine/core/model/publishRights.ts";
import { verbs } from "../../../engine/core/model/rights.ts";
import { toJson } from "../../fields/field.ts";
import { tokenFields } from "../../fields/token.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { count, singleText } from "../../http/parameters.ts";
import { readObject } from "../../route/readObject.ts";
import { route } from "../../route/route.ts";
import { readScope } from "../../route/scope.ts";
import { hashToken, makeRandomToken } from "../../auth/token.ts";

const tag = "Tokens";
const byId = z.object({ tokenId: z.string().describe("The id of the token.") });
const tokenSchema = toSchema(tokenFields);

const creationSchema = z.strictObject({
  name: z
    .string("is not a string")
    .max(limits.nameLength, `is longer than ${limits.nameLength} characters`)
    .default("")
    .describe("A name that tells people what the token is for."),
  verbs: z
    .array(z.enum(verbs, `must be one of ${verbs.join(", ")}`), "is missing or not a list")
    .max(verbs.length, `has more than ${verbs.length} values`)
    .describe("The rights of the token: publish, read, manage, receive. At least one."),
  destinations: z
    .array(z.string("is not a string"), "is not a list")
    .max(maxPatterns, {
      error: ({ input }) =>
        `${Array.isArray(input) ? input.length : "the list"} exceeds the limit of ${maxPatterns}; ` +
        "patterns can end in a star",
    })
    .default([])
    .describe(
      "Where the token may publish to, and receive from, such as https://example.com/in/*, " +
        "https://*.example.com/*, queue:orders or group:orders-*. Callbacks are also restricted. At most " +
        `${maxPatterns} patterns. Empty means everywhere.`,
    ),
  expires: z
    .union([z.int(), z.string()], "is neither a duration nor Unix milliseconds")
    .optional()
    .describe(
      "When the token expires: a duration from now such as 30d, or Unix milliseconds. Default: never.",
    ),
});

function readExpiry(expires: number | string | undefined, now: Millis): Millis | null {
  if (expires === undefined) return null;
  if (typeof expires === "number") return expires;
  const span = parseDuration(expires);
  if (span === null)
    throw new Refusal(
      "invalid",
      `expires: is not a duration of at most ${longestDuration}; use a value such as 12h or 30d`,
    );
  return now + span;
}

const create = route({
  method: "POST",
  path: "/v2/tokens",
  tag,
  summary: "Create a token",
  about:
    "Only this response has the text of the token; it cannot be read later. A token cannot give another " +
    "token rights that it does not have.",
  body: {
    about: "The rights and the lifetime of the token.",
    contentType: "application/json",
    schema: creationSchema,
    required: true,
    maxBytes: 512 * 1024,
  },
  answers: {
    201: {
      about: "The token, with its text.",
      schema: tokenSchema.extend({
        token: z.string().describe("The text of the token, for the header Authorization: Bearer."),
      }),
    },
  },
  refusals: ["forbidden", "limit-exceeded"],
  handle: async ({ account, incoming, context }) => {
    const { expires, ...request } = readObject(creationSchema, incoming);
    const expiresAt = readExpiry(expires, context.now());
    const token = makeRandomToken(account.id);
    const { scope = null } = readScope(incoming);
    const created = await context.store.execute("createToken", {
      account: account.id,
      hash: hashToken(token),
      scope,
      ...request,
      expiresAt,
    });
    return {
      status: 201,
      body: { ...toJson(tokenFields, created), token },
      headers: { "Cache-Control": "no-store" },
    };
  },
});

const list = route({
  method: "GET",
  path: "/v2/tokens",
  tag,
  summary: "List tokens",
  about:
    "Lists created tokens, oldest first. The main token and the read-only token of the account are not " +
    "listed.",
  query: z.object({
    count: count({ max: 100, defaultCount: 100 }),
    cursor: singleText()
      .optional()
      .describe("The cursor that the previous page returned. Omit it for the first page."),
  }),
  answers: {
    200: {
      about: "A page of tokens, without their texts.",
      schema: z.object({
        tokens: z.array(tokenSchema).describe("The tokens, oldest first."),
        cursor: z
          .string()
          .optional()
          .describe("The cursor to pass for the next page. Absent on the last page."),
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    if (query.cursor !== undefined && !isId(query.cursor))
      throw new Refusal("invalid", "cursor: unknown; use the cursor of the previous page");
    const range = {
      account: account.id,
      limit: query.count + 1,
      ...(query.cursor === undefined ? {} : { after: query.cursor }),
    };
    const found = await context.store.read.listResources("tokens", range);
    const page = found.slice(0, query.count);
    const last = found.length > page.length ? page.at(-1) : undefined;
    return {
      status: 200,
      body: { tokens: page.map((one) => toJson(tokenFields, one)), ...(last ? { cursor: last.id } : {}) },
    };
  },
});

const get = route({
  method: "GET",
  path: "/v2/tokens/{tokenId}",
  tag,
  summary: "Read a token",
  params: byId,
  answers: { 200: { about: "The token, without its text.", schema: tokenSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params: { tokenId: id }, context }) => {
    const found = isId(id) ? await context.store.read.findResource("tokens", account.id, id) : null;
    if (!found) throw missing(id);
    return { status: 200, body: toJson(tokenFields, found) };
  },
});

const revoke = route({
  method: "DELETE",
  path: "/v2/tokens/{tokenId}",
  tag,
  summary: "Revoke a token",
  about:
    "The token stops working at once, on every node. Tokens that it created stay valid. A disabled account " +
    "can also do this.",
  params: byId,
  forPassive: true,
  answers: {
    200: {
      about: "The token is revoked.",
      schema: z.object({ revoked: z.literal(1).describe("The number of revoked tokens: always 1.") }),
    },
  },
  refusals: ["not-found", "forbidden"],
  handle: async ({ account, params: { tokenId: id }, context }) => {
    const { revoked } = isId(id)
      ? await context.store.execute("revokeToken", { account: account.id, id })
      : { revoked: false };
    if (!revoked) throw missing(id);
    return { status: 200, body: { revoked: 1 } };
  },
});

const missing = (id: string): Refusal =>
  new Refusal("not-found", `token: there is no token ${JSON.stringify(id.slice(0, 200))}`);

/** The routes that create, read and revoke tokens. */
export const tokens = [create, list, get, revoke];
