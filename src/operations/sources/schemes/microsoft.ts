import { isRecord, parseJsonBody } from "./call.ts";
import { answerToEcho } from "./handshake.ts";
import { isSameText } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { toSecretList, makeSchemeSchema } from "./scheme.ts";
import { acceptCall, CallRejection } from "./verificationResult.ts";

/**
 * Microsoft Graph: https://learn.microsoft.com/graph/change-notifications-delivery-webhooks. It signs
 * nothing. The secret is the `clientState` of the subscription, which each of its notifications contains. A
 * new subscription is confirmed with its token.
 */
export const microsoftSchema = makeSchemeSchema("microsoft", {});

/** Verifies calls of Microsoft Graph. */
export const microsoft: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const answer = answerToEcho("validationToken", call);
    if (answer) return answer;
    if (call.body.length > maxBytes)
      throw new CallRejection(`the body: ${call.body.length} bytes exceed the limit of ${maxBytes}`);
    const notifications = parseJsonBody(call)?.["value"];
    if (!Array.isArray(notifications) || notifications.length === 0)
      throw new CallRejection("value: missing in the body; it must list notifications");
    if (notifications.length > maxNotifications)
      throw new CallRejection(
        `value: ${notifications.length} notifications exceed the limit of ${maxNotifications}`,
      );
    const secrets = toSecretList(secret);
    if (!notifications.every((notification) => isOurs(notification, secrets)))
      throw new CallRejection(
        "clientState: missing in a notification or not the secret of this source; subscribe with that secret",
      );
    return acceptCall(null);
  },
};

const maxNotifications = 10_000;
/** The body is read before the sender is known. */
const maxBytes = 4 * 1024 * 1024;

function isOurs(notification: unknown, secrets: readonly string[]): boolean {
  const state = isRecord(notification) ? notification["clientState"] : null;
  if (typeof state !== "string") return false;
  return secrets.filter((secret) => isSameText(state, secret)).length > 0;
}
