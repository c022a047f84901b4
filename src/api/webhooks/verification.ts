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

/** How the calls of a source are verified: what the API takes, and, once parsed, what is stored. */
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

/** How the calls of a source are verified, as it is stored: plain JSON. It holds secrets. */
export type Verification = z.output<typeof verificationSchema>;

export type SchemeName = Verification["scheme"];

/** Whether a call comes from whom the source is for. Pure, bounded in its time, and never throws for anything a sender can send. */
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

/** Each row takes what is stored under its own name: with that name as a type, the compiler sees it. */
const check = <N extends SchemeName>(verification: ByName[N], call: WebhookCall): VerificationResult =>
  schemes[verification.scheme].check(verification, call);
