import { minute } from "../../core/values/time.ts";
import { checkOneId, jsonOf, neededHeader } from "./call.ts";
import { checkFreshness } from "./freshness.ts";
import { checkMac } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { secretsOf, stored } from "./scheme.ts";
import { acceptedOnce, Rejected } from "./verdict.ts";

/** Linear: https://linear.app/developers/webhooks#securing-webhooks. The time is in the body, in milliseconds. */
export const linearSchema = stored("linear", {});

export const linear: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const given = [neededHeader(call, header)];
    const signature = checkMac({ header, given, keys: secretsOf(secret), signed: [call.body], algorithm: "sha256", encoding: "hex" });
    const at = jsonOf(call)?.["webhookTimestamp"];
    if (typeof at !== "number") throw new Rejected("webhookTimestamp: missing in the body; it must be a number of milliseconds since 1970");
    checkFreshness({ name: "webhookTimestamp", at, now: call.now, tolerance: minute });
    checkOneId(call, "Linear-Delivery");
    return acceptedOnce(signature);
  },
};

const header = "Linear-Signature";
