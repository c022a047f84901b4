import { randomBytes } from "node:crypto";
import { z } from "zod";
import type { AccountChange } from "../../../core/commands/account.ts";
import { Refusal } from "../../../core/values/errors.ts";
import type { Account } from "../../../core/model/message.ts";
import type { PlanName } from "../../../core/model/accountTerms.ts";
import type { AccountBrand } from "../../views/accounts.ts";
import { accountJson, accountRecordSchema } from "../../views/accounts.ts";
import { readObject } from "../../route/readObject.ts";
import type { RouteResponse, RouteRequest, Route } from "../../route/route.ts";
import { accountRoute, openRoute } from "../../route/route.ts";
import { hashToken, makeToken } from "../../auth/token.ts";

const tag = "Accounts";
const byId = z.object({ id: z.string() });
const ok = { 200: { about: "Done.", schema: z.literal("OK") } };
/** An answer with secrets in it, which nobody on the way is to keep. */
const secretResponse = { status: 200, headers: { "Cache-Control": "no-store" } };
const doneResponse: RouteResponse = { status: 200, body: '"OK"', headers: { "Content-Type": "application/json; charset=utf-8" } };

/** One account never sees another one: whatever is not its own is not there. */
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

const makeReadRoutes = (brand: AccountBrand): Route[] => [
  accountRoute({
    method: "GET",
    path: `/v2/${brand}/user/{id}`,
    tag,
    summary: "Read an account",
    params: byId,
    answers: { 200: { about: "The account.", schema: accountRecordSchema } },
    refusals: ["not-found"],
    handle: async ({ account, params, context }) => ({
      ...secretResponse,
      body: await accountJson(requireOwnAccount(account, params.id), context, brand),
    }),
  }),
  accountRoute({
    method: "GET",
    path: `/v2/${brand}/users`,
    tag,
    summary: "List accounts",
    about: "Those that the user name and the password are of, which is one.",
    answers: { 200: { about: "The account.", schema: z.array(accountRecordSchema) } },
    refusals: [],
    handle: async ({ account, context }) => ({ ...secretResponse, body: [await accountJson(account, context, brand)] }),
  }),
  openRoute({
    method: "GET",
    path: `/v2/${brand}/ipv4`,
    tag,
    summary: "Where deliveries come from",
    about: "The networks that the setting WAYPOST_SENDS_FROM names.",
    answers: { 200: { about: "Networks, as in 203.0.113.7/32.", schema: z.array(z.string()) } },
    refusals: [],
    handle: async ({ context }) => ({ status: 200, body: context.sendsFrom ?? [] }),
  }),
];

/** A new password: 192 bits that nobody can guess. */
const newPassword = (): string => randomBytes(24).toString("base64url");

const makeRotateRoute = (brand: AccountBrand): Route =>
  accountRoute({
    method: "POST",
    path: `/v2/${brand}/rotate-token/{id}`,
    tag,
    summary: "Replace the password and the tokens of an account",
    about: "The old ones end at once, on every node. Signing keys stay. A passive account can do this as well.",
    params: byId,
    forPassive: true,
    answers: { 200: { about: "The account, with its new password and tokens.", schema: accountRecordSchema } },
    refusals: ["not-found", "forbidden"],
    handle: async ({ account, params, context }) => {
      const { id, tokenHash: replaces } = requireOwnAccount(account, params.id);
      const password = newPassword();
      const token = makeToken(id, password);
      const secrets = { password, token, tokenHash: hashToken(token) };
      const rotated = await context.store.execute("rotateToken", { account: id, replaces, ...secrets });
      return { ...secretResponse, body: await accountJson(rotated, context, brand) };
    },
  });

type ChangeRequest = RouteRequest<typeof byId, z.ZodObject>;

/** A route that changes an account, and answers no more than that it did. */
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
const findPlan = (written: string): PlanName | undefined =>
  offeredPlans.find(
    (plan) => written === plan || (plan !== "paid" && /^(svc|qstash)_/.test(written) && written.slice(written.indexOf("_") + 1) === plan),
  );

