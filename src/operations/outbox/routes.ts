import { randomBytes } from "node:crypto";
import { z } from "zod";
import { requireAccount } from "../../engine/core/accounts/plans.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { hashToken, isSameSecret } from "../../api/auth/token.ts";
import { toJson } from "../../api/fields/field.ts";
import { readObject } from "../../api/route/readObject.ts";
import type { RouteContext } from "../../api/route/route.ts";
import { route } from "../../api/route/route.ts";
import { toSchema } from "../../api/views/fieldSchema.ts";
import { outboxFields } from "./fields.ts";
import type { OutboxSetting } from "./outbox.ts";
import { newState } from "./outbox.ts";
import type { AccountOutbox } from "./outbox.ts";
import { parseOutboxUrl } from "./place.ts";
import { defaultSchema, isPlainName } from "./schemaSql.ts";

declare module "../../api/route/route.ts" {
  interface RouteContext {
    /**
     * Takes or releases the outbox in the database of a user. Throws `Refusal` if that does not work.
     * Default: outboxes are added without a look at their databases.
     */
    claimOutbox?(outbox: AccountOutbox, how: "claim" | "take over" | "release"): Promise<void>;
  }
}

const tag = "Outboxes";
const path = "/v2/outboxes";
const byName = z.object({ name: z.string() });

const outboxSchema = toSchema(outboxFields);

/** Returns outboxes as the API shows them. */
async function showAll({ store, now }: RouteContext, account: AccountId): Promise<Record<string, unknown>[]> {
  const [owner, states] = await Promise.all([store.read.account(account), store.read.outboxes(account)]);
  return (owner?.outboxes ?? [])
    .map((setting) => {
      const state = states.find(({ id }) => id === setting.name) ?? newState(account, setting);
      return toJson(outboxFields, { setting, state, now: now() });
    })
    .toSorted((a, b) => (String(a["name"]) < String(b["name"]) ? -1 : 1));
}

async function showOne(context: RouteContext, account: AccountId, name: string): Promise<unknown> {
  const found = (await showAll(context, account)).find((one) => one["name"] === name);
  if (!found) throw makeNotFound(name);
  return found;
}

const makeNotFound = (name: string): Refusal =>
  new Refusal("not-found", `outbox: there is no outbox ${JSON.stringify(name.slice(0, 200))}`);

const list = route({
  method: "GET",
  path,
  tag,
  summary: "List outboxes",
  about: "Lists the databases whose rows become messages, with what waits there.",
  answers: { 200: { about: "The outboxes.", schema: z.object({ outboxes: z.array(outboxSchema) }) } },
  refusals: [],
  handle: async ({ account, context }) => ({
    status: 200,
    body: { outboxes: await showAll(context, account.id) },
  }),
});

