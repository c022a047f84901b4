import { isRecord, jsonOf } from "./call.ts";
import { answerToEcho } from "./handshake.ts";
import { isSame } from "./mac.ts";
import type { Scheme, Secret } from "./scheme.ts";
import { secretsOf, stored } from "./scheme.ts";
import { accepted, Rejected } from "./verdict.ts";

/**
 * Microsoft Graph: https://learn.microsoft.com/graph/change-notifications-delivery-webhooks. It signs nothing: the secret is the
 * `clientState` of the subscription, and comes back with each of its notifications. A new subscription is confirmed with its token.
 */
export const microsoftSchema = stored("microsoft", {});

export const microsoft: Scheme<{ secret: Secret }> = {
  check({ secret }, call) {
    const answer = answerToEcho("validationToken", call);
    if (answer) return answer;
    if (call.body.length > mostBytes) throw new Rejected(`the body: ${call.body.length} bytes, of which the limit is ${mostBytes}`);
    const notifications = jsonOf(call)?.["value"];
    if (!Array.isArray(notifications) || notifications.length === 0)
      throw new Rejected("value: missing in the body; it must list notifications");
    if (notifications.length > mostNotifications)
      throw new Rejected(`value: ${notifications.length} notifications, of which the limit is ${mostNotifications}`);
    const secrets = secretsOf(secret);
    if (!notifications.every((notification) => isOurs(notification, secrets)))
      throw new Rejected("clientState: missing in a notification, or not the secret of this source; subscribe with it");
    return accepted(null);
  },
};

const mostNotifications = 10_000;
/** The body is read before it is known who sent it. */
const mostBytes = 4 * 1024 * 1024;

function isOurs(notification: unknown, secrets: readonly string[]): boolean {
  const state = isRecord(notification) ? notification["clientState"] : null;
  if (typeof state !== "string") return false;
  return secrets.filter((secret) => isSame(state, secret)).length > 0;
}
