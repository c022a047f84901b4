import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import { toStandardSecret } from "../../../core/accounts/standardWebhooks.ts";
import { choice } from "../../http/parameters.ts";
import { route } from "../../route/route.ts";
import { mayRead } from "../../route/scope.ts";

const keysSchema = z.object({
  current: z.string().describe("What deliveries are signed with now."),
  next: z.string().describe("What they will be signed with after the next rotation."),
});

const keysWithSecretsSchema = keysSchema.extend({
  standardWebhooks: z
    .object({ current: z.string().describe("What receivers verify webhook-signature with."), next: z.string() })
    .optional()
    .describe("The same keys, as Standard Webhooks writes them. Absent where the account has not turned that on."),
});

const get = route({
  method: "GET",
  path: "/v2/keys",
  tag: "Signing keys",
  summary: "Read the signing keys",
  answers: { 200: { about: "The keys that receivers verify signatures with.", schema: keysWithSecretsSchema } },
  refusals: [],
  handle: async ({ account, context }) => {
    // Not those that the token was checked with a moment ago: they may have been rotated since.
    const current = await context.store.read.account(account.id);
    if (!current) throw new Refusal("unauthorized", "token: its account does not exist any more");
    const { signingKeys, signsStandard } = current;
    const standardWebhooks = { current: toStandardSecret(signingKeys.current), next: toStandardSecret(signingKeys.next) };
    return { status: 200, body: { ...signingKeys, ...(signsStandard && { standardWebhooks }) } };
  },
});

const makeRotateRoute = (method: "GET" | "POST", summary: string) =>
  route({
    method,
    path: "/v2/keys/rotate",
    tag: "Signing keys",
    summary,
    about:
      "The next key becomes the current one, and a new one becomes the next. Receivers that know the old pair still verify, with their next. Those that miss two rotations do not: a second one within 24 hours is refused, unless it is forced.",
    changes: true,
    query: z.object({
      force: choice(["true", "false"]).default("false").describe("Rotate even if the last rotation was within 24 hours."),
    }),
    answers: { 200: { about: "The keys from now on. Empty for a token without the verb read.", schema: keysSchema } },
    refusals: ["conflict"],
    handle: async ({ account, query, incoming, context }) => {
      const body = await context.store.execute("rotateKeys", { account: account.id, force: query.force === "true" });
      return { status: 200, body: mayRead(incoming) ? body : { current: "", next: "" } };
    },
  });

export const signingKeys = [
  get,
  makeRotateRoute("POST", "Rotate the signing keys"),
  makeRotateRoute("GET", "Rotate the signing keys, as older clients do"),
];
