import { z } from "zod";
import {
  parseAccountChange,
  requireNamedAccount,
  isDurationLimit,
} from "../../../engine/core/accounts/accountRequest.ts";
import type { AccountRequest } from "../../../engine/core/accounts/accountRequest.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import { maxAllowedHosts } from "../../../engine/core/accounts/allowedHosts.ts";
import { aboutLimits } from "../../fields/aboutLimits.ts";
import { limitNames, planNames } from "../../../engine/core/accounts/plans.ts";
import { readServerLimits } from "../../../engine/core/accounts/retention.ts";
import { describeBody } from "./accounts.ts";
import { accountFields } from "../../fields/account.ts";
import { toJson } from "../../fields/field.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { cursorParameter } from "../lists/filters.ts";
import { operatorRoute } from "../../route/operator.ts";
import { count } from "../../http/parameters.ts";
import { readObject } from "../../route/readObject.ts";
import type { RouteResponse, AccountAdmin, RouteContext, Route } from "../../route/route.ts";
import { makeReadOnlyToken } from "../../auth/token.ts";

const tag = "Administration";
const accountsPath = "/v2/admin/accounts";
const byName = z.object({ account: z.string().describe("The id or the name of the account.") });

const accountSchema = toSchema(accountFields);

const createdAccountSchema = accountSchema.extend({
  token: z.string().describe("The main token, which may do everything in the account."),
  readOnlyToken: z.string().describe("The token for requests that change nothing."),
  password: z.string().describe("The password for the account API, with the name of the account as user."),
  signingKeys: z
    .object({
      current: z.string().describe("The key that deliveries are signed with now."),
      next: z.string().describe("The key that replaces it at the next rotation."),
    })
    .describe("The keys that receivers verify deliveries with."),
});

/** Returns the records of accounts. */
async function accountsJson(
  accounts: readonly Account[],
  context: RouteContext,
): Promise<Record<string, unknown>[]> {
  const ids = accounts.map(({ id }) => id);
  const stored = new Map(
    (await context.store.read.storedBytes(ids, null)).map(({ account, bytes }) => [account, bytes]),
  );
  return accounts.map((account) =>
    toJson(accountFields, {
      account,
      limits: readServerLimits(account, context),
      storedBytes: stored.get(account.id) ?? 0,
    }),
  );
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
          .union([z.string(), z.number(), z.null()], {
            error: `is neither a ${isDurationLimit(name) ? "duration" : "number"}, nor null`,
          })
          .optional()
          .describe(
            `${isDurationLimit(name) ? "A duration such as 7d, or a number of seconds" : "A number"}: ` +
              `${aboutLimits[name]}. null restores the limit of the plan.`,
          ),
      ]),
    ),
    { error: (issue) => (issue.code === "invalid_type" ? "is not an object" : undefined) },
  )
  .optional();

const requestFields = {
  standardWebhooks: z
    .boolean("is neither true nor false")
    .optional()
    .describe("Whether deliveries also have the signatures of Standard Webhooks."),
  plan: z
    .string("is not a string")
    .optional()
    .describe(`The plan: ${planNames.join(", ")}.`),
  reservedPrice: z
    .number("is neither a number of dollars, nor null")
    .nullable()
    .optional()
    .describe("The price of the plan in dollars. null means the server's price for the plan."),
  allowedHosts: z
    .array(z.string(), "is neither a list of hosts, nor null")
    .nullable()
    .optional()
    .describe(
      "The hosts that the account may send to, such as api.example.com, or *.example.com for all " +
        `subdomains: at most ${maxAllowedHosts}. null allows every host.`,
    ),
  limits: limitsSchema.describe("Limits of the account that replace those of its plan."),
};
const creationSchema = z.strictObject({
  name: z
    .string("is missing or not a string")
    .describe("The name of the account: at most 100 characters, no colons."),
  ...requestFields,
});
const changeSchema = z.strictObject(requestFields);

/** Returns the change for a request, parsed by the same rules as the command line. */
const toAccountChange = ({
  plan,
  reservedPrice,
  limits = {},
  standardWebhooks,
  allowedHosts,
}: z.output<typeof changeSchema>) => {
  const limitTexts = Object.entries(limits).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value === null ? "plan" : String(value)] as const],
  );
  const price =
    reservedPrice === undefined ? undefined : reservedPrice === null ? "plan" : String(reservedPrice);
  const accountRequest: AccountRequest = { plan, reservedPrice: price, ...Object.fromEntries(limitTexts) };
  const change = parseAccountChange(accountRequest, (field) =>
    field === "plan" || field === "reservedPrice" ? field : `limits.${field}`,
  );
  return {
    ...change,
    ...(allowedHosts !== undefined && { allowedHosts }),
    ...(standardWebhooks !== undefined && { signsStandard: standardWebhooks }),
  };
};

const findAccount = async (accountAdmin: AccountAdmin, named: string): Promise<Account> =>
  requireNamedAccount(await accountAdmin.accounts(), named);

