import { z } from "zod";
import { parseAccountChange, mustFindAccount, isDurationLimit } from "../../../core/commands/accountRequest.ts";
import type { AccountRequest } from "../../../core/commands/accountRequest.ts";
import { Refusal } from "../../../core/values/errors.ts";
import type { Account } from "../../../core/model/message.ts";
import { defaultTimeout, toLimitFlag, limitNames, planNames, readPlan } from "../../../core/accounts/plans.ts";
import { readServerLimits } from "../../../core/commands/retention.ts";
import type { LimitName } from "../../../core/model/accountTerms.ts";
import { describeBody } from "./accounts.ts";
import { cursorParameter } from "../lists/filters.ts";
import { operatorRoute } from "../../route/operator.ts";
import { count } from "../../http/parameters.ts";
import { readObject } from "../../route/readObject.ts";
import type { RouteResponse, AccountAdmin, RouteContext, Route } from "../../route/route.ts";
import { makeReadOnlyToken } from "../../auth/token.ts";

const tag = "Administration";
const accountsPath = "/v2/admin/accounts";
const byName = z.object({ account: z.string() });

const makeLimitFields = (about: (name: LimitName) => string) =>
  Object.fromEntries(limitNames.map((name) => [name, z.int().describe(about(name))] as const));

const accountSchema = z.object({
  id: z.string(),
  name: z.string(),
  state: z.enum(["active", "passive"]),
  plan: z.enum(planNames),
  standardWebhooks: z.boolean().describe("Whether deliveries are signed by Standard Webhooks besides."),
  createdAt: z.int().describe("In unix milliseconds."),
  reservedPrice: z.number().nullable().describe("Price of its plan in dollars. Null: the price that the server has for the plan."),
  defaultTimeout: z.int().describe("The timeout of a message that asks for none, in milliseconds."),
  limits: z
    .object(makeLimitFields((name) => (isDurationLimit(name) ? "In milliseconds." : "")))
    .describe(
      "Those that hold: its own, or those of its plan, as far as the settings of the server go. Lengths of time are in milliseconds.",
    ),
  ownLimits: z.array(z.string()).describe("Which of them are its own."),
  storedBytes: z.int().describe("Bytes that the account stores now; its quota is limits.storageBytes."),
});

const createdAccountSchema = accountSchema.extend({
  token: z.string(),
  readOnlyToken: z.string(),
  password: z.string().describe("For the account interface, with the name of the account."),
  signingKeys: z.object({ current: z.string(), next: z.string() }),
});

/** Returns the records of accounts. */
async function accountsJson(accounts: readonly Account[], context: RouteContext): Promise<z.output<typeof accountSchema>[]> {
  const ids = accounts.map(({ id }) => id);
  const stored = new Map((await context.store.read.storedBytes(ids, null)).map(({ account, bytes }) => [account, bytes]));
  return accounts.map((account) => accountJson(account, stored.get(account.id) ?? 0, context));
}

function accountJson(account: Account, storedBytes: number, context: RouteContext): z.output<typeof accountSchema> {
  const effectiveLimits = readServerLimits(account, context);
  return {
    id: account.id,
    name: account.name,
    state: account.state ?? "active",
    plan: readPlan(account),
    createdAt: account.createdAt,
    standardWebhooks: account.signsStandard ?? false,
    reservedPrice: account.reservedPrice ?? null,
    defaultTimeout: defaultTimeout(account),
    limits: Object.fromEntries(limitNames.map((name) => [name, effectiveLimits[name]] as const)),
    ownLimits: limitNames.filter((name) => account.limits?.[name] !== undefined),
    storedBytes,
  };
}

const accountAnswers = { 200: { about: "The account, without its credentials.", schema: accountSchema } };
const respondWithAccount = async (account: Account, context: RouteContext): Promise<RouteResponse> => ({
  status: 200,
  body: (await accountsJson([account], context))[0],
});

const limitsSchema = z
  .strictObject(
    Object.fromEntries(
      limitNames.map((name) => [
        name,
        z
          .union([z.string(), z.number(), z.null()], { error: `is neither a ${isDurationLimit(name) ? "duration" : "number"}, nor null` })
          .optional()
          .describe(`${isDurationLimit(name) ? "A duration such as 7d, or a number of seconds." : "A number."} Null: that of the plan.`),
      ]),
    ),
    { error: (issue) => (issue.code === "invalid_type" ? "is not an object" : undefined) },
  )
  .optional();

const accountFields = {
  standardWebhooks: z
    .boolean("is neither true nor false")
    .optional()
    .describe("Whether deliveries are signed by Standard Webhooks besides."),
  plan: z
    .string("is not a text")
    .optional()
    .describe(`${planNames.join(", ")}.`),
  reservedPrice: z
    .number("is neither a number of dollars, nor null")
    .nullable()
    .optional()
    .describe("Price of its plan in dollars. Null: the price that the server has for the plan."),
  limits: limitsSchema,
};
const creationSchema = z.strictObject({
  name: z.string("is missing, or not a text").describe("100 characters at most, without colons."),
  ...accountFields,
});
const changeSchema = z.strictObject(accountFields);

