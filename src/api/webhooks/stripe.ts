import type { WebhookCall } from "./call.ts";
import { jsonOf, neededHeader } from "./call.ts";
import { checkFreshness, stampOf, usualTolerance } from "./freshness.ts";
import { checkMac } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { secretsOf, stored } from "./scheme.ts";
import { accepted, Rejected } from "./verdict.ts";

/** Stripe: https://docs.stripe.com/webhooks#verify-manually. The secret is `whsec_…`, as it is shown, and is used as it stands. */
export const stripeSchema = stored("stripe", {});

export const stripe: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const { time, signatures } = signatureOf(call);
    checkFreshness({ name: header, at: stampOf(header, time), now: call.now, tolerance: usualTolerance });
    const signed = [`${time}.`, call.body];
    checkMac({ header, given: signatures, prefix: "v1=", keys: secretsOf(secret), signed, algorithm: "sha256", encoding: "hex" });
    return accepted(jsonOf(call)?.["id"]);
  },
};

const header = "Stripe-Signature";

/** `t=<seconds>,v1=<signature>`, with a `v1` for each secret while one is being replaced. Signatures of other versions are passed over. */
function signatureOf(call: WebhookCall): { time: string; signatures: string[] } {
  const items = neededHeader(call, header)
    .split(",")
    .map((item) => item.trim());
  const times = items.filter((item) => item.startsWith("t="));
  if (times.length > 1) throw new Rejected(`${header}: has more than one timestamp`);
  return { time: (times[0] ?? "").slice(2), signatures: items.filter((item) => item.startsWith("v1=")) };
}