const planSchema = z.strictObject({
  plan_name: z
    .string("is missing, or not a text")
    .transform((text, context) => {
      const plan = findPlan(text);
      if (!plan)
        context.addIssue({
          code: "custom",
          message: `is none of ${offeredPlans.map((one) => (one === "paid" ? one : `svc_${one}`)).join(", ")}`,
        });
      return plan ?? z.NEVER;
    })
    .describe("paid, svc_fixed_1m, svc_fixed_10m or svc_fixed_100m."),
});

const budgetSchema = z.strictObject({
  budget: z
    .int("is missing, or not a whole number")
    .refine((dollars) => dollars === 0 || (dollars >= 20 && dollars <= 10_000), "is neither 0 nor from 20 to 10000")
    .describe("Dollars in a month, from 20 to 10000; 0: no limit."),
});

const makeSettingRoutes = (brand: AccountBrand): Route[] => [
  makeChangeRoute(
    {
      method: "POST",
      path: `/v2/${brand}/set-plan/{id}`,
      summary: "Set the plan of an account",
      about: "Limits of its own stay. A plan that was set by whoever runs the server cannot be changed.",
      body: describeBody("The plan.", planSchema),
    },
    ({ incoming }) => ({ plan: readObject(planSchema, incoming).plan_name }),
  ),
  makeChangeRoute(
    {
      method: "PATCH",
      path: `/v2/${brand}/update-budget/{id}`,
      summary: "Set the budget of an account",
      about:
        "Once as much is spent in a month, by the prices of the server, nothing more is published, by schedules neither; what has begun goes on. Without prices nothing is ever spent.",
      body: describeBody("The budget.", budgetSchema),
    },
    ({ incoming }) => ({ budget: readObject(budgetSchema, incoming).budget }),
  ),
  ...([true, false] as const).map((hasProductionPack) =>
    makeChangeRoute(
      {
        method: "POST",
        path: `/v2/${brand}/${hasProductionPack ? "enable" : "disable"}-prodpack/{id}`,
        summary: `${hasProductionPack ? "Enable" : "Disable"} the production pack of an account`,
        about: "It is a mark in the record; all that this server can do is there without it.",
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
        summary: `${signsStandard ? "Turn on" : "Turn off"} the signatures of Standard Webhooks`,
        about:
          "In the headers webhook-id, webhook-timestamp and webhook-signature, beside the other signature. GET /v2/keys tells the secrets.",
      },
      () => ({ signsStandard }),
    ),
  );

const teamName = z.string("is missing, or not a text").regex(/^[^\p{Cc}]{1,200}$/u, "is empty, too long, or has control characters");

const makeMoveRoute = (brand: AccountBrand): Route => {
  const schema = z.strictObject({ [`${brand}_id`]: z.string("is missing, or not a text"), target_team_id: teamName });
  return accountRoute({
    method: "POST",
    path: `/v2/${brand}/move-to-team`,
    tag,
    summary: "Move an account to a team",
    about: "Sets the customer id of its record. Who may do what stays the same.",
    body: describeBody("The account, and the team.", schema),
    answers: ok,
    refusals: ["not-found", "forbidden"],
    handle: async ({ account, incoming, context }) => {
      const { [`${brand}_id`]: id = "", target_team_id: customerId = "" } = readObject(schema, incoming);
      await context.store.execute("changeAccount", { account: requireOwnAccount(account, id).id, change: { customerId } });
      return doneResponse;
    },
  });
};

/** The interface of accounts, under both names of the service. */
export const accounts: Route[] = (["svc", "qstash"] as const).flatMap((brand) =>
  makeReadRoutes(brand).concat(makeRotateRoute(brand), makeSettingRoutes(brand), makeSigningRoutes(brand), makeMoveRoute(brand)),
);