/** As the command line is told of it. */
const toAccountChange = ({ plan, reservedPrice, limits = {}, standardWebhooks }: z.output<typeof changeSchema>) => {
  const written = Object.entries(limits).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value === null ? "plan" : String(value)] as const],
  );
  const price = reservedPrice === undefined ? undefined : reservedPrice === null ? "plan" : String(reservedPrice);
  const asked: AccountRequest = { plan, reservedPrice: price, ...Object.fromEntries(written) };
  const change = parseAccountChange(asked, (field) => (field === "plan" || field === "reservedPrice" ? field : `limits.${field}`));
  return { ...change, ...(standardWebhooks !== undefined && { signsStandard: standardWebhooks }) };
};

const findAccount = async (accountAdmin: AccountAdmin, named: string): Promise<Account> =>
  mustFindAccount(await accountAdmin.accounts(), named);

const list = operatorRoute({
  method: "GET",
  path: accountsPath,
  tag,
  summary: "List all accounts",
  about: "In the order of their ids.",
  query: z.object({ count: count({ max: 1_000, defaultCount: 100 }), cursor: cursorParameter }),
  answers: {
    200: {
      about: "A page of the list.",
      schema: z.object({
        accounts: z.array(accountSchema),
        cursor: z.string().optional().describe("Where the next page begins. Absent at the end."),
      }),
    },
  },
  refusals: ["forbidden"],
  handle: async ({ accountAdmin, query, context }) => {
    const remaining = (await accountAdmin.accounts()).filter(({ id }) => query.cursor === undefined || id > query.cursor);
    const page = remaining.slice(0, query.count);
    const last = remaining.length > page.length ? page.at(-1) : undefined;
    return { status: 200, body: { accounts: await accountsJson(page, context), ...(last && { cursor: last.id }) } };
  },
});

const create = operatorRoute({
  method: "POST",
  path: accountsPath,
  tag,
  summary: "Make an account",
  body: describeBody("The name of the account, and what it may.", creationSchema),
  answers: { 200: { about: "The account, with its credentials.", schema: createdAccountSchema } },
  refusals: ["forbidden", "conflict"],
  handle: async ({ accountAdmin, incoming, context }) => {
    const { name, ...asked } = readObject(creationSchema, incoming);
    const account = await accountAdmin.create({ name, change: toAccountChange(asked) });
    const { token, password, signingKeys } = account;
    const { current, next } = signingKeys;
    const [record] = await accountsJson([account], context);
    const body = {
      ...record,
      token,
      readOnlyToken: makeReadOnlyToken(account),
      password,
      signingKeys: { current, next },
    };
    return { status: 200, headers: { "Cache-Control": "no-store" }, body };
  },
});

const get = operatorRoute({
  method: "GET",
  path: `${accountsPath}/{account}`,
  tag,
  summary: "Read any account",
  params: byName,
  answers: accountAnswers,
  refusals: ["not-found", "forbidden"],
  handle: async ({ accountAdmin, params, context }) => respondWithAccount(await findAccount(accountAdmin, params.account), context),
});

const change = operatorRoute({
  method: "PATCH",
  path: `${accountsPath}/{account}`,
  tag,
  summary: "Set the plan of an account, or limits of its own",
  about: `A plan that was set here cannot be changed by the account itself. Limits: ${limitNames.map(toLimitFlag).join(", ")}, written as in camelCase.`,
  params: byName,
  body: describeBody("What is to be changed; what is left out stays.", changeSchema),
  answers: accountAnswers,
  refusals: ["not-found", "forbidden"],
  handle: async ({ accountAdmin, params, incoming, context }) => {
    const asked = readObject(changeSchema, incoming);
    if (Object.keys(asked).length === 0)
      throw new Refusal("invalid", "body: nothing to change; give plan, reservedPrice, limits or standardWebhooks");
    const { id } = await findAccount(accountAdmin, params.account);
    return respondWithAccount(await accountAdmin.change(id, toAccountChange(asked)), context);
  },
});

const makeStateRoute = ([verb, state, summary]: readonly ["disable" | "enable", "passive" | "active", string]): Route =>
  operatorRoute({
    method: "POST",
    path: `${accountsPath}/{account}/${verb}`,
    tag,
    summary,
    params: byName,
    answers: accountAnswers,
    refusals: ["not-found", "forbidden"],
    handle: async ({ accountAdmin, params, context }) =>
      respondWithAccount(await accountAdmin.change((await findAccount(accountAdmin, params.account)).id, { state }), context),
  });

const remove = operatorRoute({
  method: "DELETE",
  path: `${accountsPath}/{account}`,
  tag,
  summary: "Delete an account that is disabled",
  about: "Its messages and runs are cancelled, and what it set up and its dead letters go. Its log goes in its time.",
  params: byName,
  answers: { 200: { about: "It is gone.", schema: z.object({ deleted: z.string().describe("The id of the account.") }) } },
  refusals: ["not-found", "forbidden"],
  handle: async ({ accountAdmin, params }) => {
    const { id } = await findAccount(accountAdmin, params.account);
    await accountAdmin.delete(id);
    return { status: 200, body: { deleted: id } };
  },
});

/** Accounts, for whoever runs the server. */
export const admin: readonly Route[] = [
  ...[list, create, get, change],
  makeStateRoute(["disable", "passive", "Let an account read, and change nothing any more"]),
  makeStateRoute(["enable", "active", "Let an account that was disabled go on"]),
  remove,
];
