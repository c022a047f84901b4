import { assertOneId, readHeader, requireHeader } from "./call.ts";
import { checkMac } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { toSecretList, makeSchemeSchema } from "./scheme.ts";
import { acceptCallOnce } from "./verificationResult.ts";

/**
 * Shopify: https://shopify.dev/docs/apps/build/webhooks/subscribe/https. The secret is the app's client
 * secret.
 */
export const shopifySchema = makeSchemeSchema("shopify", {});

/** Verifies calls of Shopify. */
export const shopify: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const signatures = [requireHeader(call, header)];
    const signature = checkMac({
      header,
      signatures,
      keys: toSecretList(secret),
      signed: [call.body],
      algorithm: "sha256",
      encoding: "base64",
    });
    assertOneId(call, "X-Shopify-Event-Id", "X-Shopify-Webhook-Id");
    // Shopify sends one order under several topics with the same body.
    return acceptCallOnce(signature, readHeader(call, "X-Shopify-Topic"));
  },
};

const header = "X-Shopify-Hmac-Sha256";
