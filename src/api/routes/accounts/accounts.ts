import { randomBytes } from "node:crypto";
import { z } from "zod";
import type { AccountChange } from "../../../engine/core/model/account.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import type { PlanName } from "../../../engine/core/model/accountTerms.ts";
import type { AccountBrand } from "../../fields/accountRecord.ts";
import { accountJson, accountRecordSchema } from "../../views/accounts.ts";
import { readObject } from "../../route/readObject.ts";
import type { IncomingRequest, RouteResponse, RouteRequest, Route } from "../../route/route.ts";
import { accountRoute, openRoute } from "../../route/route.ts";
import { hashToken, isSameSecret } from "../../auth/token.ts";
import { makeToken } from "../../../engine/core/values/tokenText.ts";

const tag = "Accounts";
const byId = z.object({ id: z.string().describe("The id of the account.") });
const ok = { 200: { about: "The account was changed.", schema: z.literal("OK") } };
/** A response that contains secrets, so proxies must not store it. */
const secretResponse = { status: 200, headers: { "Cache-Control": "no-store" } };
const doneResponse: RouteResponse = {
  status: 200,
  body: '"OK"',
  headers: { "Content-Type": "application/json; charset=utf-8" },
};

/**
 * Returns the account if it has this id. Otherwise throws `Refusal` "not-found", so that an account does not
 * learn which other ids exist.
 */
export function requireOwnAccount(account: Account, id: string): Account {
  if (account.id === id) return account;
  throw new Refusal("not-found", `id: there is no account ${JSON.stringify(id.slice(0, 200))}`);
}

/** Returns the description of a required JSON body of at most 64 KiB. */
export const describeBody = (about: string, schema: z.ZodType) => ({
  about,
  contentType: "application/json",
  schema,
  required: true,
  maxBytes: 64 * 1024,
});

/** Reports whether the sender, or the person who opened the session, has given the password. */
function knowsPassword({ proof }: IncomingRequest): boolean {
  if (!proof) return false;
  const opener = proof.session?.opener.kind;
  return opener === undefined
    ? isSameSecret(proof.account.password, proof.token)
    : opener === "password" || opener === "operator";
}

/** Returns the account record, with its secrets if the sender has proved to know the password. */
const showAccount = (
  account: Account,
  { incoming, context, brand }: Pick<ChangeRequest, "incoming" | "context"> & { brand: AccountBrand },
) => accountJson(account, context, { brand, withSecrets: knowsPassword(incoming) });

const makeReadRoutes = (brand: AccountBrand): Route[] => [
  accountRoute({
    method: "GET",
    path: `/v2/${brand}/user/{id}`,
    tag,
    summary: "Read an account",
    about: "A token that may read receives the account without its password and its tokens.",
    takesTokens: true,
    params: byId,
    answers: { 200: { about: "The account.", schema: accountRecordSchema } },
    refusals: ["not-found"],
    handle: async ({ account, params, incoming, context }) => ({
      ...secretResponse,
      body: await showAccount(requireOwnAccount(account, params.id), { incoming, context, brand }),
    }),
  }),
  accountRoute({
    method: "GET",
    path: `/v2/${brand}/users`,
    tag,
    summary: "List accounts",
    about:
      "The list has one element: the account of the sender. A token that may read receives the account " +
      "without its password and its tokens.",
    takesTokens: true,
    answers: { 200: { about: "A list with the account.", schema: z.array(accountRecordSchema) } },
    refusals: [],
    handle: async ({ account, incoming, context }) => ({
      ...secretResponse,
      body: [await showAccount(account, { incoming, context, brand })],
    }),
  }),
  openRoute({
    method: "GET",
    path: `/v2/${brand}/ipv4`,
    tag,
    summary: "List the networks that deliveries come from",
    about: "The networks in the server's setting WAYPOST_SENDS_FROM. Requires no credentials.",
    answers: {
      200: {
        about: "Networks in CIDR notation, such as 203.0.113.7/32. Empty if the setting is not set.",
        schema: z.array(z.string()),
      },
    },
    refusals: [],
    handle: async ({ context }) => ({ status: 200, body: context.sendsFrom ?? [] }),
  }),
];

/** Returns a new random password of 192 bits. */
const newPassword = (): string => randomBytes(24).toString("base64url");

const makeRotateRoute = (brand: AccountBrand): Route =>
  accountRoute({
    method: "POST",
    path: `/v2/${brand}/rotate-token/{id}`,
    tag,
    summary: "Replace the password and the tokens of an account",
    about:
      "The old password and tokens stop working at once, on every node. The signing keys do not change. A " +
      "disabled account can also do this.",
    params: byId,
    forPassive: true,
    answers: {
      200: { about: "The account, with its new password and tokens.", schema: accountRecordSchema },
    },
    refusals: ["not-found", "forbidden"],
    handle: async ({ account, params, context }) => {
      const { id, tokenHash: replaces } = requireOwnAccount(account, params.id);
      const password = newPassword();
      const token = makeToken(id, password);
      const secrets = { password, token, tokenHash: hashToken(token) };
      const rotated = await context.store.execute("rotateToken", { account: id, replaces, ...secrets });
      return { ...secretResponse, body: await accountJson(rotated, context, { brand, withSecrets: true }) };
    },
  });

type ChangeRequest = RouteRequest<typeof byId, z.ZodObject>;

