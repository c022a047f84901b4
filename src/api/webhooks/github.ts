import { headerOf, neededHeader } from "./call.ts";
import { checkMac } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { secretsOf, stored } from "./scheme.ts";
import { accepted } from "./verdict.ts";

/** GitHub: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries. A ping is an event like others. */
export const githubSchema = stored("github", {});

export const github: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const given = [neededHeader(call, header)];
    checkMac({ header, given, prefix: "sha256=", keys: secretsOf(secret), signed: [call.body], algorithm: "sha256", encoding: "hex" });
    return accepted(headerOf(call, "X-GitHub-Delivery"));
  },
};

const header = "X-Hub-Signature-256";
