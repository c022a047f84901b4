import type { WebhookCall } from "./call.ts";
import { headerOf, neededHeader } from "./call.ts";
import { checkMac } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { secretsOf, stored } from "./scheme.ts";
import { accepted } from "./verdict.ts";

/** Shopify: https://shopify.dev/docs/apps/build/webhooks/subscribe/https. The secret is the app's client secret. */
export const shopifySchema = stored("shopify", {});

export const shopify: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const given = [neededHeader(call, header)];
    checkMac({ header, given, keys: secretsOf(secret), signed: [call.body], algorithm: "sha256", encoding: "base64" });
    return accepted(eventIdOf(call));
  },
};

const header = "X-Shopify-Hmac-Sha256";

/** What a merchant did has one event id, also where it is told under several topics: each of them is an event of its own here. */
function eventIdOf(call: WebhookCall): string | null {
  const event = headerOf(call, "X-Shopify-Event-Id");
  const topic = headerOf(call, "X-Shopify-Topic");
  if (event === null || event === "") return headerOf(call, "X-Shopify-Webhook-Id");
  return topic === null ? event : `${event}:${topic}`;
}
