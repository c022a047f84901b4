import { randomBytes } from "node:crypto";
import { z } from "zod";
import type { AccountChange } from "../../../core/commands/account.ts";
import { Refusal } from "../../../core/values/errors.ts";
import type { Account } from "../../../core/model/message.ts";
import type { PlanName } from "../../../core/model/accountTerms.ts";
import type { AccountBrand } from "../../views/accounts.ts";
import { accountJson, accountRecord } from "../../views/accounts.ts";
import { readObject } from "../../route/readObject.ts";
import type { Answer, Call, Route } from "../../route/route.ts";
import { accountRoute, openRoute } from "../../route/route.ts";
import { hashOfToken, tokenOf } from "../../auth/token.ts";

const tag = "Accounts";
const byId = z.object({ id: z.string() });
const ok = { 200: { about: "Done.", schema: z.literal("OK") } };
/** An answer with secrets in it, which nobody on the way is to keep. */
const secret = { status: 200, headers: { "Cache-Control": "no-store" } };
const done: Answer = { status: 200, body: '"OK"', headers: { "Content-Type": "application/json; charset=utf-8" } };

/** One account never sees another one: whatever is not its own is not there. */
export function own(account: Account, id: string): Account {
  if (account.id === id) return account;
  throw new Refusal("not-found", `id: there is no account ${JSON.stringify(id.slice(0, 200))}`);
}

const bodyOf = (about: string, schema: z.ZodType) => ({
  ...{ about, contentType: "application/json", schema, required: true, mostBytes: 64 * 1024 },
});

const reading = (brand: AccountBrand): Route[] => [
  accountRoute({
    ...{ method: "GET", path: `/v2/${brand}/user/{id}`, tag, summary: "Read an account" },
    params: byId,
    answers: { 200: { about: "The account.", schema: accountRecord } },
    refusals: ["not-found"],
    handle: async ({ account, params, parts }) => ({ ...secret, body: await accountJson(own(account, params.id), parts, brand) }),
  }),
  accountRoute({
    ...{ method: "GET", path: `/v2/${brand}/users`, tag, summary: "List accounts" },
    about: "Those that the user name and the password are of, which is one.",
    answers: { 200: { about: "The account.", schema: z.array(accountRecord) } },
    refusals: [],
    handle: async ({ account, parts }) => ({ ...secret, body: [await accountJson(account, parts, brand)] }),
  }),
  openRoute({
    ...{ method: "GET", path: `/v2/${brand}/ipv4`, tag, summary: "Where deliveries come from" },
    about: "The networks that the setting WAYPOST_SENDS_FROM names.",
    answers: { 200: { about: "Networks, as in 203.0.113.7/32.", schema: z.array(z.string()) } },
    refusals: [],
    handle: async ({ parts }) => ({ status: 200, body: parts.sendsFrom ?? [] }),
  }),
];

/** A new password: 192 bits that nobody can guess. */
const newPassword = (): string => randomBytes(24).toString("base64url");

const rotate = (brand: AccountBrand): Route =>
  accountRoute({
    ...{ method: "POST", path: `/v2/${brand}/rotate-token/{id}`, tag, summary: "Replace the password and the tokens of an account" },
    about: "The old ones end at once, on every node. Signing keys stay. A passive account can do this as well.",
    params: byId,
    forPassive: true,
    answers: { 200: { about: "The account, with its new password and tokens.", schema: accountRecord } },
    refusals: ["not-found", "forbidden"],
    handle: async ({ account, params, parts }) => {
      const { id, tokenHash: replaces } = own(account, params.id);
      const password = newPassword();
      const token = tokenOf(id, password);
      const secrets = { password, token, tokenHash: hashOfToken(token) };
      const rotated = await parts.store.execute("rotateToken", { account: id, replaces, ...secrets });
      return { ...secret, body: await accountJson(rotated, parts, brand) };
    },
  });

type Changing = Call<typeof byId, z.ZodObject>;

/** A route that changes an account, and answers no more than that it did. */
const changing = (
  facts: Pick<Route, "method" | "path" | "summary" | "about" | "body">,
  changeOf: (call: Pick<Changing, "incoming">) => AccountChange,
): Route =>
  accountRoute({
    ...{ ...facts, tag, params: byId, answers: ok, refusals: ["not-found", "forbidden"] },
    handle: async ({ account, params, incoming, parts }) => {
      const { id } = own(account, params.id);
      await parts.store.execute("changeAccount", { account: id, change: changeOf({ incoming }) });
      return done;
    },
  });

