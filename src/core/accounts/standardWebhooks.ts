import { spans } from "../values/limits.ts";
import type { Account, Millis } from "../model/message.ts";

/** The secret that receivers of Standard Webhooks are given for a signing key: the same key, as that standard writes it. */
export const toStandardSecret = (signingKey: string): string => `whsec_${btoa(signingKey)}`;

/**
 * What deliveries are signed with besides, of an account that has turned it on. A receiver has one secret, so that for a
 * day after a rotation the key from before it signs as well.
 */
export function standardWebhookKeys({ signingKeys, lastRotation }: Pick<Account, "signingKeys" | "lastRotation">, now: Millis): string[] {
  return lastRotation && isRecentRotation(lastRotation.at, now) ? [signingKeys.current, lastRotation.key] : [signingKeys.current];
}

/** Whether receivers may not know yet of a rotation. A clock that was put back does not prolong it. */
export const isRecentRotation = (at: Millis, now: Millis): boolean => Math.abs(now - at) < spans.rotation;