const list = operatorRoute({
  method: "GET",
  path: accountsPath,
  tag,
  summary: "List all accounts",
  about: "Accounts are in the order of their ids.",
  query: z.object({ count: count({ max: 1_000, defaultCount: 100 }), cursor: cursorParameter }),
  answers: {
    200: {
      about: "A page of accounts.",
      schema: z.object({
        accounts: z.array(accountSchema).describe("The accounts, without their credentials."),
        cursor: z
          .string()
          .optional()
          .describe("The cursor to pass for the next page. Absent on the last page."),
      }),
    },
  },
  refusals: ["forbidden"],
  handle: async ({ accountAdmin, query, context }) => {
    const remaining = (await accountAdmin.accounts()).filter(
      ({ id }) => query.cursor === undefined || id > query.cursor,
    );
    const page = remaining.slice(0, query.count);
    const last = remaining.length > page.length ? page.at(-1) : undefined;
    return {
      status: 200,
      body: { accounts: await accountsJson(page, context), ...(last && { cursor: last.id }) },
    };
  },
});

const create = operatorRoute({
  method: "POST",
  path: accountsPath,
  tag,
  summary: "Create an account",
  body: describeBody("The name of the account, its plan and its limits.", creationSchema),
  answers: { 200: { about: "The account, with its credentials.", schema: createdAccountSchema } },
  refusals: ["forbidden", "conflict"],
  handle: async ({ accountAdmin, incoming, context }) => {
    const { name, ...changeFields } = readObject(creationSchema, incoming);
    const account = await accountAdmin.create({ name, change: toAccountChange(changeFields) });
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
  handle: async ({ accountAdmin, params, context }) =>
    respondWithAccount(await findAccount(accountAdmin, params.account), context),
});

const change = operatorRoute({
  method: "PATCH",
  path: `${accountsPath}/{account}`,
  tag,
  summary: "Change the plan, the limits or the hosts of an account",
  about:
    "If the operator sets the plan, the account itself can no longer change it. The limits are " +
    `${limitNames.join(", ")}.`,
  params: byName,
  body: describeBody("The fields to change. Omitted fields keep their values.", changeSchema),
  answers: accountAnswers,
  refusals: ["not-found", "forbidden"],
  handle: async ({ accountAdmin, params, incoming, context }) => {
    const changeFields = readObject(changeSchema, incoming);
    if (Object.keys(changeFields).length === 0)
      throw new Refusal(
        "invalid",
        "body: nothing to change; give plan, reservedPrice, limits, allowedHosts or standardWebhooks",
      );
    const { id } = await findAccount(accountAdmin, params.account);
    return respondWithAccount(await accountAdmin.change(id, toAccountChange(changeFields)), context);
  },
});

const makeStateRoute = ([verb, state, summary]: readonly [
  "disable" | "enable",
  "passive" | "active",
  string,
]): Route =>
  operatorRoute({
    method: "POST",
    path: `${accountsPath}/{account}/${verb}`,
    tag,
    summary,
    params: byName,
    answers: accountAnswers,
    refusals: ["not-found", "forbidden"],
    handle: async ({ accountAdmin, params, context }) =>
      respondWithAccount(
        await accountAdmin.change((await findAccount(accountAdmin, params.account)).id, { state }),
        context,
      ),
  });

const remove = operatorRoute({
  method: "DELETE",
  path: `${accountsPath}/{account}`,
  tag,
  summary: "Delete a disabled account",
  about:
    "Cancels the messages and runs of the account, and deletes its configuration and dead letters. Its log " +
    "entries are deleted when their retention ends.",
  params: byName,
  answers: {
    200: {
      about: "The account is deleted.",
      schema: z.object({ deleted: z.string().describe("The id of the deleted account.") }),
    },
  },
  refusals: ["not-found", "forbidden"],
  handle: async ({ accountAdmin, params }) => {
    const { id } = await findAccount(accountAdmin, params.account);
    await accountAdmin.delete(id);
    return { status: 200, body: { deleted: id } };
  },
});

const unhold = operatorRoute({
  method: "POST",
  path: "/v2/admin/unhold",
  tag,
  unaudited: "it belongs to no account; every node logs it",
  summary: "Resume all deliveries",
  about:
    "A server that was started with --hold accepts publishes and sends nothing. After this request, all " +
    "nodes send what is due within a second. A schedule fires once for the times that it missed.",
  answers: {
    200: {
      about: "Deliveries are not paused.",
      schema: z.object({ wasHeld: z.boolean().describe("Whether deliveries were paused before.") }),
    },
  },
  refusals: [],
  handle: async ({ accountAdmin }) => ({ status: 200, body: await accountAdmin.unhold() }),
});

/** The routes by which the operator manages accounts. */
export const admin: readonly Route[] = [
  list,
  create,
  get,
  change,
  makeStateRoute(["disable", "passive", "Make an account read-only"]),
  makeStateRoute(["enable", "active", "Enable a disabled account"]),
  remove,
  unhold,
];
