import type { RemainingQuota } from "../../core/values/errors.ts";
import type { PublishResult } from "../../core/commands/publish.ts";
import { warningHeader } from "./warnings.ts";

/** What is left of the requests of a day (protocol 1.4). The reset is a time in unix seconds. */
export const rateLimitHeaders = ({ limit, remaining, resetAt }: RemainingQuota): Record<string, string> => ({
  "RateLimit-Limit": String(limit),
  "RateLimit-Remaining": String(remaining),
  "RateLimit-Reset": String(Math.floor(resetAt / 1000)),
});

/** Returns the headers for the answer to a publish: the allowance if there is a limit, and warnings of it and of `others`. */
export function makeResultHeaders(results: readonly PublishResult[], otherWarnings: readonly string[]): Record<string, string> {
  // One that the token may not publish was not looked at any further.
  const allowance = results.findLast((result) => result.remainingQuota)?.remainingQuota;
  const warnings = allowance?.warning === undefined ? otherWarnings : [allowance.warning, ...otherWarnings];
  return { ...(allowance && rateLimitHeaders(allowance)), ...warningHeader(warnings) };
}
