import { spans } from "../values/limits.ts";
import type { Account } from "../model/account.ts";
import type { Delivery } from "../model/delivery.ts";
import type { Millis } from "../values/basics.ts";

/** Returns a signing key in the form that receivers of Standard Webhooks use as their secret. */
export const toStandardSecret = (signingKey: string): string => `whsec_${btoa(signingKey)}`;

/**
 * Returns the keys that sign a delivery. The JWT is always signed with the current key: its receivers know
 * the current and the next key. `standardKeys` are present if the account also signs by the rules of Standard
 * Webhooks.
 */
export const pickSigningKeys = (
  account: Pick<Account, "signingKeys" | "lastRotation" | "signsStandard">,
  now: Millis,
): Pick<Delivery, "signingKey" | "standardKeys"> => ({
  signingKey: account.signingKeys.current,
  ...(account.signsStandard ? { standardKeys: standardWebhookKeys(account, now) } : {}),
});

/** Returns the keys of a call that is signed by the rules of Standard Webhooks alone. */
export const signWithSecret = (secret: string): Pick<Delivery, "signingKey" | "standardKeys"> => ({
  signingKey: null,
  standardKeys: [secret],
});

/**
 * Returns the keys that sign the deliveries of an account by the rules of Standard Webhooks. A receiver has
 * one secret, so the previous key also signs for a day after a rotation.
 */
function standardWebhookKeys(
  { signingKeys, lastRotation }: Pick<Account, "signingKeys" | "lastRotation">,
  now: Millis,
): string[] {
  return lastRotation && isRecentRotation(lastRotation.at, now)
    ? [signingKeys.current, lastRotation.key]
    : [signingKeys.current];
}

/**
 * Reports whether a rotation is so recent that receivers may not know it. A clock that is set back does not
 * prolong that time.
 */
export const isRecentRotation = (at: Millis, now: Millis): boolean => Math.abs(now - at) < spans.rotation;
