import { z } from "zod";
import { accountChangeOf, accountNamed, isTime } from "../../../core/commands/accountAsked.ts";
import type { AccountAsked } from "../../../core/commands/accountAsked.ts";
import { Refusal } from "../../../core/values/errors.ts";
import type { Account } from "../../../core/model/message.ts";
import { defaultTimeout, flagOfLimit, limitNames, planNames, planOf } from "../../../core/accounts/plans.ts";
import { limitsOnServer } from "../../../core/commands/retention.ts";
import type { LimitName } from "../../../core/model/accountTerms.ts";
import { cursorParameter } from "../lists/filters.ts";
import { operatorRoute } from "../../route/operator.ts";
import { count } from "../../http/parameters.ts";
import { readObject } from "../../route/readObject.ts";
import type { Answer, Desk, Parts, Route } from "../../route/route.ts";
import { readOnlyTokenOf } from "../../auth/token.ts";

const tag = "Administration";
const all = "/v2/admin/accounts";
const byName = z.object({ account: z.string() });

const figures = (about: (name: LimitName) => string) =>
  Object.fromEntries(limitNames.map((name) => [name, z.int().describe(about(name))] as const));

const record = z.object({
  id: z.string(),
  name: z.string(),
  state: z.enum(["active", "passive"]),
  plan: z.enum(planNames),
  standardWebhooks: z.boolean().describe("Whether deliveries are signed by Standard Webhooks besides."),
  createdAt: z.int().describe("In unix milliseconds."),
  reservedPrice: z.number().nullable().describe("Price of its plan in dollars. Null: the price that the server has for the plan."),
  defaultTimeout: z.int().describe("The timeout of a message that asks for none, in milliseconds."),
  limits: z
    .object(figures((name) => (isTime(name) ? "In milliseconds." : "")))
    .describe(
      "Those that hold: its own, or those of its plan, as far as the settings of the server go. Lengths of time are in milliseconds.",
    ),
  ownLimits: z.array(z.string()).describe("Which of them are its own."),
  storedBytes: z.int().describe("Bytes that the account stores now; its quota is limits.storageBytes."),
});

const created = record.extend({
  token: z.string(),
  readOnlyToken: z.string(),
  password: z.string().describe("For the account interface, with the name of the account."),
  signingKeys: z.object({ current: z.string(), next: z.string() }),
});

/** Returns the records of accounts. */
async function accountsJson(accounts: readonly Account[], parts: Parts): Promise<z.output<typeof record>[]> {
  const ids = accounts.map(({ id }) => id);
  const stored = new Map((await parts.store.read.storedBytes(ids, null)).map(({ account, bytes }) => [account, bytes]));
  return accounts.map((account) => accountJson(account, stored.get(account.id) ?? 0, parts));
}

function accountJson(account: Account, storedBytes: number, parts: Parts): z.output<typeof record> {
  const held = limitsOnServer(account, parts);
  return {
    ...{ id: account.id, name: account.name, state: account.state ?? "active", plan: planOf(account), createdAt: account.createdAt },
    standardWebhooks: account.signsStandard ?? false,
    ...{ reservedPrice: account.reservedPrice ?? null, defaultTimeout: defaultTimeout(account) },
    limits: Object.fromEntries(limitNames.map((name) => [name, held[name]] as const)),
    ownLimits: limitNames.filter((name) => account.limits?.[name] !== undefined),
    storedBytes,
  };
}

const one = { 200: { about: "The account, without its credentials.", schema: record } };
const answerOf = async (account: Account, parts: Parts): Promise<Answer> => ({
  status: 200,
  body: (await accountsJson([account], parts))[0],
});

const limitsAsked = z
  .strictObject(
    Object.fromEntries(
      limitNames.map((name) => [
        name,
        z
          .union([z.string(), z.number(), z.null()], { error: `is neither a ${isTime(name) ? "duration" : "number"}, nor null` })
          .optional()
          .describe(`${isTime(name) ? "A duration such as 7d, or a number of seconds." : "A number."} Null: that of the plan.`),
      ]),
    ),
    { error: (issue) => (issue.code === "invalid_type" ? "is not an object" : undefined) },
  )
  .optional();

const terms = {
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
  limits: limitsAsked,
};
const askedToMake = z.strictObject({
  name: z.string("is missing, or not a text").describe("100 characters at most, without colons."),
  ...terms,
});
const askedToLimit = z.strictObject(terms);

/** As the command line is told of it. */
const changeOf = ({ plan, reservedPrice, limits = {}, standardWebhooks }: z.output<typeof askedToLimit>) => {
  const written = Object.entries(limits).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value === null ? "plan" : String(value)] as const],
  );
  const price = reservedPrice === undefined ? undefined : reservedPrice === null ? "plan" : String(reservedPrice);
  const asked: AccountAsked = { plan, reservedPrice: price, ...Object.fromEntries(written) };
  const change = accountChangeOf(asked, (field) => (field === "plan" || field === "reservedPrice" ? field : `limits.${field}`));
  return { ...change, ...(standardWebhooks !== undefined && { signsStandard: standardWebhooks }) };
};

