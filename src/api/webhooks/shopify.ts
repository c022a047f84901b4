import { checkOneId, headerOf, neededHeader } from "./call.ts";
import { checkMac } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { secretsOf, stored } from "./scheme.ts";
import { acceptedOnce } from "./verdict.ts";

/** Shopify: https://shopify.dev/docs/apps/build/webhooks/subscribe/https. The secret is the app's client secret. */
export const shopifySchema = stored("shopify", {});

export const shopify: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const given = [neededHeader(call, header)];
    const signature = checkMac({ header, given, keys: secretsOf(secret), signed: [call.body], algorithm: "sha256", encoding: "base64" });
    checkOneId(call, "X-Shopify-Event-Id", "X-Shopify-Webhook-Id");
    // Shopify sends one order under several topics, with the same body.
    return acceptedOnce(signature, headerOf(call, "X-Shopify-Topic"));
  },
};

const header = "X-Shopify-Hmac-Sha256";