const offered = ["paid", "fixed_1m", "fixed_10m", "fixed_100m"] as const satisfies PlanName[];
const planNamed = (written: string): PlanName | undefined =>
  offered.find(
    (plan) => written === plan || (plan !== "paid" && /^(svc|qstash)_/.test(written) && written.slice(written.indexOf("_") + 1) === plan),
  );

const planAsked = z.strictObject({
  plan_name: z
    .string("is missing, or not a text")
    .transform((text, context) => {
      const plan = planNamed(text);
      if (!plan)
        context.addIssue({
          code: "custom",
          message: `is none of ${offered.map((one) => (one === "paid" ? one : `svc_${one}`)).join(", ")}`,
        });
      return plan ?? z.NEVER;
    })
    .describe("paid, svc_fixed_1m, svc_fixed_10m or svc_fixed_100m."),
});

const budgetAsked = z.strictObject({
  budget: z
    .int("is missing, or not a whole number")
    .refine((dollars) => dollars === 0 || (dollars >= 20 && dollars <= 10_000), "is neither 0 nor from 20 to 10000")
    .describe("Dollars in a month, from 20 to 10000; 0: no limit."),
});

const settingUp = (brand: AccountBrand): Route[] => [
  changing(
    {
      ...{ method: "POST", path: `/v2/${brand}/set-plan/{id}`, summary: "Set the plan of an account" },
      about: "Limits of its own stay. A plan that was set by whoever runs the server cannot be changed.",
      body: bodyOf("The plan.", planAsked),
    },
    ({ incoming }) => ({ plan: readObject(planAsked, incoming).plan_name }),
  ),
  changing(
    {
      ...{ method: "PATCH", path: `/v2/${brand}/update-budget/{id}`, summary: "Set the budget of an account" },
      about:
        "Once as much is spent in a month, by the prices of the server, nothing more is published, by schedules neither; what has begun goes on. Without prices nothing is ever spent.",
      body: bodyOf("The budget.", budgetAsked),
    },
    ({ incoming }) => ({ budget: readObject(budgetAsked, incoming).budget }),
  ),
  ...([true, false] as const).map((hasProductionPack) =>
    changing(
      {
        ...{ method: "POST", path: `/v2/${brand}/${hasProductionPack ? "enable" : "disable"}-prodpack/{id}` },
        summary: `${hasProductionPack ? "Enable" : "Disable"} the production pack of an account`,
        about: "It is a mark in the record; all that this server can do is there without it.",
      },
      () => ({ hasProductionPack }),
    ),
  ),
];

const signing = (brand: AccountBrand): Route[] =>
  [true, false].map((signsStandard) =>
    changing(
      {
        ...{ method: "POST", path: `/v2/${brand}/${signsStandard ? "enable" : "disable"}-standard-webhooks/{id}` },
        summary: `${signsStandard ? "Turn on" : "Turn off"} the signatures of Standard Webhooks`,
        about:
          "In the headers webhook-id, webhook-timestamp and webhook-signature, beside the other signature. GET /v2/keys tells the secrets.",
      },
      () => ({ signsStandard }),
    ),
  );

const teamName = z.string("is missing, or not a text").regex(/^[^\p{Cc}]{1,200}$/u, "is empty, too long, or has control characters");

const move = (brand: AccountBrand): Route => {
  const asked = z.strictObject({ [`${brand}_id`]: z.string("is missing, or not a text"), target_team_id: teamName });
  return accountRoute({
    ...{ method: "POST", path: `/v2/${brand}/move-to-team`, tag, summary: "Move an account to a team" },
    about: "Sets the customer id of its record. Who may do what stays the same.",
    body: bodyOf("The account, and the team.", asked),
    answers: ok,
    refusals: ["not-found", "forbidden"],
    handle: async ({ account, incoming, parts }) => {
      const { [`${brand}_id`]: id = "", target_team_id: customerId = "" } = readObject(asked, incoming);
      await parts.store.execute("changeAccount", { account: own(account, id).id, change: { customerId } });
      return done;
    },
  });
};

/** The interface of accounts, under both names of the service. */
export const accounts: Route[] = (["svc", "qstash"] as const).flatMap((brand) =>
  reading(brand).concat(rotate(brand), settingUp(brand), signing(brand), move(brand)),
);