/** Returns a route that changes an account. Its response is only "OK". */
const makeChangeRoute = (
  description: Pick<Route, "method" | "path" | "summary" | "about" | "body">,
  readChange: (call: Pick<ChangeRequest, "incoming">) => AccountChange,
): Route =>
  accountRoute({
    ...description,
    tag,
    params: byId,
    answers: ok,
    refusals: ["not-found", "forbidden"],
    handle: async ({ account, params, incoming, context }) => {
      const { id } = requireOwnAccount(account, params.id);
      await context.store.execute("changeAccount", { account: id, change: readChange({ incoming }) });
      return doneResponse;
    },
  });

const offeredPlans = ["paid", "fixed_1m", "fixed_10m", "fixed_100m"] as const satisfies PlanName[];
const offeredNames = offeredPlans.map((plan) => (plan === "paid" ? plan : `svc_${plan}`));
const findPlan = (text: string): PlanName | undefined =>
  offeredPlans.find(
    (plan) =>
      text === plan ||
      (plan !== "paid" && /^(svc|qstash)_/.test(text) && text.slice(text.indexOf("_") + 1) === plan),
  );

const planSchema = z.strictObject({
  plan_name: z
    .string("is missing or not a string")
    .transform((text, context) => {
      const plan = findPlan(text);
      if (!plan)
        context.addIssue({
          code: "custom",
          message: `must be one of ${offeredNames.join(", ")}`,
        });
      return plan ?? z.NEVER;
    })
    .describe("The plan: paid, svc_fixed_1m, svc_fixed_10m or svc_fixed_100m."),
});

const budgetSchema = z.strictObject({
  budget: z
    .int("is missing or not a whole number")
    .refine((dollars) => dollars === 0 || (dollars >= 20 && dollars <= 10_000), "must be 0, or 20 to 10000")
    .describe("The budget in dollars per calendar month (UTC), from 20 to 10000. 0 means no limit."),
});

const makeSettingRoutes = (brand: AccountBrand): Route[] => [
  makeChangeRoute(
    {
      method: "POST",
      path: `/v2/${brand}/set-plan/{id}`,
      summary: "Set the plan of an account",
      about:
        "Limits that replace those of the plan for this account do not change. A plan that the operator " +
        "of the server has set cannot be changed.",
      body: describeBody("The new plan.", planSchema),
    },
    ({ incoming }) => ({ plan: readObject(planSchema, incoming).plan_name }),
  ),
  makeChangeRoute(
    {
      method: "PATCH",
      path: `/v2/${brand}/update-budget/{id}`,
      summary: "Set the budget of an account",
      about:
        "When the cost of the month reaches the budget, nothing more is published, not even by schedules. " +
        "Accepted messages and active runs continue. The cost depends on the prices that the server has; " +
        "without prices, the cost is always 0.",
      body: describeBody("The new budget.", budgetSchema),
    },
    ({ incoming }) => ({ budget: readObject(budgetSchema, incoming).budget }),
  ),
  ...([true, false] as const).map((hasProductionPack) =>
    makeChangeRoute(
      {
        method: "POST",
        path: `/v2/${brand}/${hasProductionPack ? "enable" : "disable"}-prodpack/{id}`,
        summary: `${hasProductionPack ? "Enable" : "Disable"} the production pack of an account`,
        about: "Sets prod_pack_enabled in the account record. It has no other effect on this server.",
      },
      () => ({ hasProductionPack }),
    ),
  ),
];

const makeSigningRoutes = (brand: AccountBrand): Route[] =>
  [true, false].map((signsStandard) =>
    makeChangeRoute(
      {
        method: "POST",
        path: `/v2/${brand}/${signsStandard ? "enable" : "disable"}-standard-webhooks/{id}`,
        summary: `Turn ${signsStandard ? "on" : "off"} the signatures of Standard Webhooks`,
        about: signsStandard
          ? "Deliveries then also have a Standard Webhooks signature in the headers webhook-id, " +
            "webhook-timestamp and webhook-signature. The other signature stays. GET /v2/keys returns the " +
            "secrets."
          : "Deliveries then no longer have the headers webhook-id, webhook-timestamp and webhook-signature.",
      },
      () => ({ signsStandard }),
    ),
  );

const teamName = z
  .string("is missing or not a string")
  .regex(/^[^\p{Cc}]{1,200}$/u, "is empty, too long, or has control characters");

const makeMoveRoute = (brand: AccountBrand): Route => {
  const schema = z.strictObject({
    [`${brand}_id`]: z.string("is missing or not a string").describe("The id of the account."),
    target_team_id: teamName.describe("The name of the team: 1 to 200 characters, no control characters."),
  });
  return accountRoute({
    method: "POST",
    path: `/v2/${brand}/move-to-team`,
    tag,
    summary: "Move an account to a team",
    about: "Sets customer_id in the account record. Access rights do not change.",
    body: describeBody("The account and the team.", schema),
    answers: ok,
    refusals: ["not-found", "forbidden"],
    handle: async ({ account, incoming, context }) => {
      const { [`${brand}_id`]: id = "", target_team_id: customerId = "" } = readObject(schema, incoming);
      await context.store.execute("changeAccount", {
        account: requireOwnAccount(account, id).id,
        change: { customerId },
      });
      return doneResponse;
    },
  });
};

/** The routes of the account API, under both brand names. */
export const accounts: Route[] = (["svc", "qstash"] as const).flatMap((brand) =>
  makeReadRoutes(brand).concat(
    makeRotateRoute(brand),
    makeSettingRoutes(brand),
    makeSigningRoutes(brand),
    makeMoveRoute(brand),
  ),
);
