import { jsonOf, neededHeader } from "./call.ts";
import { checkFreshness, stampOf, usualTolerance } from "./freshness.ts";
import { checkMac } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { secretsOf, stored } from "./scheme.ts";
import { accepted, echoed } from "./verdict.ts";

/**
 * Slack: https://api.slack.com/authentication/verifying-requests-from-slack. Its question whether the URL is ours is signed like
 * everything else, so it is answered only after that was checked.
 */
export const slackSchema = stored("slack", {});

export const slack: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const given = [neededHeader(call, header)];
    const time = neededHeader(call, timeHeader);
    checkFreshness({ name: timeHeader, at: stampOf(timeHeader, time), now: call.now, tolerance: usualTolerance });
    const signed = [`v0:${time}:`, call.body];
    checkMac({ header, given, prefix: "v0=", keys: secretsOf(secret), signed, algorithm: "sha256", encoding: "hex" });
    const body = jsonOf(call);
    return body?.["type"] === "url_verification" ? echoed(body["challenge"]) : accepted(body?.["event_id"]);
  },
};

const header = "X-Slack-Signature";
const timeHeader = "X-Slack-Request-Timestamp";
