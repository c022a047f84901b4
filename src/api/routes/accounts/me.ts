import { z } from "zod";
import { brandNames } from "../../../engine/core/values/brand.ts";
import type { Verb } from "../../../engine/core/model/rights.ts";
import { verbs } from "../../../engine/core/model/rights.ts";
import type { Proof } from "../../auth/bearer.ts";
import { route } from "../../route/route.ts";
import { omitMissing } from "../../fields/field.ts";

const credentialKinds = ["main", "readOnly", "token", "password", "operator"] as const;

/** The credential of a request and its rights. */
type Credential = {
  kind: (typeof credentialKinds)[number];
  tokenId?: string;
  verbs: readonly Verb[];
  destinations?: readonly string[];
  expiresAt?: number | null;
};

/** Returns the credential that has proved a request. In a session, it is the one that opened the session. */
function readCredential({ right, session }: Proof): Credential {
  if (typeof right === "object") {
    const { id: tokenId, verbs: may, destinations, expiresAt } = right;
    const rights = { verbs: may, ...(destinations.length > 0 ? { destinations } : {}), expiresAt };
    return { kind: "token", tokenId, ...rights };
  }
  const kind = session?.opener.kind ?? (right === "read" ? "readOnly" : "main");
  return { kind, verbs: right === "read" ? ["read"] : verbs };
}

const list = z.array(z.string());

/** The route that says who sends a request. */
export const me = route({
  method: "GET",
  path: "/v2/me",
  tag: "Accounts",
  summary: "Read who sends the request",
  about: "Returns the account and the rights of the token or session, and the version of the server.",
  answers: {
    200: {
      about: "The sender of the request.",
      schema: z.object({
        account: z.object({
          id: z.string().describe("The id of the account."),
          name: z.string().describe("The user name of the account."),
          state: z
            .enum(["active", "passive"])
            .describe(
              "active: not restricted. passive: the account is disabled. It can read, and change nothing.",
            ),
        }),
        credential: z.object({
          kind: z
            .enum(credentialKinds)
            .describe(
              "main: the main token. readOnly: the read-only token. token: another token. password, " +
                "operator: what opened the session of the console.",
            ),
          tokenId: z.string().optional().describe("For token, the id of the token."),
          verbs: z.array(z.enum(verbs)).describe("The verbs of the sender: publish, read or manage."),
          destinations: list
            .optional()
            .describe("The destinations to which the token may publish. Absent if it may publish anywhere."),
          expiresAt: z
            .int()
            .optional()
            .describe("When the token expires, in Unix milliseconds. Absent if it does not."),
        }),
        session: z
          .object({
            name: z.string().describe("The name that the person gave."),
            expiresAt: z.int().describe("When the session ends, in Unix milliseconds."),
          })
          .optional()
          .describe("The session of the console. Absent if the request has a token."),
        brand: z
          .enum(["svc", "upstash"])
          .describe("The prefix of messages whose publish request shows none: Svc or Upstash headers."),
        headerPrefix: z.string().describe("The start of the names of headers with that prefix."),
        region: z.string().optional().describe("The region of the server, if it is set."),
        version: z.string().optional().describe("The version of the server."),
      }),
    },
  },
  refusals: [],
  handle: async ({ account, incoming, context: { brand = "svc", region, version } }) => {
    const { proof } = incoming;
    const session = proof?.session;
    return {
      status: 200,
      body: omitMissing({
        account: { id: account.id, name: account.name, state: account.state ?? "active" },
        credential: proof && omitMissing(readCredential(proof)),
        session: session && { name: session.name, expiresAt: session.expiresAt },
        brand,
        headerPrefix: brandNames[brand].prefix,
        region,
        version,
      }),
    };
  },
});
