import { parseJsonBody, requireHeader } from "./call.ts";
import { assertFresh, parseTimestamp, defaultTolerance } from "./freshness.ts";
import { checkMac } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { toSecretList, makeSchemeSchema } from "./scheme.ts";
import { acceptCall, echoChallenge } from "./verificationResult.ts";

/**
 * Slack: https://api.slack.com/authentication/verifying-requests-from-slack. Slack signs its question about
 * the URL as well, so it is answered only after verification.
 */
export const slackSchema = makeSchemeSchema("slack", {});

/** Verifies calls of Slack. */
export const slack: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const signatures = [requireHeader(call, header)];
    const time = requireHeader(call, timeHeader);
    assertFresh({
      name: timeHeader,
      at: parseTimestamp(timeHeader, time),
      now: call.now,
      tolerance: defaultTolerance,
    });
    const signed = [`v0:${time}:`, call.body];
    checkMac({
      header,
      signatures,
      prefix: "v0=",
      keys: toSecretList(secret),
      signed,
      algorithm: "sha256",
      encoding: "hex",
    });
    const body = parseJsonBody(call);
    return body?.["type"] === "url_verification"
      ? echoChallenge(body["challenge"])
      : acceptCall(body?.["event_id"]);
  },
};

const header = "X-Slack-Signature";
const timeHeader = "X-Slack-Request-Timestamp";
