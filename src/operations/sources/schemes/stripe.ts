import type { WebhookCall } from "./call.ts";
import { parseJsonBody, requireHeader } from "./call.ts";
import { assertFresh, parseTimestamp, defaultTolerance } from "./freshness.ts";
import { checkMac } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { toSecretList, makeSchemeSchema } from "./scheme.ts";
import { acceptCall, CallRejection } from "./verificationResult.ts";

/**
 * Stripe: https://docs.stripe.com/webhooks#verify-manually. The secret is `whsec_…`. It is used as shown,
 * including the prefix.
 */
export const stripeSchema = makeSchemeSchema("stripe", {});

/** Verifies calls of Stripe. */
export const stripe: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const { time, signatures } = parseSignature(call);
    assertFresh({
      name: header,
      at: parseTimestamp(header, time),
      now: call.now,
      tolerance: defaultTolerance,
    });
    const signed = [`${time}.`, call.body];
    checkMac({
      header,
      signatures,
      prefix: "v1=",
      keys: toSecretList(secret),
      signed,
      algorithm: "sha256",
      encoding: "hex",
    });
    return acceptCall(parseJsonBody(call)?.["id"]);
  },
};

const header = "Stripe-Signature";

/**
 * Reads `t=<seconds>,v1=<signature>`, which has one `v1` for each secret during a replacement. Signatures of
 * other versions are ignored.
 */
function parseSignature(call: WebhookCall): { time: string; signatures: string[] } {
  const items = requireHeader(call, header)
    .split(",")
    .map((item) => item.trim());
  const times = items.filter((item) => item.startsWith("t="));
  if (times.length > 1) throw new CallRejection(`${header}: has more than one timestamp`);
  return { time: (times[0] ?? "").slice(2), signatures: items.filter((item) => item.startsWith("v1=")) };
}