const find = async (desk: Desk, named: string): Promise<Account> => accountNamed(await desk.accounts(), named);

const bodyOf = (about: string, schema: z.ZodType) => ({
  ...{ about, contentType: "application/json", schema, required: true, mostBytes: 64 * 1024 },
});

const list = operatorRoute({
  ...{ method: "GET", path: all, tag, summary: "List all accounts" },
  about: "In the order of their ids.",
  query: z.object({ count: count({ most: 1_000, normally: 100 }), cursor: cursorParameter }),
  answers: {
    200: {
      about: "A page of the list.",
      schema: z.object({
        accounts: z.array(record),
        cursor: z.string().optional().describe("Where the next page begins. Absent at the end."),
      }),
    },
  },
  refusals: ["forbidden"],
  handle: async ({ desk, query, parts }) => {
    const behind = (await desk.accounts()).filter(({ id }) => query.cursor === undefined || id > query.cursor);
    const page = behind.slice(0, query.count);
    const last = behind.length > page.length ? page.at(-1) : undefined;
    return { status: 200, body: { accounts: await accountsJson(page, parts), ...(last && { cursor: last.id }) } };
  },
});

const make = operatorRoute({
  ...{ method: "POST", path: all, tag, summary: "Make an account" },
  body: bodyOf("The name of the account, and what it may.", askedToMake),
  answers: { 200: { about: "The account, with its credentials.", schema: created } },
  refusals: ["forbidden", "conflict"],
  handle: async ({ desk, incoming, parts }) => {
    const { name, ...asked } = readObject(askedToMake, incoming);
    const account = await desk.create({ name, change: changeOf(asked) });
    const { token, password, signingKeys } = account;
    const { current, next } = signingKeys;
    const [record] = await accountsJson([account], parts);
    const body = {
      ...record,
      token,
      readOnlyToken: readOnlyTokenOf(account),
      password,
      signingKeys: { current, next },
    };
    return { status: 200, headers: { "Cache-Control": "no-store" }, body };
  },
});

const get = operatorRoute({
  ...{ method: "GET", path: `${all}/{account}`, tag, summary: "Read any account" },
  params: byName,
  answers: one,
  refusals: ["not-found", "forbidden"],
  handle: async ({ desk, params, parts }) => answerOf(await find(desk, params.account), parts),
});

const limit = operatorRoute({
  ...{ method: "PATCH", path: `${all}/{account}`, tag, summary: "Set the plan of an account, or limits of its own" },
  about: `A plan that was set here cannot be changed by the account itself. Limits: ${limitNames.map(flagOfLimit).join(", ")}, written as in camelCase.`,
  params: byName,
  body: bodyOf("What is to be changed; what is left out stays.", askedToLimit),
  answers: one,
  refusals: ["not-found", "forbidden"],
  handle: async ({ desk, params, incoming, parts }) => {
    const asked = readObject(askedToLimit, incoming);
    if (Object.keys(asked).length === 0)
      throw new Refusal("invalid", "body: nothing to change; give plan, reservedPrice, limits or standardWebhooks");
    const { id } = await find(desk, params.account);
    return answerOf(await desk.change(id, changeOf(asked)), parts);
  },
});

const switching = ([verb, state, summary]: readonly ["disable" | "enable", "passive" | "active", string]): Route =>
  operatorRoute({
    ...{ method: "POST", path: `${all}/{account}/${verb}`, tag, summary },
    params: byName,
    answers: one,
    refusals: ["not-found", "forbidden"],
    handle: async ({ desk, params, parts }) => answerOf(await desk.change((await find(desk, params.account)).id, { state }), parts),
  });

const remove = operatorRoute({
  ...{ method: "DELETE", path: `${all}/{account}`, tag, summary: "Delete an account that is disabled" },
  about: "Its messages and runs are cancelled, and what it set up and its dead letters go. Its log goes in its time.",
  params: byName,
  answers: { 200: { about: "It is gone.", schema: z.object({ deleted: z.string().describe("The id of the account.") }) } },
  refusals: ["not-found", "forbidden"],
  handle: async ({ desk, params }) => {
    const { id } = await find(desk, params.account);
    await desk.delete(id);
    return { status: 200, body: { deleted: id } };
  },
});

/** Accounts, for whoever runs the server. */
export const admin: readonly Route[] = [
  ...[list, make, get, limit],
  switching(["disable", "passive", "Let an account read, and change nothing any more"]),
  switching(["enable", "active", "Let an account that was disabled go on"]),
  remove,
];
