import { z } from "zod";
import { Refusal } from "../../engine/core/values/errors.ts";
import { parseUrl } from "../../engine/core/values/url.ts";

// The fields that the alerts of an account and those of the server have in common.

/** The URL of alerts. */
export const alertUrl = z
  .string("is not a string")
  .describe("The URL that receives the alerts, as POST requests.");

/** Throws `Refusal` unless the URL begins with http:// or https://. */
export function assertHttpUrl(url: string): void {
  const parsed = parseUrl(url);
  if (!parsed || !/^https?:$/.test(parsed.protocol))
    throw new Refusal("invalid", "url: must be a URL that begins with http:// or https://");
}

/** Reports whether a string is a secret of Standard Webhooks, which has 24 to 64 bytes. */
function isStandardSecret(text: string): boolean {
  const [, base64 = ""] = /^whsec_(.*)$/.exec(text) ?? [];
  const bytes = Buffer.from(base64, "base64");
  return bytes.length >= 24 && bytes.length <= 64 && bytes.toString("base64") === base64;
}

/** The description of `alertSecret`. */
export const aboutSecret =
  "The secret that signs the alerts by the rules of Standard Webhooks: whsec_ and 24 to 64 bytes as " +
  "base64. It is never shown.";

/** The secret of alerts. */
export const alertSecret = z
  .string("is not a string")
  .refine(isStandardSecret, "must be whsec_ and 24 to 64 bytes as base64");
