import { z } from "zod";
import type { WebhookCall } from "./call.ts";
import type { VerificationResult } from "./verificationResult.ts";

/**
 * One way of verifying calls. `check` verifies a call by the stored settings. It may throw `CallRejection`.
 */
export type Scheme<Stored> = { check(verification: Stored, call: WebhookCall): VerificationResult };

const aboutSchemes = {
  stripe: "Verifies the header Stripe-Signature, at most 5 minutes old.",
  github: "Verifies the header X-Hub-Signature-256.",
  slack: "Verifies the header X-Slack-Signature, at most 5 minutes old, and responds to the URL check.",
  shopify: "Verifies the header X-Shopify-Hmac-Sha256.",
  twilio: "Verifies the header X-Twilio-Signature. Requires the server's public URL.",
  linear: "Verifies the header Linear-Signature, at most 1 minute old.",
  standard: "Verifies Standard Webhooks: headers webhook-… or svix-…, at most 5 minutes old.",
  microsoft: "Compares clientState in each notification, and responds to the validation token.",
  hmac: "Verifies a signature as the other fields describe it.",
} as const;

/** Returns the schema of a scheme's stored settings: its name, its secret and its options. */
export const makeSchemeSchema = <Name extends keyof typeof aboutSchemes, Options extends z.core.$ZodShape>(
  name: Name,
  options: Options,
) =>
  z.strictObject({ scheme: z.literal(name).describe(aboutSchemes[name]), secret: secretSchema, ...options });

/** The secret that the sender signs with, or several while it is being replaced. */
export type Secret = string | string[];

/** Returns the secrets that a call may be signed with. */
export const toSecretList = (secret: Secret): readonly string[] =>
  typeof secret === "string" ? [secret] : secret;

/** Returns the schema of one or several secrets, each as `text` describes. */
export const oneOrSeveral = (text: z.ZodString) =>
  z.union([text, z.array(text).min(1).max(maxSecrets)], {
    error: ({ input }) =>
      input === undefined
        ? "is missing"
        : `is not a valid secret or a list of 1 to ${maxSecrets} valid secrets`,
  });

/** A secret of any form, of at most 1024 characters. */
export const secretText = z.string().min(1).max(1024);

const maxSecrets = 4;

const secretSchema = oneOrSeveral(secretText).describe(
  "The secret that the sender signs with, or a list of 1 to 4 secrets while it is being replaced.",
);
