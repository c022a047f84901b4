import { z } from "zod";
import type { WebhookCall } from "./call.ts";
import { parseCallQuery } from "./call.ts";
import { isSameText } from "./mac.ts";
import { secretText } from "./scheme.ts";
import type { VerificationResult } from "./verificationResult.ts";
import { echoChallenge, CallRejection } from "./verificationResult.ts";

/** Questions that senders ask before they send events, and do not sign. */
export const handshakeSchema = z
  .discriminatedUnion("kind", [
    z.strictObject({ kind: z.literal("hub"), verifyToken: secretText.describe("The token that was entered at the sender.") }),
    z.strictObject({ kind: z.literal("echo"), parameter: z.string().min(1).max(64).describe("The query parameter to answer with.") }),
  ])
  .describe(
    "hub: GET with hub.challenge and hub.verify_token, as Meta sends it. echo: a query parameter, without a body, as Dropbox does.",
  );

export type Handshake = z.output<typeof handshakeSchema>;

/** The answer to a call that is a handshake, or null when it is none. */
export const answerHandshake = (handshake: Handshake, call: WebhookCall): VerificationResult | null =>
  handshake.kind === "hub" ? answerToHub(handshake.verifyToken, call) : answerToEcho(handshake.parameter, call);

/** https://www.w3.org/TR/websub/#hub-verifies-intent, with the token of Meta: only who knows it is answered. */
function answerToHub(verifyToken: string, call: WebhookCall): VerificationResult | null {
  const query = parseCallQuery(call);
  if (call.method !== "GET" || query.get("hub.mode") !== "subscribe") return null;
  if (!isSameText(query.get("hub.verify_token") ?? "", verifyToken))
    throw new CallRejection("hub.verify_token: missing, or not the token of this source; enter the same one here and at the sender");
  return echoChallenge(query.get("hub.challenge"));
}

/** Answers with a parameter of the query. A call with a body is none: no event is lost, whatever its URL has. */
export function answerToEcho(parameter: string, call: WebhookCall): VerificationResult | null {
  const challenge = call.body.length === 0 ? parseCallQuery(call).get(parameter) : null;
  return challenge === null ? null : echoChallenge(challenge);
}