const get = route({
  method: "GET",
  path: `${path}/{name}`,
  tag,
  summary: "Read an outbox",
  params: byName,
  answers: { 200: { about: "The outbox.", schema: outboxSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => ({
    status: 200,
    body: await showOne(context, account.id, params.name),
  }),
});

const requestSchema = z.strictObject({
  databaseUrl: z
    .string("is missing or not a string")
    .max(2_000, "is longer than 2,000 characters")
    .describe(
      "URL of the database: postgres://user:password@host:5432/database?sslmode=verify-full. It is stored " +
        "encrypted and never shown. sslmode is verify-full if it is absent.",
    ),
  token: z
    .string("is missing or not a string")
    .max(2_000, "is longer than 2,000 characters")
    .describe(
      "A token of this account with the verb publish. Its rights and destinations apply to every row.",
    ),
  schema: z
    .string("is not a string")
    .refine(isPlainName, "must have only a-z, 0-9 and _, and at most 41 characters")
    .optional()
    .describe(`Name of the schema in the database. Default: ${defaultSchema}.`),
  pooled: z
    .boolean("is neither true nor false")
    .optional()
    .describe("Whether the URL leads to a pooler in transaction mode, such as PgBouncer. Default: false."),
});

const put = route({
  method: "PUT",
  path: `${path}/{name}`,
  tag,
  summary: "Add an outbox",
  about:
    "Adds the database of an application, or replaces the outbox with this name. Rows that transactions of " +
    "the application add to its outbox become messages: each row exactly one. The database must have the " +
    'schema that "waypost outbox sql" prints.',
  params: byName,
  body: {
    about: "The database, and the token.",
    contentType: "application/json",
    schema: requestSchema,
    required: true,
    maxBytes: 64 * 1024,
  },
  answers: { 200: { about: "The outbox.", schema: outboxSchema } },
  refusals: ["conflict", "limit-exceeded", "forbidden"],
  handle: async ({ account, params: { name }, incoming, context }) => {
    if (!/^[\w.-]{1,100}$/.test(name))
      throw new Refusal("invalid", 'name: use at most 100 of A-Z, a-z, 0-9, ".", "_" and "-"');
    const { databaseUrl: url, token, schema, pooled } = readObject(requestSchema, incoming);
    parseOutboxUrl(url);
    const owner = requireAccount((await context.store.read.account(account.id)) ?? undefined);
    const known = owner.outboxes?.find((one) => one.name === name);
    const setting: OutboxSetting = {
      ...{ name, url, schema: schema ?? defaultSchema, isPooled: pooled ?? false },
      ...(await findToken(context, owner, token)),
      owner: known?.owner ?? `own_${randomBytes(16).toString("hex")}`,
      createdAt: known?.createdAt ?? context.now(),
    };
    await context.claimOutbox?.(toAccountOutbox(owner, setting), "claim");
    await context.store.execute("setOutbox", { account: account.id, ...setting });
    return { status: 200, body: await showOne(context, account.id, name) };
  },
});

const toAccountOutbox = ({ id, allowedHosts }: Account, setting: OutboxSetting): AccountOutbox => ({
  account: id,
  allowedHosts: allowedHosts ?? null,
  setting,
});

/** Finds the token of an outbox among those of its account. Throws `Refusal` if it may not publish. */
async function findToken(
  { store, now }: RouteContext,
  account: Account,
  token: string,
): Promise<Pick<OutboxSetting, "tokenHash" | "tokenId">> {
  const tokenHash = hashToken(token);
  if (isSameSecret(account.token, token)) return { tokenHash, tokenId: null };
  const found = await store.read.tokenByHash(tokenHash);
  if (found?.account !== account.id || (found.expiresAt !== null && found.expiresAt <= now()))
    throw new Refusal("invalid", "token: is not a valid token of this account");
  if (!found.verbs.includes("publish")) throw new Refusal("invalid", "token: lacks the verb publish");
  return { tokenHash, tokenId: found.id };
}

const remove = route({
  method: "DELETE",
  path: `${path}/{name}`,
  tag,
  summary: "Remove an outbox",
  about: "No more rows are taken. The tables and the rows in the database stay.",
  params: byName,
  answers: {
    200: {
      about: "The outbox was removed.",
      schema: z.object({ deleted: z.boolean().describe("Whether there was an outbox.") }),
    },
  },
  refusals: [],
  handle: async ({ account, params: { name }, context }) => {
    const owner = await context.store.read.account(account.id);
    const setting = owner?.outboxes?.find((one) => one.name === name);
    const { deleted } = await context.store.execute("deleteOutbox", { account: account.id, name });
    // A database that does not answer keeps its owner, which a later take-over replaces.
    if (owner && setting)
      await context.claimOutbox?.(toAccountOutbox(owner, setting), "release").catch(() => undefined);
    return { status: 200, body: { deleted } };
  },
});

const takeOver = route({
  method: "POST",
  path: `${path}/{name}/take-over`,
  tag,
  summary: "Take over an outbox",
  about:
    "Makes this server the one that takes the rows, if another server does so now. That server takes none " +
    "from then on.",
  unaudited: "changes the database of the user alone",
  params: byName,
  answers: { 200: { about: "The outbox.", schema: outboxSchema } },
  refusals: ["not-found", "conflict"],
  handle: async ({ account, params: { name }, context }) => {
    const owner = await context.store.read.account(account.id);
    const setting = owner?.outboxes?.find((one) => one.name === name);
    if (!owner || !setting) throw makeNotFound(name);
    await context.claimOutbox?.(toAccountOutbox(owner, setting), "take over");
    return { status: 200, body: await showOne(context, account.id, name) };
  },
});

/** The routes of outboxes. */
export const routes = [list, get, put, remove, takeOver];
