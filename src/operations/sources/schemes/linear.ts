import { minute } from "../../../engine/core/values/time.ts";
import { assertOneId, parseJsonBody, requireHeader } from "./call.ts";
import { assertFresh } from "./freshness.ts";
import { checkMac } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { toSecretList, makeSchemeSchema } from "./scheme.ts";
import { acceptCallOnce, CallRejection } from "./verificationResult.ts";

/**
 * Linear: https://linear.app/developers/webhooks#securing-webhooks. The time is in the body, in milliseconds.
 */
export const linearSchema = makeSchemeSchema("linear", {});

/** Verifies calls of Linear. */
export const linear: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const signatures = [requireHeader(call, header)];
    const signature = checkMac({
      header,
      signatures,
      keys: toSecretList(secret),
      signed: [call.body],
      algorithm: "sha256",
      encoding: "hex",
    });
    const at = parseJsonBody(call)?.["webhookTimestamp"];
    if (typeof at !== "number")
      throw new CallRejection(
        "webhookTimestamp: missing in the body; it must be a number of milliseconds since 1970",
      );
    assertFresh({ name: "webhookTimestamp", at, now: call.now, tolerance: minute });
    assertOneId(call, "Linear-Delivery");
    return acceptCallOnce(signature);
  },
};

const header = "Linear-Signature";
