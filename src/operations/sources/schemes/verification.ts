import { z } from "zod";
import type { WebhookCall } from "./call.ts";
import { github, githubSchema } from "./github.ts";
import { hmac, hmacSchema } from "./hmac.ts";
import { linear, linearSchema } from "./linear.ts";
import { microsoft, microsoftSchema } from "./microsoft.ts";
import type { Scheme } from "./scheme.ts";
import { shopify, shopifySchema } from "./shopify.ts";
import { slack, slackSchema } from "./slack.ts";
import { standard, standardSchema } from "./standard.ts";
import { stripe, stripeSchema } from "./stripe.ts";
import { twilio, twilioSchema } from "./twilio.ts";
import type { VerificationResult } from "./verificationResult.ts";
import { CallRejection } from "./verificationResult.ts";

export type { WebhookCall } from "./call.ts";
export type { VerificationResult } from "./verificationResult.ts";

/** How the calls of a source are verified: the input of the API and, once parsed, the stored form. */
export const verificationSchema = z.discriminatedUnion("scheme", [
  stripeSchema,
  githubSchema,
  slackSchema,
  shopifySchema,
  twilioSchema,
  linearSchema,
  standardSchema,
  microsoftSchema,
  hmacSchema,
]);

/** How the calls of a source are verified, as stored: plain JSON. It contains secrets. */
export type Verification = z.output<typeof verificationSchema>;

/** The name of a scheme, such as `stripe`. */
export type SchemeName = Verification["scheme"];

/**
 * Reports whether a call comes from the sender of the source. The function is pure, takes bounded time, and
 * throws for nothing that a sender can send.
 */
export function verify(verification: Verification, call: WebhookCall): VerificationResult {
  try {
    return check(verification, call);
  } catch (error) {
    if (error instanceof CallRejection) return { kind: "rejected", reason: error.message };
    throw error;
  }
}

type ByName = { [N in SchemeName]: Extract<Verification, { scheme: N }> };

const schemes: { readonly [N in SchemeName]: Scheme<ByName[N]> } = {
  stripe,
  github,
  slack,
  shopify,
  twilio,
  linear,
  standard,
  microsoft,
  hmac,
};

/**
 * Checks a call by its scheme. The type parameter shows the compiler that each scheme gets its own settings.
 */
const check = <N extends SchemeName>(verification: ByName[N], call: WebhookCall): VerificationResult =>
  schemes[verification.scheme].check(verification, call);
