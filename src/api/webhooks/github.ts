import { checkOneId, headerOf, neededHeader } from "./call.ts";
import { checkMac } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { secretsOf, stored } from "./scheme.ts";
import { acceptedOnce } from "./verdict.ts";

/**
 * GitHub: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries. A ping is an event like others. Neither the id of
 * a delivery nor a time is signed, so an event is known by its signature.
 */
export const githubSchema = stored("github", {});

export const github: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const given = [neededHeader(call, header)];
    const signature = checkMac({
      header,
      given,
      prefix: "sha256=",
      keys: secretsOf(secret),
      signed: [call.body],
      algorithm: "sha256",
      encoding: "hex",
    });
    checkOneId(call, "X-GitHub-Delivery");
    return acceptedOnce(signature, headerOf(call, "X-GitHub-Event"));
  },
};

const header = "X-Hub-Signature-256";
