import { z } from "zod";
import type { WebhookCall } from "./call.ts";
import type { VerificationResult } from "./verificationResult.ts";

/** One way of verifying calls: what is stored for it, and how a call is checked against that. `check` throws `Rejected`, too. */
export type Scheme<Stored> = { check(verification: Stored, call: WebhookCall): VerificationResult };

/** The stored form of a scheme, with what it needs besides its secret. */
export const makeSchemeSchema = <Name extends string, Options extends z.core.$ZodShape>(name: Name, options: Options) =>
  z.strictObject({ scheme: z.literal(name), secret: secretSchema, ...options });

/** What the sender signs with: one secret, or several while it is being replaced. */
export type Secret = string | string[];

/** The secrets that a call may be signed with. */
export const toSecretList = (secret: Secret): readonly string[] => (typeof secret === "string" ? [secret] : secret);

/** One or several secrets, each as `text` describes. */
export const oneOrSeveral = (text: z.ZodString) =>
  z.union([text, z.array(text).min(1).max(maxSecrets)], {
    error: ({ input }) =>
      input === undefined ? "is missing" : `is neither a text that could be one, nor a list of 1 to ${maxSecrets} such texts`,
  });

/** A secret of any form. */
export const secretText = z.string().min(1).max(1024);

const maxSecrets = 4;

const secretSchema = oneOrSeveral(secretText).describe(
  "What the sender signs with. A list while it is being replaced: any of them will do.",
);
