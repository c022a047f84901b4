import { z } from "zod";
import { isId } from "../../../core/values/ids.ts";
import { parseDuration } from "../../../core/values/duration.ts";
import { Refusal } from "../../../core/values/errors.ts";
import { limits } from "../../../core/values/limits.ts";
import type { Millis } from "../../../core/model/message.ts";
import type { Token } from "../../../core/model/rights.ts";
import { verbs } from "../../../core/model/rights.ts";
import { count, singleText } from "../../http/parameters.ts";
import { readObject } from "../../route/readObject.ts";
import { route } from "../../route/route.ts";
import { readScope } from "../../route/scope.ts";
import { hashToken, makeRandomToken } from "../../auth/token.ts";

const tag = "Tokens";
const byId = z.object({ tokenId: z.string() });
const millis = (about: string) => z.int().describe(`${about}, in unix milliseconds.`);

const tokenSchema = z.object({
  tokenId: z.string(),
  name: z.string(),
  verbs: z.array(z.enum(verbs)).describe("publish; read: what changes nothing; manage: all else."),
  destinations: z.array(z.string()).describe("Where it may publish to. Empty: everywhere."),
  createdAt: millis("When it was made"),
  expiresAt: millis("When it ends by itself").optional(),
  usedAt: millis("When it was used last, to the minute").optional(),
  madeBy: z.string().optional().describe("The id of the token by which it was made, unless the account itself made it."),
});

/** A token as it is shown: its text is no part of it. */
const tokenJson = ({ id, name, verbs: may, destinations, createdAt, expiresAt, usedAt, madeBy }: Token): z.output<typeof tokenSchema> => ({
  tokenId: id,
  name,
  verbs: [...may],
  destinations: [...destinations],
  createdAt,
  ...(expiresAt === null ? {} : { expiresAt }),
  ...(usedAt === null ? {} : { usedAt }),
  ...(madeBy === null ? {} : { madeBy }),
});

const creationSchema = z.strictObject({
  name: z
    .string("is not a text")
    .max(limits.nameLength, `is longer than ${limits.nameLength} characters`)
    .default("")
    .describe("For people."),
  verbs: z
    .array(z.enum(verbs, `is none of ${verbs.join(", ")}`), "is missing, or not a list")
    .max(verbs.length, "has more than there are")
    .describe("What it may be used for: publish, read, manage."),
  destinations: z
    .array(z.string("is not a text"), "is not a list")
    .max(100, "has more than 100")
    .default([])
    .describe(
      "Where it may publish to: https://example.com/in/*, https://*.example.com/*, queue:orders, group:orders-*. Callbacks are bound as well. Empty: everywhere.",
    ),
  expires: z
    .union([z.int(), z.string()], "is neither a duration nor unix milliseconds")
    .optional()
    .describe("When it ends: a duration from now such as 30d, or unix milliseconds. Not given: never."),
});

function readExpiry(expires: number | string | undefined, now: Millis): Millis | null {
  if (expires === undefined) return null;
  if (typeof expires === "number") return expires;
  const span = parseDuration(expires);
  if (span === null) throw new Refusal("invalid", "expires: is no duration such as 12h or 30d");
  return now + span;
}

const create = route({
  method: "POST",
  path: "/v2/tokens",
  tag,
  summary: "Make a token",
  about: "The text of the token is shown only now. A token that makes another one can give it no right that it does not have.",
  body: {
    about: "What it may be used for.",
    contentType: "application/json",
    schema: creationSchema,
    required: true,
    maxBytes: 512 * 1024,
  },
  answers: { 201: { about: "The token, with its text.", schema: tokenSchema.extend({ token: z.string() }) } },
  refusals: ["forbidden", "limit-exceeded"],
  handle: async ({ account, incoming, context }) => {
    const { expires, ...asked } = readObject(creationSchema, incoming);
    const expiresAt = readExpiry(expires, context.now());
    const token = makeRandomToken(account.id);
    const { scope = null } = readScope(incoming);
    const created = await context.store.execute("createToken", { account: account.id, hash: hashToken(token), scope, ...asked, expiresAt });
    return { status: 201, body: { ...tokenJson(created), token }, headers: { "Cache-Control": "no-store" } };
  },
});

const list = route({
  method: "GET",
  path: "/v2/tokens",
  tag,
  summary: "List tokens",
  about: "Oldest first. The two tokens that every account has are not among them.",
  query: z.object({
    count: count({ max: 100, defaultCount: 100 }),
    cursor: singleText().optional().describe("Where the page before ended."),
  }),
  answers: {
    200: {
      about: "A page of tokens, without their texts.",
      schema: z.object({ tokens: z.array(tokenSchema), cursor: z.string().optional().describe("Where to go on. Absent at the end.") }),
    },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    if (query.cursor !== undefined && !isId(query.cursor)) throw new Refusal("invalid", "cursor: not one that a page ended with");
    const range = { account: account.id, limit: query.count + 1, ...(query.cursor === undefined ? {} : { after: query.cursor }) };
    const found = await context.store.read.listResources("tokens", range);
    const page = found.slice(0, query.count);
    const last = found.length > page.length ? page.at(-1) : undefined;
    return { status: 200, body: { tokens: page.map(tokenJson), ...(last ? { cursor: last.id } : {}) } };
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
    return { status: 200, body: tokenJson(found) };
  },
});

const revoke = route({
  method: "DELETE",
  path: "/v2/tokens/{tokenId}",
  tag,
  summary: "Revoke a token",
  about: "It ends at once, on every node. Tokens that were made by it stay. A passive account can do this as well.",
  params: byId,
  forPassive: true,
  answers: { 200: { about: "It is no more.", schema: z.object({ revoked: z.literal(1) }) } },
  refusals: ["not-found", "forbidden"],
  handle: async ({ account, params: { tokenId: id }, context }) => {
    const { revoked } = isId(id) ? await context.store.execute("revokeToken", { account: account.id, id }) : { revoked: false };
    if (!revoked) throw missing(id);
    return { status: 200, body: { revoked: 1 } };
  },
});

const missing = (id: string): Refusal => new Refusal("not-found", `token: there is no token ${JSON.stringify(id.slice(0, 200))}`);

export const tokens = [create, list, get, revoke];
