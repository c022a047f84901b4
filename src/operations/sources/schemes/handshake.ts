import { z } from "zod";
import type { WebhookCall } from "./call.ts";
import { parseCallQuery } from "./call.ts";
import { isSameText } from "./mac.ts";
import { secretText } from "./scheme.ts";
import type { VerificationResult } from "./verificationResult.ts";
import { echoChallenge, CallRejection } from "./verificationResult.ts";

/** Unsigned questions that senders ask before they send events. */
export const handshakeSchema = z
  .discriminatedUnion("kind", [
    z.strictObject({
      kind: z.literal("hub").describe("The sender asks with hub.challenge and hub.verify_token, like Meta."),
      verifyToken: secretText.describe(
        "The verify token that is entered at the sender, at most 1024 characters.",
      ),
    }),
    z.strictObject({
      kind: z.literal("echo").describe("The sender asks with a query parameter to echo, like Dropbox."),
      parameter: z
        .string()
        .min(1)
        .max(64)
        .describe("The query parameter whose value is the response, such as challenge."),
    }),
  ])
  .describe(
    "hub: a GET with hub.challenge and hub.verify_token, as sent by Meta. " +
      "echo: a call without a body, with a query parameter to echo, as sent by Dropbox.",
  );

/** A handshake, as stored. */
export type Handshake = z.output<typeof handshakeSchema>;

/** Returns the answer to a call that is a handshake, or null for any other call. */
export const answerHandshake = (handshake: Handshake, call: WebhookCall): VerificationResult | null =>
  handshake.kind === "hub"
    ? answerToHub(handshake.verifyToken, call)
    : answerToEcho(handshake.parameter, call);

/**
 * Returns the answer to a verification as https://www.w3.org/TR/websub/#hub-verifies-intent describes it,
 * with Meta's token. Returns null for a caller without the token.
 */
function answerToHub(verifyToken: string, call: WebhookCall): VerificationResult | null {
  const query = parseCallQuery(call);
  if (call.method !== "GET" || query.get("hub.mode") !== "subscribe") return null;
  if (!isSameText(query.get("hub.verify_token") ?? "", verifyToken))
    throw new CallRejection(
      "hub.verify_token: missing or not the token of this source; use the same token here and at the sender",
    );
  return echoChallenge(query.get("hub.challenge"));
}

/**
 * Returns a query parameter as the answer, or null. A call with a body is never treated as a handshake,
 * regardless of its URL, because it may be an event.
 */
export function answerToEcho(parameter: string, call: WebhookCall): VerificationResult | null {
  const challenge = call.body.length === 0 ? parseCallQuery(call).get(parameter) : null;
  return challenge === null ? null : echoChallenge(challenge);
}
