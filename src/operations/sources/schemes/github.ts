import { assertOneId, readHeader, requireHeader } from "./call.ts";
import { checkMac } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { toSecretList, makeSchemeSchema } from "./scheme.ts";
import { acceptCallOnce } from "./verificationResult.ts";

/**
 * GitHub: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries. A ping is
 * published like any other event. GitHub signs neither a delivery id nor a time, so an event is recognized by
 * its signature.
 */
export const githubSchema = makeSchemeSchema("github", {});

/** Verifies calls of GitHub. */
export const github: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const signatures = [requireHeader(call, header)];
    const signature = checkMac({
      header,
      signatures,
      prefix: "sha256=",
      keys: toSecretList(secret),
      signed: [call.body],
      algorithm: "sha256",
      encoding: "hex",
    });
    assertOneId(call, "X-GitHub-Delivery");
    return acceptCallOnce(signature, readHeader(call, "X-GitHub-Event"));
  },
};

const header = "X-Hub-Signature-256";
