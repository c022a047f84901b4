import { z } from "zod";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { toStandardSecret } from "../../../engine/core/accounts/signingKeys.ts";
import { choice } from "../../http/parameters.ts";
import { route } from "../../route/route.ts";
import { mayRead } from "../../route/scope.ts";

const keysSchema = z.object({
  current: z.string().describe("The key that deliveries are signed with now."),
  next: z.string().describe("The key that deliveries will be signed with after the next rotation."),
});

const keysWithSecretsSchema = keysSchema.extend({
  standardWebhooks: z
    .object({
      current: z.string().describe("The secret that receivers verify webhook-signature with now."),
      next: z.string().describe("The secret for webhook-signature after the next rotation."),
    })
    .optional()
    .describe(
      "The same keys in the format of Standard Webhooks. Absent if the account has not turned on these " +
        "signatures.",
    ),
});

const get = route({
  method: "GET",
  path: "/v2/keys",
  tag: "Signing keys",
  summary: "Read the signing keys",
  answers: {
    200: { about: "The keys that receivers verify signatures with.", schema: keysWithSecretsSchema },
  },
  refusals: [],
  handle: async ({ account, context }) => {
    // Reads the account again: its keys may have been rotated since the token was checked.
    const current = await context.store.read.account(account.id);
    if (!current) throw new Refusal("unauthorized", "token: its account was deleted");
    const { signingKeys, signsStandard } = current;
    const standardWebhooks = {
      current: toStandardSecret(signingKeys.current),
      next: toStandardSecret(signingKeys.next),
    };
    return { status: 200, body: { ...signingKeys, ...(signsStandard && { standardWebhooks }) } };
  },
});

/** Returns the route that rotates the keys. Older clients use GET. */
const makeRotateRoute = (method: "GET" | "POST", summary: string) =>
  route({
    method,
    path: "/v2/keys/rotate",
    tag: "Signing keys",
    summary,
    about:
      "The next key becomes the current key, and a new key becomes the next key. Receivers that have the " +
      "old pair can still verify deliveries with their next key, but not after a second rotation. A " +
      "second rotation within 24 hours is therefore refused unless it is forced.",
    changes: true,
    ...(method === "GET" && { headerOnly: true }),
    query: z.object({
      force: choice(["true", "false"])
        .default("false")
        .describe("true rotates even if the last rotation was less than 24 hours ago."),
    }),
    answers: {
      200: {
        about: "The keys after the rotation. Both are empty if the token does not have the verb read.",
        schema: keysSchema,
      },
    },
    refusals: ["conflict"],
    handle: async ({ account, query, incoming, context }) => {
      const body = await context.store.execute("rotateKeys", {
        account: account.id,
        force: query.force === "true",
      });
      return { status: 200, body: mayRead(incoming) ? body : { current: "", next: "" } };
    },
  });

/** The routes that read and rotate the signing keys. */
export const signingKeys = [
  get,
  makeRotateRoute("POST", "Rotate the signing keys"),
  makeRotateRoute("GET", "Rotate the signing keys, as older clients do"),
];
