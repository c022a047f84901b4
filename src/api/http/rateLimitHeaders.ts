import type { RemainingQuota } from "../../engine/core/values/errors.ts";
import type { PublishResult } from "../../engine/core/commands/publish.ts";
import { formatRefusal } from "./remedies.ts";
import { warningHeader } from "./warnings.ts";

/**
 * Returns the headers with the remaining requests of the day. The reset is a time in unix
 * seconds.
 */
export const rateLimitHeaders = ({ limit, remaining, resetAt }: RemainingQuota): Record<string, string> => ({
  "RateLimit-Limit": String(limit),
  "RateLimit-Remaining": String(remaining),
  "RateLimit-Reset": String(Math.floor(resetAt / 1000)),
});

/**
 * Returns the headers of the response to a publish: the daily limit if there is one, the warning of that
 * limit, and `otherWarnings`.
 */
export function makeResultHeaders(
  results: readonly PublishResult[],
  otherWarnings: readonly string[],
): Record<string, string> {
  // A message that the token may not publish was not counted, so it has no quota.
  const quota = results.findLast((result) => result.remainingQuota)?.remainingQuota;
  const warnings =
    quota?.warning === undefined ? otherWarnings : [formatRefusal(quota.warning), ...otherWarnings];
  return { ...(quota && rateLimitHeaders(quota)), ...warningHeader(warnings) };
}
